"""Prefetch: produce items on background threads while the caller uses the current one.

How many are produced ahead is bounded, and with it memory: one by `prefetch`, one for each
thread by `mapped`.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

S = TypeVar("S")
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


def mapped(function: Callable[[S], T], items: Iterable[S], threads: int) -> Iterator[T]:
    """The result for each item, in their order; each thread works on one item.

    The pool's own `map` would take all items at once, and hold the results that the caller has
    not used yet.
    """
    with ThreadPoolExecutor(threads) as pool:
        coming: deque[Future[T]] = deque()
        for item in items:
            coming.append(pool.submit(function, item))
            if len(coming) > threads:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
