"""A query as a picture: its steps by stage, and what is shuffled between them.

`draw_query` takes a query (`ab.Query`).  Each column is a stage; a box has a step, what it does
in words, and the case by which replicas of its output merge.  An arrow is labelled where Spark
changes the rows, or where they are shuffled.
"""

from typing import Protocol

from anabranch.model.properties import cheapest
from anabranch.operators.route import Routing
from anabranch.pictures.diagram import Part, draw_diagram
from anabranch.plan.explain import routed_by
from anabranch.plan.node import Source, Step
from anabranch.plan.properties import properties
from anabranch.plan.stages import Stage, stages

WIDEST = 34
"""Letters in a line of a box."""


class Planned(Protocol):
    """A query with its stages."""

    @property
    def last(self) -> Source | Step:
        """The node that it ends with."""

    @property
    def lanes(self) -> int:
        """How many lanes each stage has."""


class Query(Protocol):
    """`ab.Query`, which pictures know by its plan alone: they do not need Spark."""

    @property
    def planned(self) -> Planned:
        """The query as it will run."""


def draw_query(query: Query) -> str:
    """The text of an SVG file."""
    planned = query.planned
    cut, _ = stages(planned.last)
    promised = properties(planned.last, planned.lanes)
    cases = {name: cheapest(known).name for name, known in promised.items()}
    columns = [
        [_part(one.node.id, one.node.words, cases[one.node.id]) for one in stage.steps]
        for stage in cut
    ]
    return draw_diagram(columns, _arrows(cut), title=f"{planned.last.id}: a query")


def _part(name: str, words: str, case: str) -> Part:
    lines, line = [], ""
    for word in words.split():
        if line and len(line) + len(word) >= WIDEST:
            lines.append(line)
            line = ""
        line = f"{line} {word}".strip()
    last = f"replicas merge by {case}"
    return Part(name, (*lines, line, last), main=name == "output")


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
