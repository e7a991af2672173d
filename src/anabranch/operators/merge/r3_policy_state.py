"""What merge R3 with a policy remembers for one lane.

* Per event that may still change on the output: a row of numbers and one payload (`nodes`), and
  which inserts of it are held back (`book`).
* Per replica: its attachment, guarantee, frontier and last seq (`members`), and what policies
  need beside (`control`).
* Per event that is final but that a replica may still mention: its name (`settled`).
* The policy, whom it asks at the moment, who was expelled, and which times may be wrong.

`attach` and `detach` may change the output, since another replica may lead then: they return
the change, which is to be written like that of a step.  A step attaches the replicas that are
new in it first, and what that changes is part of its output.

Papers: LMerge IV-D, in2t; V-A, V-B.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.contract import Granularity, StepResult
from anabranch.operators.merge.members import Members, ReplicaStatus
from anabranch.operators.merge.policy import DEFAULT, Follow, FollowLeader, Policy
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BORN,
    CONFLICT,
    ENDS,
    FLAGS,
    OUT,
    SHOWN,
    Nodes,
)
from anabranch.operators.merge.r3_policy_table import (
    ALL,
    ATTACHED,
    CHOSEN,
    CONFLICTS,
    CONTROL_COLUMNS,
    EVENTS,
    FOLLOWED,
    FREE,
    FRONTIER,
    GUARANTEE,
    HEAD,
    HEAPED,
    HELD,
    HIGHEST,
    KEY,
    LAST_SEQ,
    LISTED,
    NEXT,
    NUMBERS,
    OUTPUT,
    PLACE,
    PREVIOUS,
    PROMOTED,
    RANK,
    SERIAL,
    SILENT,
    SLOWEST,
    SURE,
    TAIL,
    VIEW_FRONTIER,
    VISITS,
    WAITING,
    WAITS,
    WITHDRAWN,
    lagging,
)
from anabranch.operators.merge.r3_state import Work
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.slots import NOBODY, START
from anabranch.operators.state_parts import Saved


def first_numbers() -> Ints:
    """The numbers of a merge to which nothing has happened."""
    numbers = np.zeros(NUMBERS, np.int64)
    numbers[[OUTPUT, SURE, VIEW_FRONTIER]] = NEVER_UNITS
    numbers[[HEAD, TAIL, HEAD + WAITING, TAIL + WAITING, FOLLOWED, CHOSEN]] = NOBODY
    numbers[SLOWEST] = FOREVER_UNITS
    return numbers


@dataclass(eq=False)
class R3PolicyState:
    """The state of one lane; `r3_policy_kernel.step` changes it in place."""

    schema: ElementSchema
    policy: Policy
    members: Members
    nodes: Nodes
    settled: Settled
    book: Ints
    heap: Ints
    control: Ints
    numbers: Ints
    expelled: dict[str, int] = field(default_factory=dict)
    mark: int = 0
    elements: int = 0
    is_broken: bool = False

    @classmethod
    def empty(cls, schema: ElementSchema, *, policy: Policy = DEFAULT) -> "R3PolicyState":
        """Nobody is attached and nothing has happened."""
        plain = replace(schema, has_seq=False, has_replica=False)
        return cls(
            plain,
            policy,
            Members.none(),
            Nodes(plain.payload),
            Settled(),
            np.empty((0, HELD), np.int64),
            np.empty(0, np.int64),
            np.empty((0, CONTROL_COLUMNS), np.int64),
            first_numbers(),
        )

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return int(self.numbers[OUTPUT])

    @property
    def conflicts(self) -> int:
        """How many promised events a deciding replica has denied."""
        return int(self.numbers[CONFLICTS])

    @property
    def live(self) -> int:
        """How many events may still change."""
        return self.nodes.live

    @property
    def pending(self) -> int:
        """How many inserts are held back."""
        return int((self.book[self.nodes.living(), HELD::2] != NOBODY).sum())

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """Who is attached, in order, with frontier and whether its stables count."""
        return self.members.status(self.frontier)

    @property
    def alarm(self) -> Alarm | None:
        """Set while replicas are attached and none of them can move the output (D5)."""
        return self.members.alarm(self.frontier)

    @property
    def stretches(self) -> tuple[Stretch, ...]:
        """Times at which the output may be wrong, because a replica had to be promoted."""
        return tuple(self.members.stretches)

    @property
    def work(self) -> Work:
        """What the steps cost so far; `visits` are also those of changes of view."""
        probes = self.nodes.slots.probes + self.settled.probes
        return Work(self.elements, probes, int(self.numbers[VISITS]), 0)

    @property
    def nbytes(self) -> int:
        """What everything but the payloads takes."""
        own = self.book.nbytes + self.heap.nbytes
        return self.nodes.nbytes + own + self.settled.nbytes

    def attach(
        self,
        name: str,
        *,
        attachment: int = 1,
        guarantee: int | None = None,
        granularity: Granularity = "batch",
    ) -> StepResult:
        """Let a replica take part, or replace its old attachment by a new one."""
        from anabranch.operators.merge.r3_policy_pass import Pass

        one = Pass(self)
        one.require_attachment(name, attachment)
        one.attach(name, attachment=attachment, guarantee=guarantee)
        return one.finish(granularity)

    def detach(self, name: str, *, granularity: Granularity = "batch") -> StepResult:
        """Forget what a replica said; what it brought to the output stays."""
        from anabranch.operators.merge.r3_policy_pass import Pass

        self.members.row_of(name, "detached")
        one = Pass(self)
        one.detach(name)
        return one.finish(granularity)

    def tell(self, name: str, guarantee: int | None) -> StepResult:
        """A replica has this guarantee from now on; what that changes on the output."""
        from anabranch.operators.merge.r3_policy_pass import Pass

        self.members.row_of(name, "told a guarantee")
        one = Pass(self)
        one.tell(name, guarantee)
        return one.finish("batch")

    def to_bytes(self) -> bytes:
        """The whole state, versioned; see `r3_policy_codec`."""
        from anabranch.operators.merge.r3_policy_codec import write_state

        return write_state(self)

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> "R3PolicyState":
        """The state that was written; StateError if it is another kind, version or payload."""
        from anabranch.operators.merge.r3_policy_codec import read_state

        return read_state(data, schema)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        from anabranch.operators.merge.r3_policy_parts import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "R3PolicyState":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.r3_policy_parts import read_parts

        return read_parts(parts, schema)

    def by_rank(self) -> Ints:
        """The numbers of all nodes, in the order in which the merge came to know them."""
        ids = self.nodes.living()
        order: Ints = ids[np.argsort(self.nodes.rows[ids, BORN])]
        return order

    def restored(self) -> "R3PolicyState":
        """The same, with everything that follows from what was written."""
        ids = self.by_rank()
        rows, numbers = self.nodes.rows, self.numbers
        rows[ids, SHOWN] = rows[ids, OUT]
        waits = ids[(rows[ids, OUT] == ABSENT) & (rows[ids, FLAGS] & WITHDRAWN == 0)]
        rows[waits, FLAGS] |= WAITS
        self._line_up(ALL, ids)
        self._line_up(WAITING, waits)
        keys = self._keys(ids)
        order = np.argsort(keys, kind="stable")
        # What is sorted is a heap.
        self.heap = np.empty(len(self.book), np.int64)
        self.heap[: len(ids)] = ids[order]
        self.book[ids, KEY] = keys
        self.book[ids[order], PLACE] = np.arange(len(ids))
        numbers[EVENTS] = numbers[HEAPED] = len(ids)
        numbers[SLOWEST] = self.members.slowest
        self.control[:, FREE], self.control[:, SILENT] = self._free(), self.silent()
        return self

    def _line_up(self, row: int, ids: Ints) -> None:
        self.book[ids, NEXT + row] = np.append(ids[1:], NOBODY)[: len(ids)]
        self.book[ids, PREVIOUS + row] = np.append(NOBODY, ids[:-1])[: len(ids)]
        ends = (ids[0], ids[-1]) if len(ids) else (NOBODY, NOBODY)
        self.numbers[HEAD + row], self.numbers[TAIL + row] = ends

    def _keys(self, ids: Ints) -> Ints:
        """From when on each of these events matters; see `r3_policy_due`."""
        rows = self.nodes.rows[ids]
        start, said = rows[:, START], rows[:, ENDS:]
        ends = np.where(said > start[:, None], said, FOREVER_UNITS)
        keys = np.minimum(rows[:, OUT], ends.min(axis=1, initial=FOREVER_UNITS))
        return np.where(start >= self.frontier, start, keys)

    def silent(self) -> Ints:
        """Of each replica, how many half frozen events it lacks, that nobody denied."""
        rows = self.nodes.rows[self.nodes.living()]
        open_ = (rows[:, START] < self.frontier) & (rows[:, FLAGS] & CONFLICT == 0)
        lacks: Ints = (rows[:, ENDS:] <= rows[:, [START]])[open_].sum(axis=0)
        return lacks

    def _free(self) -> Ints:
        rows = self.nodes.rows[self.nodes.living()]
        start = rows[:, START]
        has_it = (rows[:, ENDS:] > start[:, None]) & (start >= self.frontier)[:, None]
        free: Ints = has_it.sum(axis=0)
        return free

    def check(self) -> None:
        """Assert what must always hold between steps."""
        assert not self.is_broken, "a violation stopped this merge"
        self.nodes.check()
        ids, count = self.by_rank(), len(self.members)
        rows, book = self.nodes.rows[ids], self.book[ids]
        assert self.nodes.rows.shape[1] == ENDS + count == len(self.control) + ENDS
        assert self.book.shape == (len(self.nodes.rows), HELD + 2 * count), repr(self)
        start, out, born = rows[:, START], rows[:, OUT], rows[:, BORN]
        assert (born != ABSENT).all(), f"an unknown event is kept: {self!r}"
        assert (np.diff(born) > 0).all(), f"a rank twice: {self!r}"
        assert (born < self.numbers[RANK]).all(), f"a rank was not given yet: {self!r}"
        assert (out == rows[:, SHOWN]).all(), f"the output was not told: {self!r}"
        late = np.where(out == ABSENT, start, out) < self.frontier
        assert not late.any(), f"an event was passed by, or a final one was kept: {self!r}"
        held = book[:, HELD::2] != NOBODY
        assert not (held & (out != ABSENT)[:, None]).any(), f"held, and shown: {self!r}"
        assert (rows[:, ENDS:] > start[:, None])[held].all(), f"held nothing: {self!r}"
        mute = (rows[:, ENDS:] == ABSENT).all(axis=1)
        assert not (mute & (out == ABSENT)).any(), f"nobody speaks of an event: {self!r}"
        assert (rows[:, FLAGS] & LISTED == 0).all(), f"a step was not tidied up: {self!r}"
        self._check_rows(ids)
        self._check_members()

    def _check_rows(self, ids: Ints) -> None:
        rows, book, count = self.nodes.rows[ids], self.book[ids], int(self.numbers[HEAPED])
        waits = rows[:, FLAGS] & WAITS != 0
        for row, those in ((ALL, ids), (WAITING, ids[waits])):
            found, node = [], int(self.numbers[HEAD + row])
            while node != NOBODY:
                found.append(node)
                node = int(self.book[node, NEXT + row])
            assert found == those.tolist(), f"out of line: {self!r}"
        hidden = (rows[:, OUT] == ABSENT) & (rows[:, FLAGS] & WITHDRAWN == 0)
        follows = isinstance(self.policy.adjusts, FollowLeader | Follow)
        assert follows or (waits == hidden).all(), f"waits or not: {self!r}"
        assert count == len(ids) == self.numbers[EVENTS], f"miscounted: {self!r}"
        assert (self.heap[book[:, PLACE]] == ids).all(), f"lost on the heap: {self!r}"
        keys = self.book[self.heap[:count], KEY]
        assert (keys[(np.arange(1, count) - 1) // 2] <= keys[1:]).all(), f"no heap: {self!r}"
        assert (book[:, KEY] <= self._keys(ids)).all(), f"will be late: {self!r}"
        assert (self.control[:, FREE] == self._free()).all(), f"free: {self!r}"
        assert (self.control[:, SILENT] == self.silent()).all(), f"silent: {self!r}"

    def _check_members(self) -> None:
        members, control = self.members, self.control
        for column, mine in (
            (members.frontier, FRONTIER),
            (members.guarantee, GUARANTEE),
            (members.last_seq, LAST_SEQ),
            (members.serial, SERIAL),
            (members.promoted, PROMOTED),
        ):
            assert (column == control[:, mine]).all(), f"members differ: {self!r}"
        assert control[:, ATTACHED].all(), f"who left is here: {self!r}"
        joined = members.frontier[members.joined(self.frontier)].tolist()
        lag = self.policy.stable_lag
        assert all(lagging(time, lag) <= self.frontier for time in joined), f"runs: {self!r}"
        assert len(set(members.names)) == len(members), f"a name twice: {self!r}"
        assert not self.expelled.keys() & set(members.names), f"expelled, and here: {self!r}"
        self.settled.check()
        ends = self.settled.rows(self.settled.first, self.settled.next)[:, END]
        assert (ends < self.frontier).all() or self.frontier == FOREVER_UNITS
        assert (ends >= members.slowest).all(), f"remembers too long: {self!r}"


def new_control(serial: int, guarantee: int | None) -> Ints:
    """The control of a replica that has said nothing."""
    row = np.zeros(CONTROL_COLUMNS, np.int64)
    row[[FRONTIER, LAST_SEQ, HIGHEST, PROMOTED]] = NEVER_UNITS
    row[GUARANTEE] = NEVER_UNITS if guarantee is None else guarantee
    row[ATTACHED], row[SERIAL] = 1, serial
    return row
