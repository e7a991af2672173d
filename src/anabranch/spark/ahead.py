"""`ahead`: while one item is used, the next is made.

For work that two sides share, of which one waits for the other.  Only one item is made ahead,
so that memory holds two.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final[Any] = object()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items; what fails while one is made is raised where it would be used."""
    with ThreadPoolExecutor(1) as beside:
        coming = beside.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = beside.submit(next, items, _END)
            yield item
