"""A query in words: steps by stage, lanes, what each promises, what never becomes final."""

from collections.abc import Mapping, Sequence
from typing import Final

from anabranch.model.properties import StreamProperties
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.contract import Route
from anabranch.operators.route import Routing
from anabranch.plan.chatter import changes_per_row, holds_its_stable
from anabranch.plan.node import Node, Source, Step, nodes
from anabranch.plan.properties import in_words, properties
from anabranch.plan.stages import Placed, Stage, stages

_REMEMBERS: Final = {
    "aggregate": "the end points of its groups, until the frontier has passed them",
    "top_k": "the rows of its groups, until the frontier has passed their ends",
    "join": "events of each side, until the frontiers of both sides have passed their ends",
    "distinct": "where counts of equal payloads change, until the frontier has passed it",
    "difference": "where counts of equal payloads change, until the frontier has passed it",
    "normalise": "where counts of equal payloads change, until the frontier has passed it",
    "replaced_by": "the rows of each key from the one that lives at the frontier on",
    "align": "events, until the frontier has passed their starts",
}
"""What steps with a state remember, by the names of their operators; others have none."""
_PANES: Final = "a sum per key and pane, until the frontier has passed its windows"


def explain(
    last: Source | Step, lanes: int, entries: Mapping[str, str], endless: Sequence[str] = ()
) -> str:
    """The description; `entries` are those of the sources, by their ids.

    `endless` are the sources without stables, which make nothing final.
    """
    cut, routings = stages(last)
    promised = properties(last, lanes)
    lines: list[str] = []
    for number, stage in enumerate(cut):
        lines.append(f"stage {number}: {lanes} lane{'' if lanes == 1 else 's'}")
        for one in stage.steps:
            lines += _step(one, routings, promised[one.node.id])
        lines += _sends(stage)
    lines += _warnings(last, lanes)
    lines += [
        f"warning: source {name} has no stables, so nothing becomes final, and steps with a "
        "state remember every event; add heartbeats (ab.events(...).heartbeats)"
        for name in endless
    ]
    for name, words in entries.items():
        lines += [f"source {name}:", *(f"  {line}" for line in words.splitlines())]
    return "\n".join(lines)


def _step(
    placed: Placed, routings: Mapping[str, Routing], promised: StreamProperties
) -> list[str]:
    node = placed.node
    if isinstance(node, Source):
        return [
            f"  {node.id}: {node.words}, lanes by {routed_by(routings[node.id])}",
            f"    {in_words(promised)}",
        ]
    named = [(one.port, one.of.partition(">")[0]) for one in placed.edges]
    reads = ", ".join(of if port == "input" else f"{port} {of}" for port, of in named)
    panes = isinstance(node.operator, PaneAggregateOperator)
    remembers = _PANES if panes else _REMEMBERS.get(node.operator.name, "nothing")
    final = "starts" if node.final_at_start else "ends"
    changes = changes_per_row(node)
    return [
        f"  {node.id}: {node.words} (reads {reads})",
        f"    remembers {remembers}",
        f"    events are final when the frontier has passed their {final}",
        *([] if changes is None else [f"    changes per row: {changes}"]),
        f"    {in_words(promised)}",
    ]


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
        if operator.name in ("inserts", "deletes"):
            lines.append(
                f"warning: events of {node.id} have no end, so none of them is ever in final()"
            )
    return lines
