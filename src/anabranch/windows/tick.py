"""Tick: which arrivals make a system act, and for which instants it then calls report.

* `tuple`: every tuple.  With the time of the last tick again: report at that time; later:
  report at each instant from the last tick to just before the tuple.
* `time`: only a tuple with a later time.
* `batch`: the first tuple of every batch; otherwise as `tuple`.

The last tick is the last arrival that *called* report, answered or not (erratum S1); before
the first tuple it is one unit before it, and not before t0 (erratum S2).  It never goes back
(erratum S13).  A tuple at or before t0 is in no window and does not tick (erratum S11).

What an instant holds is thus shown when the *next* arrival comes (erratum S8).  A stable ticks
in every system if it moves time on.

Papers: SECRET 3.2.4, Table 1; errata S1, S2, S3, S8, S9, S13, S14.
"""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from anabranch.model import Stable
from anabranch.windows.stream import Item, Row

Tick: TypeAlias = Literal["tuple", "time", "batch"]
TICKS: tuple[Tick, ...] = ("tuple", "time", "batch")


@dataclass(frozen=True, slots=True)
class LastTick:
    """What a system remembers of the arrivals before: time of the last tick, last batch."""

    time: int
    batch: int
    t0: int

    @classmethod
    def before(cls, first: int, t0: int) -> "LastTick":
        """Before the first tuple."""
        return cls(max(t0, first - 1), 0, t0)

    def after(self, item: Item, calls: range | None) -> "LastTick":
        """After an arrival that called report so."""
        time = self.time if calls is None else max(self.time, int(item.time))
        batch = item.batch if isinstance(item, Row) else self.batch
        return LastTick(time, batch, self.t0)


def calls(tick: Tick, last: LastTick, item: Item) -> range | None:
    """The instants for which an arrival calls report; None if the system does not act.

    >>> last = LastTick(time=2, batch=1, t0=0)
    >>> calls("tuple", last, Row(2, 4, "f", 2, 2)), calls("time", last, Row(2, 2, "c", 2, 2))
    (range(2, 4), None)
    """
    now = int(item.time)
    if now <= last.t0 or now < last.time:
        return None
    if isinstance(item, Stable) or tick == "time":
        return range(last.time, now) if now > last.time else None
    if tick == "batch" and item.batch <= last.batch:
        return None
    return range(now, now + 1) if now == last.time else range(last.time, now)
