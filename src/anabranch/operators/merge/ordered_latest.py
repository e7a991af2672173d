"""The one event at the current start of the output: all that R0 remembers of events.

An insert with the same start is a copy of it, by value, or contradicts it.  Nothing is hashed.

Papers: LMerge IV-A (MaxVs, and the event that has it).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.batch.equality import equal_rows
from anabranch.operators.contract import Reason
from anabranch.operators.merge.ordered_candidates import Candidates
from anabranch.operators.merge.ordered_payloads import Payloads


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

    def settle(self, some: Candidates, payloads: Payloads) -> Codes:
        """The reason of each; `payloads` are those of the step."""
        reasons = np.full(len(some), Reason.FIRST.code, np.int8)
        openers, others = np.flatnonzero(some.opens), np.flatnonzero(~some.opens)
        # The last that opened a start before each; -1 is the event of the step before.
        opener = np.searchsorted(openers, others) - 1
        before, here = others[opener < 0], others[opener >= 0]
        first = np.zeros(len(before), np.int64)
        same = self._same(some, payloads, before, self.payload, self.end[first], first)
        reasons[before[same]] = Reason.KNOWN.code
        reasons[before[~same]] = Reason.OTHER_EVENT.code
        partner = openers[opener[opener >= 0]]
        theirs = payloads.take(some.place[partner])
        numbers = np.arange(len(here))
        same = self._same(some, payloads, here, theirs, some.end[partner], numbers)
        reasons[here[same]] = Reason.KNOWN.code
        reasons[here[~same]] = Reason.OTHER_EVENT.code
        if len(openers):
            self.payload = payloads.take(some.place[openers[-1:]]).combine_chunks()
            self.end = some.end[openers[-1:]]
        return reasons

    def check(self) -> None:
        """Assert what must always hold."""
        assert len(self.end) <= 1, repr(self)
        if self.payload.num_columns:
            assert self.payload.num_rows == len(self.end), repr(self)

    def _same(
        self,
        some: Candidates,
        payloads: Payloads,
        ours: Ints,
        theirs: pa.Table,
        end: Ints,
        rows: Ints,
    ) -> Mask:
        """Which of our inserts are the events with these ends, in these rows of a table."""
        self.compares += len(ours)
        if not len(ours):
            return np.ones(0, np.bool_)
        payload = payloads.take(some.place[ours])
        same: Mask = some.end[ours] == end
        return same & equal_rows(payload, np.arange(len(ours)), theirs, rows)
