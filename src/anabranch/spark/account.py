"""The progress record of one lane and trigger: every element in exactly one bucket.

Data elements are counted by the lane of their identity, stables and refused rows by one lane
alone: the sum over all lanes counts every row once.  An element that was held back (`pending`)
and is decided now moves from that bucket to its final one.
"""

from collections.abc import Sequence
from typing import Any, Final

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, STABLE
from anabranch.operators.merge.contract import Bucket, StepResult
from anabranch.operators.merge.start import Merge
from anabranch.spark.forms import LATE
from anabranch.spark.progress import BUCKETS, Record
from anabranch.spark.receive import Received
from anabranch.spark.write import ELEMENTS, FINAL, VIOLATIONS

_COUNTED: Final = ("added_adjusts", "added_inserts", "conflicts", "missing")
"""What a step counts by itself."""


class Account:
    """Counts of one lane over the steps of a trigger."""

    def __init__(self, lane: int, *, counting: bool) -> None:
        self._lane = lane
        self._counting = counting
        self._counts: dict[str, dict[str, Any]] = {}
        self._guilty: dict[str, None] = {}
        names = (ELEMENTS, FINAL, LATE, VIOLATIONS, *_COUNTED)
        self._output = dict.fromkeys(names, 0)

    def add(self, heard: Sequence[Received], result: StepResult, state: Merge) -> None:
        """One step: what came, and what became of it."""
        for status in state.replicas:
            self._of(status.name)
        for item, buckets in zip(heard, result.buckets, strict=True):
            mine = buckets if self._counting else buckets[item.batch.kind != STABLE]
            for bucket in Bucket:
                self._of(item.replica)[bucket.word] += int((mine == bucket).sum())
        for held in result.resolved:
            counts = self._of(held.replica)
            counts[Bucket.PENDING.word] -= len(held.reasons)
            for bucket in Bucket:
                counts[bucket.word] += int((held.buckets == bucket).sum())
        data = int(result.output.is_data.sum())
        stables = len(result.output) - data if self._counting else 0
        late = sum(int((b == Bucket.LATE).sum()) for b in result.buckets)
        late += sum(int((held.buckets == Bucket.LATE).sum()) for held in result.resolved)
        broken = sum(int((b == Bucket.VIOLATION).sum()) for b in result.buckets)
        made = {ELEMENTS: data + stables, LATE: late, VIOLATIONS: broken}
        for name, count in (made | {one: getattr(result, one) for one in _COUNTED}).items():
            self._output[name] += count

    def add_guilty(self, names: Sequence[str]) -> None:
        """Whom the policy detaches."""
        self._guilty |= dict.fromkeys(names)

    def add_final(self, count: int) -> None:
        """Events that became final."""
        self._output[FINAL] += count

    def add_left(self, replica: str, count: int) -> None:
        """What a replica said after it left."""
        self._of(replica)["violation"] += count
        self._output[VIOLATIONS] += count

    def add_refused(self, replicas: Sequence[str], files: Sequence[Record]) -> None:
        """Rows that are no elements, by replica, and what was read."""
        for replica in replicas:
            self._of(replica)["violation"] += 1
        self._output[VIOLATIONS] += len(replicas)
        for fact in files:
            self._of(fact["replica"])["rows"] += fact["rows"]

    def record(self, state: Merge, *, steps: int) -> Record:
        """All of it, with how far everybody is."""
        for counts in self._counts.values():
            counts |= {"frontier": None, "joined": False, "attached": False}
        for status in state.replicas:
            self._of(status.name).update(
                frontier=time_or_word(status.frontier), joined=status.joined, attached=True
            )
        joined = [status for status in state.replicas if status.joined]
        leader = max(joined, key=lambda one: one.frontier, default=None)
        alarm = state.alarm
        return {
            "lane": self._lane,
            "replicas": self._counts,
            "output": self._output,
            "live": state.live,
            "case": state.case.value,
            "frontier": time_or_word(state.frontier),
            "leader": leader.name if leader else None,
            "guilty": list(self._guilty),
            "alarm": alarm and [alarm.replica, time_or_word(int(alarm.guarantee))],
            "stretches": [
                [time_or_word(int(one.start)), time_or_word(int(one.end)), one.replica]
                for one in state.stretches
            ],
            "steps": steps,
        }

    def _of(self, replica: str) -> dict[str, Any]:
        return self._counts.setdefault(replica, dict.fromkeys(("rows", *BUCKETS), 0))


def time_or_word(units: int) -> int | str | None:
    """A frontier for a record: a number, `forever`, or nothing yet."""
    if units == FOREVER_UNITS:
        return "forever"
    return None if units == NEVER_UNITS else int(units)
