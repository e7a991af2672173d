"""Where the level of consistency of a query takes effect: in front of its first state.

A level (`operators.waiting.level`) is asked for once per query.  Finalize, then align, go in
front of the first step with a state that each input reaches, so that stateless steps stay below
them, and a plan without state has neither (Figure 2).  The inputs of one step are released
together: each align reads the stables of the others too.

They never go below a merge of replicas: replicas that forget different rows have different
histories.  What such a merge reads stays as it is, and its output is an input.

With a level that waits for stables every aggregate emits when time has passed: what waits for a
stable is not corrected then.

Papers: CEDR *operators* 3, 4.5 and 4.6, Figures 1 and 2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.batch.times import show_span
from anabranch.errors import UsageError
from anabranch.model.emission import Emit
from anabranch.operators.abilities import Paced
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.contract import Port, ports_of
from anabranch.operators.merge_of import MergeOfOperator
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import Level, Release
from anabranch.plan.node import Native, Node, Source, Step, nodes, reads_of, rewritten

FINALIZE: Final = "finalize"
ALIGN: Final = "align"


def level_of(last: Node) -> Level | None:
    """The level that was asked for, if one was; UsageError if there are two."""
    found = [one.level for one in nodes(last) if one.level is not None]
    return one_of(found, last.schema.time)


def one_of(levels: Iterable[Level], time: TimeType) -> Level | None:
    """The level of a query for which these were asked for; UsageError if they differ."""
    found = dict.fromkeys(levels)
    if len(found) > 1:
        shown = " and ".join(f"'{in_words(one, time)}'" for one in found)
        message = (
            f"consistency: this query has two levels, {shown}; a level is of the whole query: "
            "call consistency(...) once, behind the last step"
        )
        raise UsageError(message)
    return next(iter(found), None)


def in_words(level: Level, time: TimeType) -> str:
    """A level by its name, or by how long it waits and remembers.

    >>> in_words(Level(wait=5_000_000, remember=None), TimeType.TIMESTAMP)
    'wait 5 seconds, remember for ever'
    """
    if level.name:
        return level.name
    wait = "for stables" if level.wait is None else span(level.wait, time)
    parts = [f"wait {wait}"] if level.wait is not None or level.needs_stables else []
    if level.wait_wall is not None:
        parts.append(f"wait {show_span(level.wait_wall)} of wall-clock time")
    kept = "for ever" if level.remember is None else span(level.remember, time)
    return ", ".join([*parts, f"remember {kept}"])


def span(units: int, time: TimeType) -> str:
    """A distance between two times, as people read it."""
    return show_span(units) if time is TimeType.TIMESTAMP else str(units)


def without_levels(last: Node) -> Node:
    """The same plan, in which a stream that was given a level is the stream itself."""
    known: dict[int, Source] = {}

    def bare(node: Node) -> Node:
        if isinstance(node, Source):
            plain = node if node.level is None else replace(node, level=None)
            return known.setdefault(id(node.entry), plain)
        return node if node.level is None else replace(node, level=None)

    return rewritten(last, bare)


def placed(last: Node, level: Level) -> Node:
    """The plan with finalize and align where the level takes effect.

    A step that was placed by hand is no state: it stays where it is.
    """
    below = _below_merges(last)
    plan = rewritten(last, lambda one: one if id(one) in below else _emitting(one, level))
    return _Placing(level, _below_merges(plan)).all(plan)


@dataclass
class _Placing:
    """The steps that were put in, by what they read and how it is routed."""

    level: Level
    below: frozenset[int]
    state: dict[int, bool] = field(default_factory=dict)
    known: dict[int, Node] = field(default_factory=dict)
    finalized: dict[tuple[int, Port], Step] = field(default_factory=dict)

    def all(self, last: Node) -> Node:
        """Every node, after those that it reads."""
        for one in nodes(last):
            self.known[id(one)] = self._made(one)
            self.state[id(one)] = self._has_state(one)
        return self.known[id(last)]

    def _has_state(self, node: Node) -> bool:
        """Whether a step with a state is at a node or below it, and no merge after that."""
        if _is_merge(node) or id(node) in self.below:
            return False
        return _remembers(node) or any(self.state[id(one)] for one in reads_of(node))

    def _made(self, node: Node) -> Node:
        if isinstance(node, Native):
            return replace(node, of=self.known[id(node.of)])
        if isinstance(node, Source):
            return node
        reads = {name: self.known[id(one)] for name, one in node.reads}
        if _remembers(node) and id(node) not in self.below:
            reads = self._waiting(node, reads)
        return replace(node, reads=tuple(reads.items()))

    def _waiting(self, step: Step, reads: Mapping[str, Node]) -> dict[str, Node]:
        """What the step reads instead: the ports that no state was below wait."""
        ports, made = ports_of(step.operator), dict(reads)
        first = [name for name, one in step.reads if not self.state[id(one)]]
        for name in first:
            made[name] = self._finalized(reads[name], ports[name])
        beside = dict(made)
        for name in first:
            others = [(ports[one], node) for one, node in beside.items() if one != name]
            made[name] = self._aligned(beside[name], ports[name], others)
        return made

    def _finalized(self, node: Node, port: Port) -> Step:
        key = (id(node), port)
        if key not in self.finalized:
            operator = FinalizeOperator(
                _plain(node),
                self.level.remember,
                route=port.route,
                route_columns=tuple(port.route_columns),
            )
            words = f"finalize, level {in_words(self.level, node.schema.time)}"
            self.finalized[key] = _step(FINALIZE, operator, [("input", node)], words)
        return self.finalized[key]

    def _aligned(self, node: Node, port: Port, others: Sequence[tuple[Port, Node]]) -> Step:
        level = self.level
        operator = HoldOperator(
            _plain(node),
            wait=level.wait,
            wait_wall=level.wait_wall,
            release=level.release,
            beside=tuple(Port(_plain(one), of.route, of.route_columns) for of, one in others),
            # What waits for final events has another state than what waits for stables.
            is_leveled=level.release is Release.ORDERED,
            route=port.route,
            route_columns=tuple(port.route_columns),
        )
        beside = [(f"beside_{at}", one) for at, (_, one) in enumerate(others)]
        words = f"align, level {in_words(level, node.schema.time)}"
        return _step(ALIGN, operator, [("input", node), *beside], words)


def _step(
    word: str,
    operator: FinalizeOperator | HoldOperator,
    reads: Sequence[tuple[str, Node]],
    words: str,
) -> Step:
    node = reads[0][1]
    return Step(word, operator, tuple(reads), words, node.final_at_start, node.in_windows)


def _plain(node: Node) -> ElementSchema:
    return replace(node.schema, has_seq=False, has_replica=False)


def _remembers(node: Node) -> bool:
    """Whether a node has a state that an early answer would be corrected in."""
    if not isinstance(node, Step) or _is_merge(node):
        return False
    by_hand = isinstance(node.operator, FinalizeOperator | HoldOperator)
    return not node.any_lane and not by_hand


def _is_merge(node: Node) -> bool:
    return isinstance(node, Step) and isinstance(node.operator, MergeOfOperator)


def _below_merges(last: Node) -> frozenset[int]:
    """The nodes that a merge of replicas reads, directly or not."""
    merges = [one for one in nodes(last) if _is_merge(one)]
    return frozenset(
        id(one) for merge in merges for read in reads_of(merge) for one in nodes(read)
    )


def _emitting(node: Node, level: Level) -> Node:
    """A node whose results wait until time has passed them, if the level waits for stables."""
    operator = node.operator if isinstance(node, Step) else None
    if not isinstance(node, Step) or not level.needs_stables:
        return node
    if not isinstance(operator, AggregateOperator | SessionAggregateOperator):
        return node
    if node.emits == Emit.AT_ONCE:
        shown = in_words(level, node.schema.time)
        message = (
            f"consistency: step '{node.id}' has emit='at_once', which answers before a stable, "
            f"and the level '{shown}' waits for stables; leave emit= out, or choose "
            "consistency('middle')"
        )
        raise UsageError(message)
    if node.emits is not None:
        return node
    if isinstance(operator, AggregateOperator):
        return replace(node, operator=replace(operator, emit=Emit.PASSED))
    session, known = operator.session, operator.behind
    made = Step(
        "session",
        session,
        node.reads,
        "sessions",
        session.output_final_at_start,
        in_windows=True,
    )
    behind = replace(known, emit=Emit.PASSED)
    return replace(node, operator=behind, reads=(("input", made),))


def paced(last: Node) -> tuple[Paced, ...]:
    """The operators of a plan that go by how far the whole query is."""
    found = (one.operator for one in nodes(last) if isinstance(one, Step))
    return tuple(one for one in found if isinstance(one, Paced) and one.is_paced)
