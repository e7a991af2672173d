"""The one event at the current start of the output: all that R0 remembers of events.

An insert with the same start is a copy of it, by value, or contradicts it.  Nothing is hashed.

Papers: LMerge IV-A (MaxVs, and the event that has it).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.batch.buffers import take
from anabranch.batch.equality import equal_rows
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.ordered_candidates import Candidates


@dataclass(eq=False)
class Latest:
    """The last event of the output, or none: at most one row."""

    payload: pa.Table
    end: Ints
    probes: int = 0
    compares: int = 0

    @classmethod
    def nothing(cls, schema: pa.Schema) -> "Latest":
        """Nothing was emitted yet."""
        return cls(schema.empty_table(), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.end)

    def attach(self) -> None:
        """Nothing is remembered per replica."""

    def detach(self, replica: int) -> None:
        """Nothing is remembered per replica."""

    def settle(self, some: Candidates, payload: pa.Table) -> Codes:
        """The reason of each; `payload` has the payloads of the step."""
        reasons = np.full(len(some), Reason.FIRST.code, np.int8)
        numbers = np.arange(len(some))
        opener = np.maximum.accumulate(np.where(some.opens, numbers, -1))
        here, before = (~some.opens & (opener >= 0)), opener < 0
        openers = opener[here]
        same = some.end[here] == some.end[openers]
        same &= _equal(
            payload, some.place[here], take(payload, some.place[openers]), numbers[: len(same)]
        )
        reasons[here] = np.where(same, Reason.KNOWN.code, Reason.OTHER_EVENT.code)
        first = np.zeros(int(before.sum()), np.int64)
        same = some.end[before] == self.end[first]
        same &= _equal(payload, some.place[before], self.payload, first)
        reasons[before] = np.where(same, Reason.KNOWN.code, Reason.OTHER_EVENT.code)
        self.compares += len(openers) + len(first)
        if len(some) and opener[-1] >= 0:
            self.payload = take(payload, some.place[opener[-1:]])
            self.end = some.end[opener[-1:]]
        return reasons

    def check(self) -> None:
        """Assert what must always hold."""
        assert len(self.end) <= 1, repr(self)
        if self.payload.num_columns:
            assert self.payload.num_rows == len(self.end), repr(self)


def _equal(payload: pa.Table, places: Ints, other: pa.Table, rows: Ints) -> Mask:
    if not len(rows):
        return np.ones(0, np.bool_)
    return equal_rows(take(payload, places), np.arange(len(rows)), other, rows)
