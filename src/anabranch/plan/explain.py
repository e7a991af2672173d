"""A query in words: steps by stage, lanes, what each promises, what never becomes final."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.model.properties import StreamProperties
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.contract import Operator, Route
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.merge.choose import REMEMBERS
from anabranch.operators.merge_of import MergeOfOperator
from anabranch.operators.route import Routing
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import Release
from anabranch.plan.chatter import changes_per_row, holds_its_stable
from anabranch.plan.labels import Label, Waiting, in_short, labels
from anabranch.plan.node import Node, Source, Step, nodes
from anabranch.plan.node import sources as entries_of
from anabranch.plan.properties import in_words, properties
from anabranch.plan.replicas import explain_merge, warnings_of, why_not_canonical
from anabranch.plan.stages import Placed, Stage, stages

_REMEMBERS: Final = {
    "aggregate": "the end points of its groups, until the frontier has passed them",
    "top_k": "the rows of its groups, until the frontier has passed their ends",
    "join": "events of both sides, until both frontiers have passed their ends",
    "distinct": "where counts of equal payloads change, until the frontier has passed it",
    "difference": "where counts of equal payloads change, until the frontier has passed it",
    "normalise": "where counts of equal payloads change, until the frontier has passed it",
    "replaced_by": "the rows of each key from the one that lives at the frontier on",
    "align": "events, until the frontier has passed their starts, or their wait is over",
    "session": "the rows of open sessions",
}
"""What steps with a state remember, by the names of their operators; others have none."""
_LATE_ENDS: Final = "ends of events that came too late, until the frontier has passed them"
_PAIRS: Final = (
    "events of each side, until the frontier of the other side has passed their ends"
)
_PANES: Final = "a sum per key and pane, until the frontier has passed its windows"


def explain(
    last: Source | Step,
    lanes: int,
    entries: Mapping[str, str],
    endless: Sequence[str] = (),
    *,
    waits: Mapping[str, Label] | None = None,
) -> str:
    """The description; `entries` are those of the sources, by their ids.

    `endless` are the sources without stables, which make nothing final.  `waits` are the labels
    of the steps; unless given, a step waits for the sources below it.
    """
    cut, routings = stages(last)
    promised = properties(last, lanes)
    waits = labels(last, Waiting.OPERATOR) if waits is None else waits
    several = len(entries_of(last)) > 1
    lines: list[str] = []
    for number, stage in enumerate(cut):
        lines.append(f"stage {number}: {lanes} lane{'' if lanes == 1 else 's'}")
        for one in stage.steps:
            known = promised[one.node.id]
            more = explain_merge(one.node, promised)
            if several and isinstance(one.node, Step):
                more.append(f"frontier {in_short(waits[one.node.id])}")
            if isinstance(one.node, Step) and (changes := changes_per_row(one.node)):
                more.append(f"changes per row: {changes}")
            lines += _step(one, routings, known, more=more)
        lines += _sends(stage)
    if cut[-1].holds_stables and lanes > 1:
        lines.append(f"stage {len(cut)}: 1 lane, which emits the least stable of all lanes")
    lines += _warnings(last, lanes)
    lines += [
        f"warning: source {name} has no stables, so nothing becomes final, and steps with a "
        "state remember every event; add heartbeats (ab.events(...).heartbeats)"
        for name in endless
    ]
    for name, words in entries.items():
        lines += [f"source {name}:", *(f"  {line}" for line in words.splitlines())]
    return "\n".join(lines)


def has_state(last: Node) -> bool:
    """Whether some step of a query remembers events until they are final."""
    return any(isinstance(one, Step) and one.operator.name in _REMEMBERS for one in nodes(last))


def _step(
    placed: Placed,
    routings: Mapping[str, Routing],
    promised: StreamProperties,
    *,
    more: Sequence[str],
) -> list[str]:
    node = placed.node
    if isinstance(node, Source):
        return [
            f"  {node.id}: {node.words}, lanes by {routed_by(routings[node.id])}",
            f"    {in_words(promised)}",
        ]
    named = [(one.port, one.of.partition(">")[0]) for one in placed.edges]
    reads = ", ".join(of if port == "input" else f"{port} {of}" for port, of in named)
    return [
        f"  {node.id}: {node.words} (reads {reads})",
        *(["    goes before a merge of replicas that need it"] if node.why else []),
        *(f"    {line}" for line in more),
        f"    remembers {_remembered(node.operator)}",
        *_final(node),
        f"    {in_words(promised, doubt=why_not_canonical(node))}",
    ]


def _remembered(operator: Operator) -> str:
    if isinstance(operator, SessionAggregateOperator):
        return _REMEMBERS["session"]
    if isinstance(operator, FinalizeOperator):
        return _LATE_ENDS
    if isinstance(operator, JoinOperator) and operator.how == "inner":
        return _PAIRS
    if isinstance(operator, MergeOfOperator) and operator.case is not None:
        return REMEMBERS[operator.case]
    panes = isinstance(operator, PaneAggregateOperator)
    return _PANES if panes else _REMEMBERS.get(operator.name, "nothing")


def _final(node: Step) -> list[str]:
    if isinstance(node.operator, SessionOperator | SessionAggregateOperator):
        return [
            "    sessions are final when the input's frontier has passed their ends",
            "    stables wait at the start of the oldest open session",
        ]
    passed = "starts" if node.final_at_start else "ends"
    return [f"    events are final when the frontier has passed their {passed}"]


def _sends(stage: Stage) -> list[str]:
    lines = []
    for one in stage.sends:
        lines += [f"  then Spark: {each.words} (a stage ends here)" for each in one.natives]
        lines.append(f"  shuffle of {one.name.partition('>')[0]} by {routed_by(one.routing)}")
    return lines


def routed_by(routing: Routing) -> str:
    """What decides the lane of a row, in words."""
    if routing.by is Route.KEY:
        return ", ".join(routing.columns) or "nothing: one lane has all rows"
    return "start and payload" if routing.by is Route.IDENTITY else str(routing.by.value)


def _warnings(last: Node, lanes: int) -> list[str]:
    lines = []
    for node in nodes(last):
        if not isinstance(node, Step):
            continue
        operator = node.operator
        lines += warnings_of(node)
        if operator.name in ("aggregate", "top_k") and not operator.route_columns and lanes > 1:
            lines.append(
                f"warning: {node.id} has no keys, so one of {lanes} lanes does all of it; "
                "group_by(...) columns, or use lanes=1"
            )
        if holds_its_stable(node):
            lines.append(
                f"warning: {node.id} holds its stable at the start of the first result that "
                "may still change, so one long event holds back all that reads it; bound this "
                "with cut_every=, such as cut_every='1 hour'"
            )
        if isinstance(operator, HoldOperator) and operator.release is Release.FINAL:
            lines.append(
                f"warning: {node.id} releases final events only, so one event without end "
                "blocks all that start after it, until it is corrected or the stream ends"
            )
        if operator.name in ("inserts", "deletes"):
            lines.append(
                f"warning: events of {node.id} have no end, so none of them is in final() "
                "before the stream ends"
            )
    return lines
