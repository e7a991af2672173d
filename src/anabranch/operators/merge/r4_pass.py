"""One pass over the elements of a step: runs the kernels, and makes room where they stop.

`run` reads all elements and then lets the greatest stable count; `run_each` lets every stable
count where it stands.  What the kernels tell (nodes that are due at another time, or wait for a
replica) is handed to the nodes before the next stable is looked at.
"""

import numpy as np

from anabranch.batch.batch import STABLE, Batch, Codes, Ints, Mask
from anabranch.batch.kernel import frozen
from anabranch.batch.store import grown
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r4_lists import ABSENT, total, with_cells
from anabranch.operators.merge.r4_locate import Located
from anabranch.operators.merge.r4_loop import (
    CREDITED,
    FRONTIER,
    LAG,
    LOGGED,
    NEXT_BORN,
    PUSHED,
    SLOWEST,
    STOPPED,
    WAITING,
    Elements,
    Promises,
    Work,
    judge_some,
)
from anabranch.operators.merge.r4_net import KIND, NODE
from anabranch.operators.merge.r4_nodes import BORN, DUE, IN_CONFLICT, NOT_BORN, STATUS
from anabranch.operators.merge.r4_reconcile import (
    CONFLICTS,
    ENDED,
    MISSING,
    Scratch,
    Stable,
    publish_some,
    visit_some,
)
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import START


class Pass:
    """The elements of a step, and what came of them."""

    def __init__(self, state: R4State, batch: Batch, column: Ints, located: Located) -> None:
        self.state = state
        members, nodes = state.members, state.nodes
        seq = np.empty(0, np.int64) if batch.seq is None else batch.seq
        times = (batch.start, batch.end, batch.old_end)
        columns = (batch.kind, *times, seq, column, located.node, located.settled)
        self.elements = Elements(*(frozen(np.ascontiguousarray(c)) for c in columns))
        none = np.full(len(members), -1, np.int64)
        self.promises = Promises(members.guarantee, members.frontier, members.last_seq, none)
        self.reasons: Codes = np.empty(len(batch), np.int8)
        self.deciders: list[int] = []
        self.missing: list[tuple[int, int]] = []
        self.conflicts = self.visits = 0
        self._ended: list[Ints] = [np.empty(0, np.int64)]
        self._denied: list[Ints] = []
        control = np.zeros(LAG + 1, np.int64)
        control[FRONTIER], control[SLOWEST] = state.frontier, members.slowest
        control[LAG] = state.stable_lag
        control[NEXT_BORN] = nodes.next_born
        count = len(batch)
        self._work = Work(
            nodes.facts,
            with_cells(nodes.lists),
            nodes.waits,
            control,
            log=np.empty((count + 1, 4), np.int64),
            pushed=np.empty((count, 2), np.int64),
            waiting=np.empty((count, 3), np.int64),
            credited=np.empty((count, 3), np.int64),
        )

    @property
    def log(self) -> Ints:
        """The changes of the output, in order."""
        return self._work.log[: self._work.control[LOGGED]]

    @property
    def ended(self) -> Ints:
        """The nodes that are frozen on the output now."""
        return np.concatenate(self._ended)

    @property
    def touched(self) -> Ints:
        """The nodes that may have changed, some of them more than once."""
        known = self.elements.node[self.elements.node >= 0]
        shown = self.log[self.log[:, KIND] != STABLE, NODE]
        born = self.state.nodes.facts[known, BORN] != NOT_BORN
        return np.concatenate([known[born], shown, *self._denied])

    @property
    def final(self) -> Ints:
        """Their last ends, or ABSENT where the output never knew them."""
        ends: Ints = self.state.nodes.facts[self.ended, DUE]
        return ends

    def run(self) -> None:
        """Read all elements, publish, and let the frontier move once."""
        self._judge(0, each=False)
        self._publish()
        self._decide(show=False)
        self._end()

    def run_each(self) -> None:
        """Let every stable count where it stands."""
        at = 0
        # Since the last step a replica may have been promoted whose stable waited.
        self._decide(show=True)
        self._empty_for(len(self.reasons))
        while at < len(self.reasons):
            at = self._judge(at, each=True)
            if self._work.control[STOPPED]:
                self._work.control[STOPPED] = 0
                self._decide(show=True)
                self.reasons[at] = Reason.LEADS.code
                at += 1
                self._empty_for(len(self.reasons) - at)
        self._end()

    def _empty_for(self, elements: int) -> None:
        """Room again for what this many elements write down: visits have used some of it."""
        self._hand_over()
        log = grown(self._work.log, int(self._work.control[LOGGED]) + elements)
        self._work = self._work._replace(log=log)

    def _judge(self, first: int, *, each: bool) -> int:
        """Read elements; where a stable counts, or all."""
        at, work = first, self._work
        while at < len(self.reasons) and not work.control[STOPPED]:
            at = int(judge_some(self.elements, self.promises, work, self.reasons, at, each))
            if at < len(self.reasons):
                work = self._work = work._replace(lists=with_cells(work.lists))
        return at

    def _publish(self) -> None:
        members, frontier = self.state.members, self.state.frontier
        lag = self.state.stable_lag
        leader = members.leader(frontier, lag=lag)
        time = ABSENT if leader is None else int(members.lagging(lag)[leader])
        column = 0 if leader is None else leader + 1
        guarantee = ABSENT if leader is None else int(members.promoted[leader])
        stable = Stable(column, frontier, time, shrink_only=False, guarantee=guarantee)
        credited = self._work.credited[: self._work.control[CREDITED]]
        scratch, at = self._scratch(0), 0
        while at < len(credited):
            at = int(publish_some(credited, at, stable, self._work, scratch))
            if at < len(credited):
                scratch = self._make_room(int(credited[at, 0]), scratch)

    def _decide(self, *, show: bool) -> None:
        """Move the frontier as far as the joined replicas allow.

        More than one decides only if a stable lets a joining replica join that is further
        still.  What that one never promised to know must be decided by the one before (L9).
        """
        state, control, lag = self.state, self._work.control, self.state.stable_lag
        while (leader := state.members.leader(state.frontier, lag=lag)) is not None:
            time = int(state.members.lagging(lag)[leader])
            guarantee = int(state.members.promoted[leader])
            stable = Stable(leader + 1, state.frontier, time, state.shrink_only, guarantee)
            self._visit(stable, in_order=show)
            state.frontier = control[FRONTIER] = time
            self.deciders.append(leader)
            if show:
                at = int(control[LOGGED])
                log = grown(self._work.log, at + 1)
                log[at] = STABLE, 0, 0, time
                control[LOGGED] += 1
                self._work = self._work._replace(log=log)

    def _visit(self, stable: Stable, *, in_order: bool) -> None:
        control = self._work.control
        pushed = self._work.pushed[: control[PUSHED]].copy()
        control[PUSHED] = 0
        self._hand_over()
        nodes = self.state.nodes.due_before(
            stable.time,
            stable.column,
            pushed,
            in_order=in_order,
            # One that was promoted cuts what it does not know, due or not.
            all_of_them=stable.guarantee > stable.frontier,
        )
        was_denied = self._is_in_conflict(nodes)
        scratch, at = self._scratch(len(nodes)), 0
        self._work = self._work._replace(
            pushed=grown(self._work.pushed, len(nodes)),
            waiting=grown(self._work.waiting, self._work.lists.single.shape[1]),
        )
        while at < len(nodes):
            at = int(visit_some(nodes, at, stable, self._work, scratch))
            if at < len(nodes):
                scratch = self._make_room(int(nodes[at]), scratch)
        self.visits += len(nodes)
        self._denied.append(nodes[self._is_in_conflict(nodes) & ~was_denied])
        self.conflicts += int(scratch.counts[CONFLICTS])
        missing = scratch.missing[: scratch.counts[MISSING]].tolist()
        self.missing += [(stable.column - 1, node) for node in missing]
        self._ended.append(scratch.ended[: scratch.counts[ENDED]])

    def _is_in_conflict(self, nodes: Ints) -> Mask:
        is_in_conflict: Mask = self._work.facts[nodes, STATUS] & IN_CONFLICT != 0
        return is_in_conflict

    def _scratch(self, nodes: int) -> Scratch:
        bags, counts = np.empty((2, 64), np.int64), np.zeros(ENDED + 1, np.int64)
        return Scratch(bags, counts, np.empty(nodes, np.int64), np.empty(nodes, np.int64))

    def _make_room(self, node: int, scratch: Scratch) -> Scratch:
        """For what the next visit may write: as many rows as the node has events."""
        work, start = self._work, int(self._work.facts[node, START])
        columns = range(work.lists.single.shape[1])
        events = sum(int(total(work.lists, node, column, start)) for column in columns)
        self._hand_over()
        bags = np.empty((2, max(2 * scratch.bags.shape[1], events)), np.int64)
        self._work = work._replace(
            lists=with_cells(work.lists, 8 * events + 64),
            log=grown(work.log, int(work.control[LOGGED]) + events),
            waiting=grown(work.waiting, work.lists.single.shape[1]),
        )
        return scratch._replace(bags=bags)

    def _hand_over(self) -> None:
        """Let the nodes know when to look again, and for whom."""
        work = self._work
        pushed = work.pushed[: work.control[PUSHED]]
        self.state.nodes.due.push(pushed[:, 0].copy(), pushed[:, 1].copy())
        self.state.nodes.wait(work.waiting[: work.control[WAITING]])
        work.control[PUSHED] = work.control[WAITING] = 0

    def _end(self) -> None:
        self._hand_over()
        self.state.nodes.lists = self._work.lists
        self.state.nodes.next_born = int(self._work.control[NEXT_BORN])
