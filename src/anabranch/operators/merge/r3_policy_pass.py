"""One step of merge R3 with a policy: what it reads and writes, from beginning to end.

`attach`, `detach` and `take` may come in any order; what they say is collected, and `finish`
makes one result of it and tidies up.

Papers: LMerge IV-D, V-A, V-B.
"""

from collections.abc import Sequence

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Codes,
    Ints,
)
from anabranch.batch.codec import to_elements
from anabranch.batch.kernel import frozen
from anabranch.batch.store import grown
from anabranch.batch.values import to_payloads
from anabranch.errors import UsageError, ViolationError
from anabranch.operators.merge.contract import (
    BUCKET_OF,
    GAPS_SHOWN,
    REASONS,
    Arrival,
    Gap,
    Granularity,
    Reason,
    Resolved,
    StepResult,
)
from anabranch.operators.merge.policy import HalfFrozen, Policy, Quorum
from anabranch.operators.merge.r3 import accuse
from anabranch.operators.merge.r3_index import Located, locate
from anabranch.operators.merge.r3_loop import Elements
from anabranch.operators.merge.r3_membership import Stretch
from anabranch.operators.merge.r3_nodes import ABSENT, BORN, DONE, FLAGS, OUT, ROW, SHOWN, TOLD
from anabranch.operators.merge.r3_policy_loop import regroup, run
from anabranch.operators.merge.r3_policy_membership import forget
from anabranch.operators.merge.r3_policy_net import explain, net_change, spoken_of, to_batch
from anabranch.operators.merge.r3_policy_state import R3PolicyState, new_control
from anabranch.operators.merge.r3_policy_table import (
    ATTACHED,
    CHOSEN,
    CONFLICTS,
    END,
    EVENTS,
    FOLLOWED,
    FRONTIER,
    GAP,
    GONE,
    GUARANTEE,
    HELD,
    HELD_END,
    HELD_NODE,
    HELD_NUMBER,
    HELD_REASON,
    HELD_SERIAL,
    KIND,
    LAST_SEQ,
    LISTED,
    MARK,
    NODE,
    NUMBER,
    NUMBER_BASE,
    PROMOTED,
    RESOLVED,
    RESOLVED_COLUMNS,
    SAID,
    SAID_COLUMNS,
    SILENT,
    STOPPED,
    STRETCHES,
    VISITS,
    Table,
    encode,
    needed_room,
)
from anabranch.operators.merge.slots import LOW, NOBODY, START

_NONE: Ints = np.empty(0, np.int64)


class Pass:
    """What one step has said so far, on the way to its result."""

    def __init__(self, state: R3PolicyState) -> None:
        if state.is_broken:
            message = (
                "merge: a violation stopped this merge in the middle of a step; go on with the "
                "state that was saved before that step, or with violations=ignore or detach"
            )
            raise UsageError(message)
        self.state = state
        self.schema = state.schema
        self.members = state.members
        self._said: Ints = np.empty((0, SAID_COLUMNS), np.int64)
        self._resolved: Ints = np.empty((0, RESOLVED_COLUMNS), np.int64)
        self._gone: Ints = _NONE
        self._due: Ints = _NONE
        self._created: Ints = _NONE
        self._stretches: Ints = np.empty((0, 3), np.int64)
        self._held_by: Ints = _NONE
        self._elements = gather([], Located(_NONE, _NONE, _NONE), _NONE)
        self._reasons = np.empty(0, np.int8)
        self._cuts: Ints = _NONE
        self._arrivals = 0
        self._frontier = state.frontier
        self._names = dict(zip(state.members.serial.tolist(), state.members.names, strict=True))
        state.mark += 1
        numbers = state.numbers
        numbers[[SAID, RESOLVED, GONE, STRETCHES, STOPPED]] = 0
        numbers[NUMBER_BASE], numbers[MARK] = numbers[NUMBER], state.mark
        self._before = numbers.copy()

    def require_attachment(self, name: str, attachment: int) -> None:
        """Refuse an attachment that was replaced by a greater one, or expelled as a later."""
        self.members.row_of_attachment(name, attachment)
        last = self.state.expelled.get(name)
        if last is not None and attachment < last:
            message = (
                f"merge: replica '{name}' arrives with attachment {attachment}, but its "
                f"attachment {last} was detached for a violation; give each return of a "
                "replica a greater attachment number"
            )
            raise UsageError(message)

    def attach(self, name: str, *, attachment: int = 1, guarantee: int | None = None) -> int:
        """The row of this attachment; one that was expelled stays away, and has none."""
        state = self.state
        row = state.members.find(name)
        if row is not None and state.members.attachment[row] == attachment:
            return row
        if state.expelled.get(name) == attachment:
            return NOBODY
        state.expelled.pop(name, None)
        if row is not None:
            # Its name is that of the new one, at once.
            self._leave(row)
            state.members.names[row] = ""
        serial = state.members.next_serial
        state.members.add(name, attachment=attachment, guarantee=guarantee)
        state.nodes.add_replica()
        empty = np.full((len(state.book), 2), NOBODY, np.int64)
        state.book = np.concatenate([state.book, empty], axis=1)
        state.control = np.vstack([state.control, new_control(serial, guarantee)])
        state.control[-1, SILENT] = state.silent()[-1]
        self._names[serial] = name
        regroup(self._table())
        self._compact()
        return len(state.members) - 1

    def detach(self, name: str) -> None:
        """Forget what a replica said."""
        self._leave(self.state.members.names.index(name))
        regroup(self._table())
        self._compact()

    def tell(self, name: str, guarantee: int | None) -> None:
        """A replica has this guarantee from now on, promoted or not before."""
        members, control = self.state.members, self.state.control
        row = members.tell(name, guarantee)
        control[row, GUARANTEE], control[row, PROMOTED] = members.guarantee[row], NEVER_UNITS
        regroup(self._table())
        self._compact()

    def _leave(self, row: int) -> None:
        self.state.control[row, ATTACHED] = 0
        forget(self._table(), row)

    def take(self, arrivals: Sequence[Arrival]) -> None:
        """Take the elements of all arrivals, one after the other."""
        state = self.state
        batches = [arrival.batch for arrival in arrivals if len(arrival.batch)]
        located = locate(
            state.nodes, state.settled, batches, frontier=state.frontier, mark=state.mark
        )
        self._created = located.created
        sizes = [len(arrival.batch) for arrival in arrivals]
        self._arrivals, self._cuts = len(arrivals), np.cumsum(sizes)[:-1]
        rows = [state.members.find(arrival.replica) for arrival in arrivals]
        columns = np.array([NOBODY if row is None else row for row in rows], np.int64)
        self._elements = gather(batches, located, np.repeat(columns, sizes))
        self._reasons = np.empty(len(self._elements.kind), np.int8)
        at, count = 0, len(self._reasons)
        self._held_by = np.empty(count, np.int64)
        while at < count:
            at = int(run(self._elements, self._table(), at))
            if state.numbers[STOPPED]:
                state.is_broken = True
                raise self._violation(arrivals, at)
        state.elements += count
        for row in np.flatnonzero(state.control[:, ATTACHED] == 0).tolist():
            state.expelled[state.members.names[row]] = int(state.members.attachment[row])
        self._compact()

    def _violation(self, arrivals: Sequence[Arrival], at: int) -> ViolationError:
        number = int(np.searchsorted(self._cuts, at, side="right"))
        first = at - (self._cuts[number - 1] if number else 0)
        (element,) = to_elements(arrivals[number].batch.take(np.array([first])))
        reason = REASONS[self._reasons[at]]
        return ViolationError(accuse(arrivals[number].replica, element, reason))

    def _table(self) -> Table:
        """All arrays, with room for what one element may bring (untouched room is free)."""
        state, numbers = self.state, self.state.numbers
        replicas, count = len(state.members), len(self._reasons)
        said, resolved = needed_room(int(numbers[EVENTS]) + 1, replicas)
        self._said = grown(self._said, int(numbers[SAID]) + 2 * said + 2 * count)
        self._resolved = grown(self._resolved, int(numbers[RESOLVED]) + 2 * resolved + count)
        self._stretches = grown(self._stretches, int(numbers[STRETCHES]) + replicas + 1)
        self._gone = grown(self._gone, state.nodes.used + 1)
        size = len(state.nodes.rows)
        state.book, state.heap = with_rows(state.book, size), grown(state.heap, size)
        self._due = grown(self._due, size)
        return Table(
            state.nodes.rows,
            state.book,
            state.heap,
            self._due,
            state.nodes.changed,
            state.control,
            numbers,
            np.array(encode(state.policy, state.members.names), np.int64),
            quorums(state.policy, replicas),
            self._said,
            self._resolved,
            self._gone,
            self._stretches,
            self._held_by,
            self._reasons,
        )

    def _compact(self) -> None:
        """Take out the columns of who left; the others' facts are those of the loop."""
        state, numbers = self.state, self.state.numbers
        for row in np.flatnonzero(state.control[:, ATTACHED] == 0)[::-1].tolist():
            state.members.remove(row)
            state.nodes.remove_replica(row)
            first = HELD + 2 * row
            state.book = np.delete(state.book, [first, first + 1], axis=1)
            state.control = np.delete(state.control, row, axis=0)
            numbers[FOLLOWED] -= numbers[FOLLOWED] > row
            numbers[CHOSEN] -= numbers[CHOSEN] > row
        members, control = state.members, state.control
        members.frontier = control[:, FRONTIER].copy()
        members.guarantee = control[:, GUARANTEE].copy()
        members.last_seq = control[:, LAST_SEQ].copy()
        members.promoted = control[:, PROMOTED].copy()

    def finish(self, granularity: Granularity) -> StepResult:
        """The result of all that was said; the state is ready for the next step."""
        state, numbers = self.state, self.state.numbers
        said, resolved = self._said[: numbers[SAID]], self._resolved[: numbers[RESOLVED]]
        gaps, said = said[said[:, KIND] == GAP], said[said[:, KIND] != GAP]
        spoken, shown = spoken_of(said), said
        if granularity == "batch":
            splits = state.policy.shrink_only and not isinstance(
                state.policy.inserts, HalfFrozen
            )
            shown = net_change(state.nodes, said, frontier=self._frontier, splits=splits)
            explain(state.nodes, shown, self._elements, self._reasons, resolved)
        reasons = tuple(np.split(self._reasons, self._cuts)) if self._arrivals else ()
        moved = bool((shown[:, KIND] == STABLE).any())
        result = StepResult(
            to_batch(state.schema, state.nodes, shown),
            tuple(BUCKET_OF.take(codes) for codes in reasons),
            reasons,
            state.frontier if moved else None,
            _added(shown, ADJUST, self._reasons, resolved),
            int(numbers[CONFLICTS] - self._before[CONFLICTS]),
            self._released(resolved),
            {"visits": int(numbers[VISITS] - self._before[VISITS])},
            _added(shown, INSERT, self._reasons, resolved),
            len(gaps),
            self._named(gaps[:GAPS_SHOWN]),
        )
        self._tidy(spoken)
        return result

    def _named(self, gaps: Ints) -> tuple[Gap, ...]:
        """The first events that a decider never mentioned, for people to look at."""
        facts = self.state.nodes.rows[gaps[:, NODE]]
        payloads = to_payloads(self.state.nodes.take(facts[:, ROW]), len(gaps))
        names = [self._names[serial] for serial in gaps[:, END].tolist()]
        return tuple(map(Gap, names, facts[:, START].tolist(), payloads))

    def _released(self, resolved: Ints) -> tuple[Resolved, ...]:
        """What was pending before this step, per replica and in the order of its coming."""
        rows = resolved[np.argsort(resolved[:, HELD_NUMBER])]
        found = []
        for serial in np.unique(rows[:, HELD_SERIAL]).tolist():
            mine = rows[rows[:, HELD_SERIAL] == serial]
            facts = self.state.nodes.rows[mine[:, HELD_NODE]]
            batch = Batch(
                self.schema,
                np.full(len(mine), INSERT, np.int8),
                facts[:, START].copy(),
                mine[:, HELD_END].copy(),
                np.zeros(len(mine), np.int64),
                self.state.nodes.take(facts[:, ROW]),
            )
            codes = mine[:, HELD_REASON].astype(np.int8)
            found.append(Resolved(self._names[serial], batch, codes))
        return tuple(found)

    def _tidy(self, spoken: Ints) -> None:
        """Remember the names of what is final, let go what is not needed."""
        state, rows, slowest = self.state, self.state.nodes.rows, self.state.members.slowest
        rows[spoken, SHOWN] = rows[spoken, OUT]
        for start, end, serial in self._stretches[: state.numbers[STRETCHES]].tolist():
            state.members.stretches.append(Stretch(start, end, self._names[serial]))
        gone = self._gone[: state.numbers[GONE]]
        rows[gone, FLAGS] &= ~LISTED
        facts = rows[gone]
        told = facts[:, FLAGS] & TOLD != 0
        end = np.where(facts[:, OUT] == ABSENT, facts[:, START], facts[:, OUT])
        known = (facts[:, FLAGS] & DONE != 0) & (told | (facts[:, OUT] != ABSENT))
        final = known & (end >= slowest) & (slowest != FOREVER_UNITS)
        state.settled.forget(slowest, state.mark)
        state.settled.remember(facts[final, : LOW + 1], end[final], state.mark)
        left = np.unique(np.append(gone, self._created))
        state.nodes.remove(left[rows[left, BORN] == ABSENT], state.mark)


def with_rows(book: Ints, count: int) -> Ints:
    """The book with so many rows; in those that are new nothing is held."""
    if len(book) >= count:
        return book
    empty = np.full((count - len(book), book.shape[1]), NOBODY, np.int64)
    return np.concatenate([book, empty])


def quorums(policy: Policy, replicas: int) -> Ints:
    """How many votes each number of voters needs."""
    inserts = policy.inserts
    if not isinstance(inserts, Quorum):
        return np.zeros(replicas + 1, np.int64)
    return np.array([inserts.needed(voters) for voters in range(replicas + 1)], np.int64)


def gather(batches: Sequence[Batch], located: Located, replica: Ints) -> Elements:
    """The columns of all arrivals, one after the other; those of a replica in their order."""
    times = [
        np.concatenate([_NONE, *(getattr(batch, name) for batch in batches)])
        for name in ("start", "end", "old_end")
    ]
    kind = np.concatenate([np.empty(0, np.int8), *(batch.kind for batch in batches)])
    seqs = [batch.seq for batch in batches if batch.seq is not None]
    columns = (kind, *times, np.concatenate([_NONE, *seqs]), replica)
    return Elements(*map(frozen, (*columns, located.node, located.settled_end)))


def _added(said: Ints, kind: int, reasons: Codes, resolved: Ints) -> int:
    """How many elements of this kind no single input element asked for."""
    asked = Reason.FIRST.code if kind == INSERT else Reason.CORRECTED.code
    found = np.count_nonzero(reasons == asked) + np.count_nonzero(
        resolved[:, HELD_REASON] == asked
    )
    return int(np.count_nonzero(said[:, KIND] == kind) - found)
