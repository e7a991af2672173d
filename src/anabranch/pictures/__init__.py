"""Pictures: timelines of windows as SVG, PNG and text; flows, diagrams and lifetimes as SVG.

    timeline   what is to be seen: tuples, windows, reports, one row per engine; no pixels
    axis       where the axis has marks, and how times and durations are written
    scene      the timeline as shapes with places and colours
    svg, png   the shapes as a file; PNG needs matplotlib
    text       the timeline in a terminal, as wide as that is
    flow       copies, a merge and its output as one picture
    diagram    boxes with arrows: how the parts of a run connect
    query      the steps of a query by stage
    lifetimes  lifetimes of events over one axis, with stables and frontiers

The same input gives the same bytes, as long as the libraries stay the same.

>>> from anabranch.windows import Stable, predict
>>> tuples = [(30, 10), (31, 20), (36, 30), Stable(37)]
>>> seen = timeline([predict("coral8", 5, 1, tuples, "avg")], tuples)
>>> draw_svg(seen).startswith("<svg")
True
"""

from anabranch.pictures.flow import draw_flow
from anabranch.pictures.png import draw_png
from anabranch.pictures.query import draw_query
from anabranch.pictures.svg import draw_svg
from anabranch.pictures.text import draw_text
from anabranch.pictures.timeline import Timeline, timeline

__all__ = [
    "Timeline",
    "draw_flow",
    "draw_png",
    "draw_query",
    "draw_svg",
    "draw_text",
    "timeline",
]
