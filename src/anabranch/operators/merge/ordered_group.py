"""The events at the current start of the output: what the merges R0, R1 and R2 compare with.

* R0: there is one event; an insert with the same start is a copy of it (`Latest`).
* R1: an event is payload and end; it is emitted when a replica has it more often than the
  output does (`Bag`).
* R2: an event is a payload; it is emitted once, with the end that came first (`Bag`, `keyed`).

Events of R1 and R2 are found by a 128-bit hash, and equal hashes are compared by value
(`batch.intern`); inserts that are alone at their start are not even hashed.

Papers: LMerge IV-A (MaxVs, and the event that has it), IV-B (SameVsCount) and IV-C (the hash
table), with errata L6 and L7: what was emitted (`emitted`) is counted apart from what each
replica brought (`brought`, a column per replica).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.batch.buffers import take, to_arrow
from anabranch.batch.equality import equal_rows
from anabranch.batch.intern import HashPayload, Interner
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.schema import END
from anabranch.batch.store import grown
from anabranch.operators.merge import codes

Counters = NDArray[np.int32]

OPENS: Final = 0
"""An insert that is the first of its start on the output."""
JOINS: Final = 1
"""An insert at the current start, which may be new on the output."""
FINAL: Final = 2
"""An insert at the current start, which is final: it may only be known."""
MOVES: Final = 3
"""A stable; its time stands in place of a row."""

_SPARE: Final = 16
"""Events that were never emitted are dropped when they are most, and this many."""


class Candidates(NamedTuple):
    """The inserts of a step that are at the current start of their moment: payloads decide.

    One row per insert, in order; `what` is OPENS, JOINS or FINAL.  `place` is where the payload
    is, among the payloads of the step.
    """

    what: Codes
    start: Ints
    end: Ints
    replica: Ints
    place: Ints

    @property
    def opens(self) -> Mask:
        """Whether it is the first of its start, and so on the output without a question."""
        mask: Mask = self.what == OPENS
        return mask

    def pick(self, rows: Mask) -> "Candidates":
        """Some of them."""
        times = self.start[rows], self.end[rows]
        return Candidates(self.what[rows], *times, self.replica[rows], self.place[rows])


@dataclass(frozen=True, eq=False)
class Payloads:
    """The payloads of a step where they are: tables of one schema, at least one.

    Places count through the tables, one after the other.  Places that increase, as nearly
    always, are taken table by table, and those that lie side by side are not copied at all;
    Arrow would first copy all tables into one.
    """

    tables: Sequence[pa.Table]

    def take(self, places: Ints) -> pa.Table:
        """The payloads at these places, in this order."""
        if not len(self.tables[0].schema):
            return self.tables[0]
        if len(places) and (places[1:] < places[:-1]).any():
            return take(pa.concat_tables(self.tables), places)
        return pa.concat_tables(self._take_each(places))

    def _take_each(self, places: Ints) -> list[pa.Table]:
        ends = np.cumsum([table.num_rows for table in self.tables])
        cuts = np.append(0, np.searchsorted(places, ends))
        parts = []
        for table, end, begin, stop in zip(self.tables, ends, cuts, cuts[1:], strict=False):
            if begin == stop:
                continue
            rows = places[begin:stop] - (end - table.num_rows)
            if rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
                parts.append(table.slice(int(rows[0]), len(rows)))
            else:
                parts.append(take(table, rows))
        return parts or [self.tables[0].slice(0, 0)]


@dataclass(eq=False)
class Latest:
    """The last event of the output, or none: all that R0 remembers of events.

    An insert with the same start is a copy of it, by value, or contradicts it.  Nothing is
    hashed.
    """

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
        reasons = np.full(len(some.what), codes.FIRST, np.int8)
        openers, others = np.flatnonzero(some.opens), np.flatnonzero(~some.opens)
        self.compares += len(others)
        if len(others):
            # The last that opened a start before each; 0 is the event of the step before.
            opener = np.searchsorted(openers, others)
            places = np.append(0, len(self) + some.place[openers])[opener]
            ends = np.append(self.end if len(self) else 0, some.end[openers])[opener]
            theirs = Payloads([self.payload, *payloads.tables]).take(places)
            ours, rows = payloads.take(some.place[others]), np.arange(len(others))
            same = (some.end[others] == ends) & equal_rows(ours, rows, theirs, rows)
            reasons[others] = np.where(same, codes.KNOWN, codes.OTHER_EVENT)
        if len(openers):
            self.payload = payloads.take(some.place[openers[-1:]]).combine_chunks()
            self.end = some.end[openers[-1:]]
        return reasons

    def check(self) -> None:
        """Assert what must always hold."""
        assert len(self.end) <= 1, repr(self)
        if self.payload.num_columns:
            assert self.payload.num_rows == len(self.end), repr(self)


class Bag:
    """The state of R1 and R2: the events, how often emitted, how often by each replica.

    Row i of each array is the i-th event; the arrays may be longer than there are events.  The
    table lives on from step to step while the current start stays: a step costs what its own
    elements do, however many events there are at the current start.

    `hash_payload` is for tests.
    """

    def __init__(
        self,
        schema: pa.Schema,
        *,
        keyed: bool,
        replicas: int = 0,
        hash_payload: HashPayload | None = None,
    ) -> None:
        self.keyed = keyed
        self._schema = schema if keyed else schema.append(pa.field(END, pa.int64()))
        self._hash_payload = hash_payload
        self._names = self._nothing()
        self._end: Ints = np.empty(0, np.int64)
        self._emitted: Counters = np.empty(0, np.int32)
        self._brought: Counters = np.empty((0, replicas), np.int32)
        self._shown = 0
        self.probes = self.compares = 0

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return (
            f"Bag({len(self)} events, emitted {self.emitted}, brought {self.brought.tolist()})"
        )

    @property
    def end(self) -> Ints:
        """The end of each event."""
        return self._end[: len(self)]

    @property
    def emitted(self) -> Counters:
        """How often each event is on the output."""
        return self._emitted[: len(self)]

    @property
    def brought(self) -> Counters:
        """How often each replica has brought each event."""
        return self._brought[: len(self)]

    @property
    def payload(self) -> pa.Table:
        """The payload of each event."""
        table = self._names.payload
        return table if self.keyed else table.drop_columns([END])

    def restore(
        self, start: int, payload: pa.Table, end: Ints, emitted: Counters, brought: Counters
    ) -> None:
        """Take over what another bag had."""
        self._names = self._nothing()
        self._names.intern(np.full(len(end), start), self._keys(payload, end))
        self._end, self._emitted, self._brought = end, emitted, brought
        self._shown = int(np.count_nonzero(emitted))

    def attach(self) -> None:
        """One more replica, which has brought nothing (erratum L7)."""
        nothing = np.zeros((len(self._brought), 1), np.int32)
        self._brought = np.concatenate([self._brought, nothing], axis=1)

    def detach(self, replica: int) -> None:
        """Forget what this replica brought, not what was emitted (erratum L7)."""
        self._brought = np.delete(self._brought, replica, axis=1)

    def settle(self, some: Candidates, payloads: Payloads) -> Codes:
        """The reason of each; `payloads` are those of the step."""
        reasons = np.full(len(some.what), codes.FIRST, np.int8)
        if not len(reasons):
            return reasons
        # The number of the start of each; 0 is the start that was current before the step.
        run = np.cumsum(some.opens)
        if run[0]:
            self._names, self._shown = self._nothing(), 0
        known = len(self)
        sizes = np.bincount(run)
        asked = (sizes[run] > 1) | (run == 0) | (run == run[-1])
        some, run = some.pick(asked), run[asked]
        self._make_room(max(known + int(sizes[0]), int(sizes.max())))
        keys = self._keys(payloads.take(some.place), some.end)
        ids = self._intern(some.start, keys)
        decided = np.empty(len(ids), np.int8)
        base, self._shown = count(
            frozen(ids),
            frozen(run),
            frozen(some.what),
            frozen(some.end),
            frozen(some.replica),
            (self._end, self._emitted, self._brought),
            (known, self._shown, self.keyed),
            decided,
        )
        reasons[asked] = decided
        if base:
            self._keep_last(some.start, keys, int(np.searchsorted(run, run[-1])))
        self._drop_idle(int(some.start[-1]))
        return reasons

    def check(self) -> None:
        """Assert what must always hold."""
        self._names.check()
        rows = (len(self._end), len(self._emitted), len(self._brought))
        assert len(set(rows)) == 1, f"rows of ends, emitted and brought differ: {rows}"
        assert rows[0] >= len(self), f"{rows[0]} rows < {len(self)} events"
        shown = np.count_nonzero(self.emitted)
        assert shown == self._shown, f"{shown} events emitted, counted {self._shown}"
        more = (self.brought > self.emitted[:, None]).any(axis=1)
        assert not more.any(), f"brought {self.brought[more]} > emitted {self.emitted[more]}"
        assert (self.brought >= 0).all(), f"brought {self.brought.min()} < 0"
        most = self.emitted.max(initial=0)
        assert not self.keyed or most <= 1, f"keyed, but an event was emitted {most} times"

    def _nothing(self) -> Interner:
        return Interner(self._schema, hash_payload=self._hash_payload)

    def _keys(self, payload: pa.Table, end: Ints) -> pa.Table:
        """What identifies an event: the payload and, unless that is the key, the end."""
        if self.keyed:
            return payload
        return pa.Table.from_arrays(
            [*payload.columns, to_arrow(end, pa.int64())], schema=self._schema
        )

    def _intern(self, start: Ints, keys: pa.Table) -> Ints:
        """The number of each one's event."""
        known = len(self)
        ids = self._names.intern(start, keys)
        self.probes += len(ids)
        self.compares += len(ids) - (len(self) - known)
        return ids

    def _make_room(self, events: int) -> None:
        self._end = grown(self._end, events)
        self._emitted = grown(self._emitted, events)
        self._brought = grown(self._brought, events)

    def _keep_last(self, start: Ints, keys: pa.Table, first: int) -> None:
        """Of the names, only those of the last start: of the inserts from `first` on."""
        self._names = self._nothing()
        self._intern(start[first:], keys.slice(first))

    def _drop_idle(self, start: int) -> None:
        """Of the events, not too many that were never emitted."""
        if len(self) > 2 * self._shown + _SPARE:
            emitted = np.flatnonzero(self.emitted)
            columns = self._end[emitted], self._emitted[emitted], self._brought[emitted]
            self.probes += len(emitted)
            self.restore(start, take(self.payload, emitted), *columns)


@kernel
def count(
    ids: Ints,
    run: Ints,
    what: Codes,
    end: Ints,
    replica: Ints,
    bag: tuple[Ints, Counters, Counters],
    before: tuple[int, int, bool],
    reasons: Codes,
) -> tuple[int, int]:
    """The reason of each insert; the bag is that of the last start afterwards.

    Ids continue from start to start, the bag's rows begin at 0; so a row is cleared when its id
    is seen for the first time.  Returns the first id of the last start, and how many of its
    events are emitted.
    """
    ends, emitted, brought = bag
    used, shown, keyed = before
    base = 0
    for k in range(ids.size):
        # The next start: ids continue, the bag begins again at row 0.
        if k > 0 and run[k] != run[k - 1]:
            base += used
            used, shown = 0, 0
        event, by = ids[k] - base, replica[k]
        if event == used:
            used += 1
            ends[event], emitted[event] = end[k], 0
            brought[event, :] = 0
        if keyed and brought[event, by] > 0:
            reasons[k] = codes.SECOND_INSERT
        # A copy of an event that others have brought; each replica is counted apart (L6).
        elif brought[event, by] < emitted[event]:
            brought[event, by] += 1
            reasons[k] = codes.KNOWN if ends[event] == end[k] else codes.OTHER_EVENT
        elif what[k] == FINAL:
            reasons[k] = codes.LATE
        else:
            shown += emitted[event] == 0
            brought[event, by] += 1
            emitted[event] += 1
            reasons[k] = codes.FIRST
    return base, shown
