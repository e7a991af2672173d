"""Test streams: a true history, and replicas that tell it in different, valid ways.

A `Workload` is a frozen spec; everything drawn from it is a function of its fields, so the same
spec gives the same elements.  Whatever is asked for, three things hold:

* every prefix of every replica is a valid physical stream;
* the history of a replica is the true one, less the events that its gaps leave out;
* the cheapest merge case that the replicas permit together is the one asked for, not a cheaper
  one.  What makes that impossible is a `UsageError`.

Elements have the payload columns `value` (0 to 400) and `data` (a string of `payload_bytes`).

Papers: LMerge VI-B; revisions, phantoms, gaps and duplicates go beyond it.

>>> workload = Workload(events=3, replicas=1, case=MergeCase.R0, payload_bytes=2, seed=1)
>>> workload.history().column_names
['start', 'end', 'value', 'data']
"""

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.codec import encode
from anabranch.batch.schema import END, START, ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.sources.asked import check_asked
from anabranch.sources.letters import texts
from anabranch.sources.present import NO_EVENT, Presentation, missing, present
from anabranch.sources.truth import PHANTOMS, Truth, draw

PAYLOAD: Final = pa.schema({"value": pa.int64(), "data": pa.string()})
ACTIVE: Final = 10_000
"""Events alive at any time, on average, unless a duration is given: as in the paper."""

CHUNK_ROWS: Final = 65_536
CHUNK_BYTES: Final = 2**26
"""How many rows, and bytes of `data`, are built at a time."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What to generate; `None` means what fits the case (see the properties below)."""

    case: MergeCase = MergeCase.R3
    events: int = 10_000
    replicas: int = 3
    disorder: float | None = None
    revisions: float | None = None
    duplicates: float | None = None
    stable_freq: float = 0.01
    duration: int | None = None
    max_gap: int = 20
    bound: int | None = None
    gap_rate: float = 0.0
    payload_bytes: int = 100
    open: bool = False
    time: TimeType = TimeType.BIGINT
    first: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_asked(self)

    @property
    def disorder_share(self) -> float:
        """Chance that an event is told after others that start later: 0.2 for R3 and R4."""
        return self._by_case(self.disorder, 0.2)

    @property
    def revision_share(self) -> float:
        """Chance that the first end told of an event is not the true one: 0.1 for R3 and R4."""
        return self._by_case(self.revisions, 0.1)

    @property
    def duplicate_share(self) -> float:
        """Chance that an event has the identity of the one before it: 0.1 for R4, else 0."""
        return 0.1 if self.duplicates is None else self.duplicates

    def _by_case(self, given: float | None, otherwise: float) -> float:
        loose = self.case in (MergeCase.R3, MergeCase.R4)
        return given if given is not None else otherwise * loose

    @property
    def lifetime(self) -> int:
        """How long events last: for 10,000 of them (or a tenth of all, if less) to be alive."""
        if self.duration is not None:
            return self.duration
        return max(1, min(ACTIVE, self.events // 10) * self.max_gap // 2)

    @property
    def reach(self) -> int:
        """How much application time an element may come late: about 50 elements."""
        return self.bound if self.bound is not None else max(2, 25 * self.max_gap)

    @property
    def phantoms(self) -> int:
        """How many events are told and taken back; each replica shows about half of them."""
        return ceil(self.events * self.revision_share * PHANTOMS)

    @property
    def schema(self) -> ElementSchema:
        """The columns of the elements."""
        return ElementSchema(self.time, PAYLOAD, has_seq=True)

    @property
    def properties(self) -> StreamProperties:
        """What every replica promises: enough for `case`, and not for a cheaper one."""
        in_order = self.case in (MergeCase.R0, MergeCase.R1, MergeCase.R2)
        return StreamProperties(
            insert_only=self.revision_share == 0,
            ordered=in_order,
            strictly_increasing=self.case is MergeCase.R0,
            ties_in_same_order=self.case is MergeCase.R1,
            keyed=self.case is not MergeCase.R4,
        )

    @cached_property
    def truth(self) -> Truth:
        """Events and phantoms, drawn once."""
        return draw(self)

    def history(self, *, replica: int | None = None) -> pa.Table:
        """The true history; or what this replica tells of it (all, unless it has gaps)."""
        truth = self.truth
        rows = truth.events
        if replica is not None:
            rows = rows[~missing(self, truth, self._number(replica))[rows]]
        return pa.concat_tables([self._events(part) for part in self._chunks(rows)])

    def present(self, replica: int) -> Presentation:
        """The elements of a replica as plain columns, without payload."""
        return present(self, self.truth, self._number(replica))

    def replica(self, replica: int) -> pa.Table:
        """The elements of a replica, in order, in the element format."""
        return self.part(self.present(replica), slice(None))

    def part(self, told: Presentation, rows: slice) -> pa.Table:
        """These rows of a presentation, in the element format."""
        seq = np.arange(len(told))[rows]
        # An Arrow string array holds less than 2 GiB: wide payloads go in several chunks.
        return pa.concat_tables([self._elements(told, part) for part in self._chunks(seq)])

    def _number(self, replica: int) -> int:
        if not 0 <= replica < self.replicas:
            message = f"no replica {replica}; this workload has {self.replicas}, from 0"
            raise UsageError(message)
        return replica

    def _chunks(self, rows: Ints) -> list[Ints]:
        size = min(CHUNK_ROWS, max(1, CHUNK_BYTES // (1 + self.payload_bytes)))
        return [rows[at : at + size] for at in range(0, max(1, len(rows)), size)]

    def _payload(self, rows: Ints) -> pa.Table:
        known = rows != NO_EVENT
        identity = np.where(known, self.truth.identity[rows], NO_EVENT)
        value = to_arrow(self.truth.value[rows], pa.int64(), mask=known)
        data = texts(identity, width=self.payload_bytes, seed=self.seed)
        return pa.Table.from_arrays([value, data], schema=PAYLOAD)

    def _elements(self, told: Presentation, seq: Ints) -> pa.Table:
        payload = self._payload(told.row[seq])
        times = (told.start[seq], told.end[seq], told.old_end[seq])
        return encode(Batch(self.schema, told.kind[seq], *times, payload, seq))

    def _events(self, rows: Ints) -> pa.Table:
        start, end = self.truth.start[rows], self.truth.end[rows]
        table = self._payload(rows)
        times = self.time.arrow
        table = table.add_column(0, START, to_arrow(start, times))
        return table.add_column(1, END, to_arrow(end, times, mask=end != FOREVER_UNITS))
