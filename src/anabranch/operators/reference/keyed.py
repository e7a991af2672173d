"""One event per key, one element at a time: which inserts repeat a key of their input.

An event has its key until the frontier of its own input has passed the event's end as it was
inserted; adjusts pass and change nothing.  What ends before it starts, or is behind its input's
frontier, takes no key: the operator behind rejects it.

`operators.keyed` does the same over batches, and forgets what no input can repeat any more.

>>> from anabranch.model.element import Insert, Stable
>>> keys = Keys(lambda payload: payload)
>>> keys.repeats("east", Insert("a", 1, 5)), keys.repeats("west", Insert("a", 1, 5))
(False, False)
>>> keys.repeats("east", Insert("a", 3, 9))
True
>>> keys.repeats("east", Stable(6)), keys.repeats("east", Insert("a", 7, 9))
(False, False)
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from anabranch.model.element import Element, Insert, Stable
from anabranch.model.time import NEVER, Time


@dataclass
class _Input:
    """How far an input is, and the end of the last event of each of its keys."""

    frontier: Time = NEVER
    ends: dict[Hashable, Time] = field(default_factory=dict)


class Keys:
    """The state of the reference; `key_of` is the key of a payload.

    `with_start`: an event's start is a part of its key.
    """

    def __init__(self, key_of: Callable[[Hashable], Hashable], *, with_start: bool = False):
        self.key_of, self.with_start = key_of, with_start
        self.inputs: dict[str, _Input] = {}

    def forget(self, name: str) -> None:
        """An input leaves, or comes again: it has no keys."""
        self.inputs.pop(name, None)

    def repeats(self, name: str, element: Element) -> bool:
        """Whether this is a second event of a key of this input; else it takes the key."""
        own = self.inputs.setdefault(name, _Input())
        if isinstance(element, Stable):
            own.frontier = max(own.frontier, element.time)
        if not isinstance(element, Insert) or element.end <= element.start:
            return False
        if element.start < own.frontier:
            return False
        key = (self.key_of(element.payload), element.start if self.with_start else None)
        if key in own.ends and own.ends[key] >= own.frontier:
            return True
        own.ends[key] = element.end
        return False
