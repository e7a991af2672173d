"""The events at the current start of the output, and who brought them: R1 and R2.

* R1: an event is payload and end; it is emitted when a replica has it more often than the
  output does.
* R2 (`keyed`): an event is a payload; it is emitted once, with the end that came first.

Events are found by a 128-bit hash, and equal hashes are told apart by value (`batch.intern`);
inserts that are alone at their start are not even hashed.  The table lives on from step to step
while the current start stays: a step costs what its own elements do, however many events there
are at the current start.

Papers: LMerge IV-B (SameVsCount) and IV-C (the hash table), with errata L6 and L7: what was
emitted (`emitted`) is counted apart from what each replica said (`said`, a column per replica).
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Codes, Ints
from anabranch.batch.buffers import take, to_arrow
from anabranch.batch.intern import HashPayload, Interner
from anabranch.batch.kernel import frozen, kernel
from anabranch.batch.schema import END
from anabranch.batch.store import grown
from anabranch.operators.contract import Reason
from anabranch.operators.merge.ordered_candidates import Candidates
from anabranch.operators.merge.ordered_payloads import Payloads
from anabranch.operators.merge.ordered_scan import FINAL

Counters = NDArray[np.int32]

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_LATE: Final = Reason.LATE.code
_SECOND_INSERT: Final = Reason.SECOND_INSERT.code
_OTHER_EVENT: Final = Reason.OTHER_EVENT.code

_SPARE: Final = 16
"""Events that were asked for and never emitted are let go when they are most, and this many."""


class Bag:
    """Row i of each array is the i-th event; the arrays may be longer than there are events.

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
        self._said: Counters = np.empty((0, replicas), np.int32)
        self._shown = 0
        self.probes = self.compares = 0

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"Bag({len(self)} events, emitted {self.emitted}, said {self.said.tolist()})"

    @property
    def end(self) -> Ints:
        """The end of each event."""
        return self._end[: len(self)]

    @property
    def emitted(self) -> Counters:
        """How often each event is on the output."""
        return self._emitted[: len(self)]

    @property
    def said(self) -> Counters:
        """How often each replica has brought each event."""
        return self._said[: len(self)]

    @property
    def payload(self) -> pa.Table:
        """The payload of each event."""
        table = self._names.payload
        return table if self.keyed else table.drop_columns([END])

    def restore(
        self, start: int, payload: pa.Table, end: Ints, emitted: Counters, said: Counters
    ) -> None:
        """Take over what another bag had."""
        self._names = self._nothing()
        self._names.intern(np.full(len(end), start), self._keys(payload, end))
        self._end, self._emitted, self._said = end, emitted, said
        self._shown = int(np.count_nonzero(emitted))

    def attach(self) -> None:
        """One more replica, which has said nothing (erratum L7)."""
        nothing = np.zeros((len(self._said), 1), np.int32)
        self._said = np.concatenate([self._said, nothing], axis=1)

    def detach(self, replica: int) -> None:
        """Forget what this replica said, not what was emitted (erratum L7)."""
        self._said = np.delete(self._said, replica, axis=1)

    def settle(self, some: Candidates, payloads: Payloads) -> Codes:
        """The reason of each; `payloads` are those of the step."""
        reasons = np.full(len(some), _FIRST, np.int8)
        if not len(some):
            return reasons
        run = some.run
        if run[0]:
            self._names, self._shown = self._nothing(), 0
        known = len(self)
        sizes = np.bincount(run)
        asked = (sizes[run] > 1) | (run == 0) | (run == run[-1])
        some, run = some.pick(asked), run[asked]
        self._make_room(max(known + int(sizes[0]), int(sizes.max())))
        ids = self._intern(some, payloads)
        told = np.empty(len(ids), np.int8)
        base, self._shown = count(
            frozen(ids),
            frozen(run),
            frozen(some.what),
            frozen(some.end),
            frozen(some.replica),
            (self._end, self._emitted, self._said),
            (known, self._shown, self.keyed),
            told,
        )
        reasons[asked] = told
        self._keep_last(some, run, payloads, base)
        return reasons

    def check(self) -> None:
        """Assert what must always hold."""
        self._names.check()
        assert len(self._end) == len(self._emitted) == len(self._said) >= len(self), repr(self)
        assert np.count_nonzero(self.emitted) == self._shown, repr(self)
        assert (self.said <= self.emitted[:, None]).all(), f"said, but not emitted: {self!r}"
        assert (self.said >= 0).all(), repr(self)
        assert not self.keyed or (self.emitted <= 1).all(), f"an event twice: {self!r}"

    def _nothing(self) -> Interner:
        return Interner(self._schema, hash_payload=self._hash_payload)

    def _keys(self, payload: pa.Table, end: Ints) -> pa.Table:
        """What tells events apart: the payload and, unless that is the key, the end."""
        if self.keyed:
            return payload
        return pa.Table.from_arrays(
            [*payload.columns, to_arrow(end, pa.int64())], schema=self._schema
        )

    def _intern(self, some: Candidates, payloads: Payloads) -> Ints:
        """The number of each one's event; those of the last start of a step are asked twice."""
        known = len(self)
        ids = self._names.intern(some.start, self._keys(payloads.take(some.place), some.end))
        self.probes += len(ids)
        self.compares += len(ids) - (len(self) - known)
        return ids

    def _make_room(self, events: int) -> None:
        self._end = grown(self._end, events)
        self._emitted = grown(self._emitted, events)
        self._said = grown(self._said, events)

    def _keep_last(self, some: Candidates, run: Ints, payloads: Payloads, base: int) -> None:
        """Of the names, only those of the last start; of those, not too many idle ones."""
        if base:
            last = some.pick(run == run[-1])
            self._names = self._nothing()
            self._intern(last, payloads)
        if len(self) > 2 * self._shown + _SPARE:
            emitted = np.flatnonzero(self.emitted)
            columns = self._end[emitted], self._emitted[emitted], self._said[emitted]
            self.probes += len(emitted)
            self.restore(int(some.start[-1]), take(self.payload, emitted), *columns)


@kernel
def count(
    ids: Any,
    run: Any,
    what: Any,
    end: Any,
    replica: Any,
    bag: Any,
    before: Any,
    reasons: Any,
) -> Any:
    """The reason of each insert; the bag is that of the last start afterwards.

    Ids count on from start to start, the bag's rows begin anew; so a row is cleared when its id
    is seen for the first time.  Returns the first id of the last start, and how many of its
    events are emitted.
    """
    ends, emitted, said = bag
    used, shown, keyed = before
    base = 0
    for k in range(ids.size):
        if k > 0 and run[k] != run[k - 1]:
            base += used
            used, shown = 0, 0
        event, by = ids[k] - base, replica[k]
        if event == used:
            used += 1
            ends[event], emitted[event] = end[k], 0
            said[event, :] = 0
        if keyed and said[event, by] > 0:
            reasons[k] = _SECOND_INSERT
        elif said[event, by] < emitted[event]:
            said[event, by] += 1
            reasons[k] = _KNOWN if ends[event] == end[k] else _OTHER_EVENT
        elif what[k] == FINAL:
            reasons[k] = _LATE
        else:
            shown += emitted[event] == 0
            said[event, by] += 1
            emitted[event] += 1
            reasons[k] = _FIRST
    return base, shown
