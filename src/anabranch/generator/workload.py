"""Test streams: a true history, and replicas that present it in different, valid ways.

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
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints
from anabranch.batch.buffers import pack_bits, to_arrow
from anabranch.batch.codec import encode
from anabranch.batch.schema import END, START, ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.generator.present import NO_EVENT, Presentation, missing, present
from anabranch.generator.truth import PHANTOMS, Truth, draw
from anabranch.model.properties import MergeCase, StreamProperties

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
        """Chance that an event comes after others that start later: 0.2 for R3 and R4."""
        return self._by_case(self.disorder, 0.2)

    @property
    def revision_share(self) -> float:
        """Chance that the first end of an event is not the true one: 0.1 for R3 and R4."""
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
        """How many events appear and are removed; each replica has about half of them."""
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
        """The true history; or this replica's part of it (all, unless it has gaps)."""
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

    def part(self, stream: Presentation, rows: slice) -> pa.Table:
        """These rows of a presentation, in the element format."""
        seq = np.arange(len(stream))[rows]
        # An Arrow string array holds less than 2 GiB: wide payloads go in several chunks.
        return pa.concat_tables([self._elements(stream, part) for part in self._chunks(seq)])

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

    def _elements(self, stream: Presentation, seq: Ints) -> pa.Table:
        payload = self._payload(stream.row[seq])
        times = (stream.start[seq], stream.end[seq], stream.old_end[seq])
        return encode(Batch(self.schema, stream.kind[seq], *times, payload, seq))

    def _events(self, rows: Ints) -> pa.Table:
        start, end = self.truth.start[rows], self.truth.end[rows]
        table = self._payload(rows)
        times = self.time.arrow
        table = table.add_column(0, START, to_arrow(start, times))
        return table.add_column(1, END, to_arrow(end, times, mask=end != FOREVER_UNITS))


IN_ORDER = (MergeCase.R0, MergeCase.R1, MergeCase.R2)
LONGEST = 2**60


def check_asked(workload: Workload) -> None:
    """Every number within its range, and no two options against each other.

    Nothing is silently changed to fit: a `UsageError` names both options.
    """
    _check_ranges(workload)
    _check_shares(workload)
    _check_case_options(workload)
    _check_case_is_possible(workload)


def _refuse(message: str) -> None:
    raise UsageError(message)


def _check_ranges(workload: Workload) -> None:
    least = {
        "events": (workload.events, 1),
        "replicas": (workload.replicas, 1),
        "duration": (workload.lifetime, 1),
        "max-gap": (workload.max_gap, 1 if workload.case is MergeCase.R0 else 0),
        "bound": (workload.reach, 1),
        "payload-bytes": (workload.payload_bytes, 0),
        "seed": (workload.seed, 0),
    }
    for name, (value, minimum) in least.items():
        if value < minimum:
            case = f" for case {workload.case.value}" if name == "max-gap" else ""
            _refuse(f"--{name} is {value}; it must be at least {minimum}{case}")
    if workload.payload_bytes > 2**15 - 1:
        _refuse(f"--payload-bytes is {workload.payload_bytes}; it must be at most {2**15 - 1}")
    span = workload.events * workload.max_gap + 2 * workload.lifetime + workload.reach
    if abs(workload.first) + span >= LONGEST:
        _refuse(
            f"{workload.events} events with --max-gap {workload.max_gap} and --duration "
            f"{workload.lifetime} do not fit into 64 bit times; make one of them smaller"
        )


def _check_shares(workload: Workload) -> None:
    shares = {
        "disorder": workload.disorder,
        "revisions": workload.revisions,
        "duplicates": workload.duplicates,
        "gap-rate": workload.gap_rate,
    }
    for name, share in shares.items():
        if share is not None and not 0 <= share <= 1:
            _refuse(f"--{name} is {share}; it is a share, from 0 to 1")
    if not 0 <= workload.stable_freq <= 0.5:
        _refuse(
            f"--stable-freq is {workload.stable_freq}; it must be from 0 to 0.5, since there "
            "is an insert between any two stables"
        )


def _check_case_options(workload: Workload) -> None:
    case = workload.case
    if case in IN_ORDER:
        for name, share in (("disorder", workload.disorder), ("revisions", workload.revisions)):
            if share:
                _refuse(
                    f"--case {case.value} and --{name} {share} contradict each other: such "
                    f"streams are in order and have only inserts; drop --{name}, or ask for "
                    "--case r3"
                )
    if workload.duplicates is not None and case is not MergeCase.R4:
        _refuse(
            f"--case {case.value} and --duplicates {workload.duplicates} contradict each "
            "other: only r4 repeats an identity; drop --duplicates, or ask for --case r4"
        )
    if workload.gap_rate and case is MergeCase.R1:
        _refuse(
            f"--case r1 and --gap-rate {workload.gap_rate} contradict each other: R1 compares "
            "positions among equal starts, and a gap shifts them; ask for --case r2"
        )
    if workload.gap_rate and workload.replicas == 1:
        _refuse(
            f"--gap-rate {workload.gap_rate} and --replicas 1 contradict each other: the first "
            "replica is complete; ask for more replicas"
        )


def _check_case_is_possible(workload: Workload) -> None:
    case, events = workload.case, workload.events
    need = {MergeCase.R1: 2, MergeCase.R2: 2, MergeCase.R4: 2}.get(case, 1)
    why = (
        "two events with one identity" if case is MergeCase.R4 else "two events with one start"
    )
    if events < need:
        _refuse(
            f"--events {events} cannot show --case {case.value}: it takes {why}; ask for more"
        )
    if case is MergeCase.R2 and workload.replicas < 2:
        _refuse(
            "--replicas 1 cannot show --case r2: it takes two replicas that order equal starts "
            "differently; ask for more, or for --case r1"
        )
    if case not in IN_ORDER and workload.revision_share == 0:
        _check_disorder_is_possible(workload)
    if workload.disorder_share > 0 and workload.reach <= workload.max_gap > 0:
        _refuse(
            f"--bound {workload.reach} and --max-gap {workload.max_gap} leave no room for "
            f"--disorder {workload.disorder_share}: nothing can be overtaken; raise --bound "
            "above --max-gap"
        )


def _check_disorder_is_possible(workload: Workload) -> None:
    """Without revisions, only disorder distinguishes R3 and R4 from a cheaper case."""
    case = workload.case.value
    if workload.disorder_share == 0:
        _refuse(
            f"--case {case} with --disorder 0 and --revisions 0 would be a cheaper case; "
            "raise one of them, or ask for --case r2"
        )
    need = 3 if workload.case is MergeCase.R4 else 2
    if workload.events < need or workload.max_gap == 0:
        _refuse(
            f"--events {workload.events} with --max-gap {workload.max_gap} cannot be in "
            f"disorder, which --case {case} needs without --revisions; it takes {need} events "
            "and a gap"
        )


Words = NDArray[np.uint64]

GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)
LOW_BITS: Final = np.uint64(0x0F0F0F0F0F0F0F0F)
LETTER_A: Final = np.uint64(0x6161616161616161)


def texts(numbers: Ints, *, width: int, seed: int) -> pa.Array:
    """Strings of `width` letters, each a function of a number and the seed; null below 0.

    No table of strings is kept: memory does not grow with the number of events.  Letters are
    `a` to `p`, which no format must escape.

    >>> texts(np.array([7, -1, 7]), width=4, seed=1).to_pylist()
    ['jail', None, 'jail']
    """
    known = numbers >= 0
    names = numbers[known].astype(np.uint64)
    letters = _letters(names, width, seed)
    offsets = np.zeros(len(numbers) + 1, np.int32)
    np.cumsum(known * width, out=offsets[1:])
    buffers = [pack_bits(known), pa.py_buffer(offsets), pa.py_buffer(letters)]
    return pa.Array.from_buffers(pa.string(), len(numbers), buffers)


def _letters(names: Words, width: int, seed: int) -> NDArray[np.uint8]:
    count = -(-width // 8)
    salt = _mix(np.array([seed & (2**64 - 1)], np.uint64) + GOLDEN)
    state = (
        _mix(names * GOLDEN + salt)[:, None] + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN
    )
    words = (_mix(state) & LOW_BITS) + LETTER_A
    # Little-endian on every machine, so that files are the same everywhere.
    letters = words.astype("<u8", copy=False).view(np.uint8)
    return np.ascontiguousarray(letters[:, :width])


def _mix(words: Words) -> Words:
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): every bit depends on every bit."""
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
