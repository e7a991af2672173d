"""Which elements are late once stables are forced, whatever the input has promised.

A stream is read beside the history of what was kept of it.  An element is late

* if it changes time before the forced stable: its sync time is before that;
* if it adjusts an event of which the input has more than what was kept has: one whose insert
  was late, or that had that end by an adjust that was late.

What is kept is a valid stream: each of its adjusts finds its event, and nothing of it is behind
a forced stable.

Papers: CEDR *operators*, 4.6, with errata C18, C24 and D14.

>>> from anabranch.model.element import Stable
>>> kept = Kept()
>>> kept.force(5)
>>> [kept.take(one) for one in (Insert("a", 2, 9), Adjust("a", 2, 9, 7), Insert("b", 5, 6))]
[Lateness.BEHIND, Lateness.FORGOTTEN, None]
"""

from collections import Counter
from enum import Enum

from anabranch.model.element import Adjust, Event, Insert
from anabranch.model.history import History
from anabranch.model.net_change import sync_time
from anabranch.model.time import NEVER, Time


class Lateness(Enum):
    """Why an element is late."""

    BEHIND = "it is behind a forced stable"
    FORGOTTEN = "it adjusts an event that was not kept as the input has it"

    def __repr__(self) -> str:
        return f"Lateness.{self.name}"


class Kept:
    """What came, what is kept of it, and the greatest stable that was forced."""

    def __init__(self) -> None:
        self.forced: Time = NEVER
        self.came: Counter[Event] = Counter()
        self.kept: Counter[Event] = Counter()

    @property
    def history(self) -> History:
        """What is kept."""
        return History(self.kept)

    def force(self, time: Time) -> None:
        """From now on nothing before this time changes."""
        self.forced = max(self.forced, time)

    def take(self, element: Insert | Adjust) -> Lateness | None:
        """Take the next element of a valid stream; None: it is kept."""
        if element.changes_nothing:
            return None
        lateness = None
        if sync_time(element) < self.forced:
            lateness = Lateness.BEHIND
        elif isinstance(element, Adjust):
            old = element.old_event
            lateness = Lateness.FORGOTTEN if self.came[old] > self.kept[old] else None
        for counts in (self.came,) if lateness else (self.came, self.kept):
            if isinstance(element, Adjust):
                counts[element.old_event] -= 1
            counts[element.event] += 1
        return lateness
