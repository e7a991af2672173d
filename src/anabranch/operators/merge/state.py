"""The state of a merge of case R3 or R4 for one lane, under any policy.

* Per identity that may still change on the output: a row of numbers and one payload (`nodes`);
  of those with several events, their ends (`nodes.bags`).
* What a stable will have to look at (`agenda`): follows from the rows, and is never written.
* Per replica: its attachment, guarantee, frontier and last seq (`members`).
* Per event that is final but that a replica may still mention: its name (`final_names`).  Names
  that ended before `forgotten` were dropped nevertheless, by the policy's `remember`.
* If the policy holds inserts back: which ones (`held`), and the replicas it follows (`view`).
* The output's frontier, and how many conflicts there were.

Papers: LMerge IV-D, in2t and IV-E, in3t (Figure 1); the space is O(w(p + s d)) of Table IV.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.batch.index import NOBODY, START
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival, Resolved, StepResult
from anabranch.operators.merge.agenda import Agenda
from anabranch.operators.merge.bags import Nodes, check_bags, ends_of
from anabranch.operators.merge.govern import (
    NUMBER,
    PER_REPLICA,
    View,
    abandon,
    holding,
    is_governed,
    keeps,
    look,
    resolved_of,
)
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.layout import (
    BAG,
    CONFLICT,
    ENDS,
    HALF_FROZEN,
    OUT,
    RANK,
    SHOWN,
    WITHDRAWN,
)
from anabranch.operators.merge.members import Members, lagged
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.reconcile import list_unreferenced
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE
from anabranch.operators.state.final_names import END, FinalNames


@dataclass(frozen=True, slots=True)
class Work:
    """What the steps cost so far (since the state was made or restored), noise-free.

    `probes` are slots of the hash tables that were looked at, `visits` are events that stables
    and policies looked at, `heap_operations` are pushes to and pops from the lists of what is
    due.
    """

    elements: int
    probes: int
    visits: int
    heap_operations: int


@dataclass(eq=False)
class MergeState(MergeLane):
    """The state of one lane; `step` changes it in place."""

    case: MergeCase
    schema: ElementSchema
    policy: Policy
    members: Members
    nodes: Nodes
    final_names: FinalNames
    frontier: int = int(NEVER_UNITS)
    conflicts: int = 0
    forgotten: int = int(NEVER_UNITS)
    next_rank: int = 0
    mark: int = 0
    elements: int = 0
    agenda: Agenda = field(default_factory=Agenda)
    reports_final: bool = False
    final_at_start: bool = False
    """Ends are known from the start: an event is final when the frontier has passed that."""
    held: Ints = field(default_factory=lambda: np.empty((0, 0), np.int64))
    next_number: int = 0
    pending: int = 0
    highest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    view: View = field(default_factory=View)
    abandoned: list[Resolved] = field(default_factory=list)
    asks_all: bool = False
    """In the step in which the policy changes, it is asked about every event."""
    withdrawn: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    """The events that a change of the policy takes off the output, until the step ends."""

    @classmethod
    def empty(
        cls,
        schema: ElementSchema,
        *,
        keyed: bool = True,
        policy: Policy = DEFAULT,
        reports_final: bool = False,
    ) -> "MergeState":
        """Nobody is attached and nothing has happened."""
        case = MergeCase.R3 if keyed else MergeCase.R4
        plain = replace(schema, has_seq=False, has_replica=False)
        nodes, names = Nodes(plain.payload), FinalNames()
        state = cls(case, plain, policy, Members.none(), nodes, names)
        state.reports_final = reports_final
        return state

    @property
    def keyed(self) -> bool:
        """Whether identities are unique in each replica: R3, else R4."""
        return self.case is MergeCase.R3

    @property
    def is_governed(self) -> bool:
        """Whether the policy decides who brings events, or whose ends they take."""
        return self.asks_all or is_governed(self.policy)

    @property
    def live(self) -> int:
        """How many identities may still change."""
        return self.nodes.live

    @property
    def work(self) -> Work:
        """What the steps cost so far."""
        probes = self.nodes.index.probes + self.final_names.probes
        return Work(self.elements, probes, self.agenda.visits, self.agenda.heap_operations)

    @property
    def nbytes(self) -> int:
        """What everything but the payloads takes."""
        own = self.nodes.nbytes + self.agenda.nbytes + self.final_names.nbytes
        return own + self.held.nbytes

    def _take(self, arrivals: Sequence[Arrival]) -> StepResult:
        from anabranch.operators.merge.step import take

        return take(self, arrivals)

    def _follow_policy(self, before: Policy) -> None:
        """Ask the new policy about all events in this step, if one of the two asks at all.

        Every block is written again: what is held has columns of its own.
        """
        self.nodes.changed[:] = self.mark
        self.agenda.rebuild(self.nodes, self.frontier)
        was_governed = self.asks_all or is_governed(before)
        self.asks_all = was_governed or is_governed(self.policy)
        if not self.asks_all:
            return
        if not was_governed:
            shape = len(self.nodes.rows), PER_REPLICA * len(self.members)
            self.held = np.full(shape, NOBODY, np.int64)
        if not was_governed or before.inserts != self.policy.inserts:
            self.highest = self._highest()
        self.view = View()
        rows, ids = self.nodes.rows, self.nodes.living()
        rows[ids, FLAGS] &= ~WITHDRAWN
        if keeps(self.policy) and not keeps(before):
            self._withdraw(ids)

    def _highest(self) -> Ints:
        """Of each replica the highest start among the events that are remembered."""
        rows = self.nodes.rows[self.nodes.living()]
        start = rows[:, [START]]
        has_it = rows[:, ENDS:] > start
        found: Ints = np.where(has_it, start, NEVER_UNITS).max(axis=0, initial=NEVER_UNITS)
        return found

    def _withdraw(self, ids: Ints) -> None:
        """Take free events off the output that a policy which never removes shows later."""
        seen = (self.members, self.nodes, self.highest)
        view = look(self.policy, *seen, frontier=self.frontier, before=self.view)
        rows, chosen = self.nodes.rows, self.members.serial == view.chosen
        start = rows[ids, START]
        has_it = (rows[ids, ENDS:][:, chosen] > start[:, None]).any(axis=1)
        wrong = (start >= self.frontier) & ~(has_it & (start < view.sure))
        self.withdrawn = ids[wrong & (rows[ids, OUT] != ABSENT)]
        rows[self.withdrawn, OUT] = ABSENT

    def end_change(self) -> None:
        """The policy has been asked about all events; forget what only others need."""
        self.asks_all, self.withdrawn = False, self.withdrawn[:0]
        if not self.is_governed:
            assert self.pending == 0, (
                f"{self.pending} pending events, 0 required without a policy"
            )
            self.held, self.highest = np.empty((0, 0), np.int64), self.highest[:0]

    def _add_column(self) -> None:
        self.nodes.add_column()
        self.agenda.add_replica(self.nodes)
        if self.is_governed:
            more = np.full((len(self.held), PER_REPLICA), NOBODY, np.int64)
            self.held = np.concatenate([self.held, more], axis=1)
            self.highest = np.append(self.highest, NEVER_UNITS)

    def _drop_column(self, row: int) -> None:
        if self.is_governed:
            self._abandon(row)
        self.members.remove(row)
        self.nodes.remove_replica(row)
        self.agenda.remove_replica(row)
        self._drop_unreferenced()

    def remove_replica(self, name: str) -> None:
        """Drop what a replica has, and names that only it could mention."""
        super().remove_replica(name)
        self.final_names.forget(self.oldest, self.mark)

    @property
    def oldest(self) -> int:
        """What ended before this is not remembered: no replica may mention it, or too old."""
        return max(self.members.slowest, self.forgotten)

    def limit_memory(self) -> None:
        """Note what is too old to be remembered, though a replica may still mention it."""
        remember = self.policy.remember
        if remember is None or self.frontier in (NEVER_UNITS, FOREVER_UNITS):
            return
        limit = max(self.frontier, int(NEVER_UNITS) + remember) - remember
        if limit > self.members.slowest:
            self.forgotten = max(self.forgotten, limit)

    def _abandon(self, row: int) -> None:
        """What is held of a replica that leaves is late."""
        none = np.empty(0, np.int8)
        work = holding(self.held, self.next_number, none, self.pending)
        abandon(self.nodes.rows, self.nodes.used, row, work)
        self.abandoned += resolved_of(self.schema, self.nodes, self.members.names, work)
        self.pending -= int(work.taken[0])
        first = PER_REPLICA * row
        self.held = np.delete(self.held, range(first, first + PER_REPLICA), axis=1)
        self.highest = np.delete(self.highest, row)

    def _drop_unreferenced(self) -> None:
        """Free the rows of events that are on no output and that nobody mentions any more."""
        living = self.nodes.living()
        found = np.empty(len(living), np.int64)
        count = int(list_unreferenced(self.nodes.rows, frozen(living), found))
        self.nodes.remove(found[:count], self.mark)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        from anabranch.operators.merge.codec import write_parts

        return write_parts(self, since)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> "MergeState":
        """The state that was saved last; StateError if a part is missing or not of it."""
        from anabranch.operators.merge.codec import read_parts

        return read_parts(parts, schema)

    def restored(self) -> "MergeState":
        """The same, with everything that follows from what was written."""
        rows = self.nodes.rows
        ids = self.nodes.living()
        half_frozen = np.where(rows[ids, START] < self.frontier, HALF_FROZEN, 0)
        kept = LIVE | CONFLICT | BAG | WITHDRAWN
        rows[ids, FLAGS] = rows[ids, FLAGS] & kept | half_frozen
        rows[ids, SHOWN] = rows[ids, OUT]
        self.agenda.rebuild(self.nodes, self.frontier)
        return self

    def check(self) -> None:
        """Assert what must always hold between steps."""
        self.nodes.check()
        width = self.nodes.rows.shape[1]
        wanted = ENDS + len(self.members)
        assert width == wanted, f"columns of a row: {width} != {wanted}"
        bags = self.nodes.bag_ids()
        assert not (self.keyed and len(bags)), f"bags under R3: {bags}"
        check_bags(self.nodes.bags, self.nodes.rows, bags)
        self._check_singles()
        self._check_bags(bags)
        reached = self.members.lagging(self.policy.stable_lag)
        if self.policy.gaps:
            reach = self.members.reach(self.frontier, wait=self.policy.wait)
            reached = lagged(np.array([reach]), self.policy.stable_lag)
        else:
            reached = reached[self.members.trusted(self.frontier)]
        assert (reached <= self.frontier).all(), f"frontier {self.frontier} < {reached}"
        names = self.members.names
        assert len(set(names)) == len(names), f"a name twice: {names}"
        guarantee = np.maximum(self.members.guarantee, self.members.promoted)
        self.agenda.check(self.nodes, self.frontier, guarantee)
        self._check_final_names()
        self._check_held()

    def _check_singles(self) -> None:
        rows = self.nodes.rows[self.nodes.living()]
        ended = self.frontier == FOREVER_UNITS
        assert not (ended and len(rows)), f"{len(rows)} live events after FOREVER, expected 0"
        rows = rows[rows[:, FLAGS] & BAG == 0]
        start, out, flags = rows[:, START], rows[:, OUT], rows[:, FLAGS]
        shown, free = out != ABSENT, start >= self.frontier
        emitted = rows[:, SHOWN]
        assert (out == emitted).all(), f"ends on the output {out} != emitted {emitted}"
        alive = (rows[:, ENDS:] > start[:, None]).any(axis=1)
        lost = start[~(shown | free)]
        assert not len(lost), f"not on the output, starts {lost} < frontier {self.frontier}"
        assert (shown | ~alive).all() or self.is_governed, (
            f"live events are not on the output: starts {start[alive & ~shown]}"
        )
        frozen = shown & ((out < self.frontier) | (out <= start))
        assert not frozen.any(), f"frozen ends {out[frozen]} kept at frontier {self.frontier}"
        half_frozen = flags & ~(CONFLICT | WITHDRAWN) == LIVE | HALF_FROZEN
        assert (half_frozen != free).all(), (
            f"HALF_FROZEN {half_frozen} != (start < frontier) {~free}"
        )
        ranks = rows[shown, RANK]
        assert len(np.unique(ranks)) == len(ranks), f"a rank twice: {ranks}"
        assert (ranks < self.next_rank).all(), f"a rank was not given yet: {ranks}"

    def _check_bags(self, bags: Ints) -> None:
        columns = np.append(OUT, np.arange(ENDS, self.nodes.rows.shape[1]))
        ends = ends_of(self.nodes.bags, self.nodes.rows, bags, columns)
        counts = np.zeros((len(bags), len(columns)), np.int64)
        np.add.at(counts, (ends[:, 0], ends[:, 1]), ends[:, 3])
        start = self.nodes.rows[bags, START]
        free, shown = start >= self.frontier, counts[:, 0]
        assert (shown[~free] > 0).all(), f"half-frozen bags without output: {bags[~free]}"
        most = counts[:, 1:].max(axis=1, initial=0)
        assert (shown >= most)[free].all(), f"events on the output {shown} < fullest {most}"
        last = np.full(len(bags), NEVER_UNITS, np.int64)
        is_output = ends[:, 1] == 0
        np.maximum.at(last, ends[is_output, 0], ends[is_output, 2])
        assert (last >= self.frontier)[~free].all(), (
            f"last ends of half-frozen bags {last[~free]} < frontier {self.frontier}"
        )

    def _check_final_names(self) -> None:
        self.final_names.check()
        ends = self.final_names.all()[:, END]
        assert (ends < self.frontier).all() or self.frontier == FOREVER_UNITS, (
            f"ends of final names {ends} >= frontier {self.frontier}"
        )
        assert (ends >= self.oldest).all(), f"ends of final names {ends} < {self.oldest}"
        reached = self.forgotten <= self.frontier
        assert reached, f"forgotten {self.forgotten} > frontier {self.frontier}"

    def _check_held(self) -> None:
        if not self.is_governed:
            return
        living = self.nodes.living()
        held = self.held[living][:, NUMBER::PER_REPLICA] != NOBODY
        assert held.sum() == self.pending, f"{held.sum()} held, {self.pending} pending"
        rows = self.nodes.rows[living]
        has_it = rows[:, ENDS:] > rows[:, [START]]
        removed = living[(held & ~has_it).any(axis=1)]
        assert not len(removed), f"inserts held of events that were removed: {removed}"
        both = living[held.any(axis=1) & (rows[:, OUT] != ABSENT)]
        assert not len(both), f"inserts held of events on the output: {both}"
