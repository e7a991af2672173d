"""The elements that lead from one history to another, no more than needed.

An event whose end changed is one adjust; every other difference is a removal or an insert.
Adjusts come first, in the order of their sync times `min(old_end, end)`, then inserts by start
(erratum D12).  If both histories are legal for one frontier, and the part that it froze is the
same in both, then the elements keep its promise.

>>> from anabranch.model.element import Event
>>> before = History.from_events([Event("a", 1, 5), Event("b", 2, 4)])
>>> after = History.from_events([Event("a", 1, 9), Event("c", 3, 4)])
>>> for element in difference_of(before, after):
...     print(element)
Adjust(payload='b', start=2, old_end=4, end=2)
Adjust(payload='a', start=1, old_end=5, end=9)
Insert(payload='c', start=3, end=4)
"""

from anabranch.model.element import Adjust, Element, Insert
from anabranch.model.history import History
from anabranch.model.time import Time


def difference_of(before: History, after: History) -> list[Element]:
    """Adjusts in sync order, then inserts by start; of several equal identities, ends pair up.

    The smallest end that is gone becomes the smallest end that is new, and so on.  Of equal
    sync times those that shorten come first: what ends there makes room for what goes on.
    """
    gone, new = before.minus(after).identities(), after.minus(before).identities()
    adjusts: list[Adjust] = []
    inserts: list[Insert] = []
    for identity in {**gone, **new}:
        start, payload = identity
        old_ends, ends = gone.get(identity, ()), new.get(identity, ())
        paired = min(len(old_ends), len(ends))
        lost = [start] * (len(old_ends) - paired)
        adjusts += [
            Adjust(payload, start, old_end, end)
            for old_end, end in zip(old_ends, [*ends[:paired], *lost], strict=True)
        ]
        inserts += [Insert(payload, start, end) for end in ends[paired:]]
    adjusts.sort(key=lambda e: (sync_time(e), e.end > e.old_end, e.start, repr(e.payload)))
    inserts.sort(key=lambda e: (e.start, repr(e.payload), e.end))
    return [*adjusts, *inserts]


def sync_time(element: Insert | Adjust) -> Time:
    """The earliest time at which the element changes a snapshot.

    >>> sync_time(Adjust("a", 1, 5, 9)), sync_time(Insert("a", 1, 5))
    (5, 1)
    """
    return element.start if isinstance(element, Insert) else min(element.old_end, element.end)
