"""A query as a picture: its steps by stage, and what is shuffled between them.

`draw_query` takes a query (`ab.Query`).  Each column is a stage; a box has a step, and what it
does in words.  An arrow is labelled where Spark changes the rows, or where they are shuffled.
"""

from typing import Protocol

from anabranch.operators.route import Routing
from anabranch.pictures.diagram import Part, draw_diagram
from anabranch.plan.explain import routed_by
from anabranch.plan.node import Source, Step
from anabranch.plan.stages import Stage, stages

WIDEST = 34
"""Letters in a line of a box."""


class Planned(Protocol):
    """A query with its stages."""

    @property
    def last(self) -> Source | Step:
        """The node that it ends with."""


class Query(Protocol):
    """`ab.Query`, which pictures know by its plan alone: they do not need Spark."""

    @property
    def planned(self) -> Planned:
        """The query as it will run."""


def draw_query(query: Query) -> str:
    """The text of an SVG file."""
    cut, _ = stages(query.planned.last)
    columns = [[_part(one.node.id, one.node.words) for one in stage.steps] for stage in cut]
    return draw_diagram(columns, _arrows(cut), title=f"{query.planned.last.id}: a query")


def _part(name: str, words: str) -> Part:
    lines, line = [], ""
    for word in words.split():
        if line and len(line) + len(word) >= WIDEST:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    return Part(name, (*lines, line), main=name == "output")


def _arrows(cut: tuple[Stage, ...]) -> dict[tuple[str, str], str]:
    """From step to step; through the stages between them, if a stream passes some."""
    arrows: dict[tuple[str, str], str] = {}
    of: dict[tuple[int, str], tuple[str, str]] = {}
    for number, stage in enumerate(cut):
        for one in stage.steps:
            for edge in one.edges:
                source, label = of.get((number, edge.of), (edge.of, ""))
                arrows[source, one.node.id] = label
        for send in stage.sends:
            source, before = of.get((number, send.of), (send.of, ""))
            natives = ", ".join(each.id for each in send.natives)
            label = before or _label(natives, send.routing)
            of[number + 1, send.name] = source, label
    return arrows


def _label(natives: str, routing: Routing) -> str:
    shuffle = f"by {routed_by(routing)}"
    return f"{natives}, {shuffle}" if natives else shuffle
