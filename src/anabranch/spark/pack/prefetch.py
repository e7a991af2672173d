"""Prefetch: produce the next item on a background thread while the caller uses the current one.

At most one item is produced ahead, so that memory holds two.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

T = TypeVar("T")

_END: Final[Any] = object()


def prefetch(items: Iterator[T]) -> Iterator[T]:
    """The same items; an error while one is produced is raised where it would be used.

    The first one is produced by the caller, who would wait for it: of none there is no thread.
    """
    item = next(items, _END)
    if item is _END:
        return
    with ThreadPoolExecutor(1) as pool:
        while item is not _END:
            coming = pool.submit(next, items, _END)
            yield item
            item = coming.result()
