"""Diagrams and lifetimes keep inside their frames, and name what they cannot draw."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model import FOREVER, Event
from anabranch.pictures.diagram import Part, diagram, draw_diagram
from anabranch.pictures.lifetimes import draw_lifetimes, lifetimes
from anabranch.pictures.scene import Box, Line, Scene, Words, width_of

SVG = "{http://www.w3.org/2000/svg}"


def assert_inside(drawn: Scene) -> None:
    for shape in drawn.shapes:
        if isinstance(shape, Box):
            assert 0 <= shape.x <= shape.x + shape.width <= drawn.width
            assert 0 <= shape.y <= shape.y + shape.height <= drawn.height
        if isinstance(shape, Line):
            assert 0 <= min(shape.x1, shape.x2) <= max(shape.x1, shape.x2) <= drawn.width
            assert 0 <= min(shape.y1, shape.y2) <= max(shape.y1, shape.y2) <= drawn.height
        if isinstance(shape, Words):
            assert 0 <= shape.y <= drawn.height


def test_parts_and_arrows_are_in_the_description() -> None:
    columns = [[Part("inbox", ("files",))], [Part("merge")], [Part("out"), Part("checkpoint")]]
    arrows = {("inbox", "merge"): "rows", ("merge", "out"): "", ("out", "checkpoint"): ""}
    root = ET.fromstring(draw_diagram(columns, arrows, title="A merge"))
    described = root.find(f"{SVG}desc")
    assert described is not None
    assert described.text == (
        "inbox: files; merge; out; checkpoint. "
        "Arrows: inbox to merge, merge to out, out to checkpoint."
    )
    assert "rows" in [text.text for text in root.iter(f"{SVG}text")]


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_boxes_do_not_overlap_and_nothing_is_outside(
    sizes: list[int], data: st.DataObject
) -> None:
    lines = st.lists(st.text(max_size=14), max_size=3).map(tuple)
    columns = [
        [Part(f"part {x} {y}", data.draw(lines)) for y in range(size)]
        for x, size in enumerate(sizes)
    ]
    ordered = [part.name for column in columns for part in column]
    later = [(a.name, b.name) for a in columns[0] for b in columns[-1]]
    arrows = dict.fromkeys(later if len(columns) > 1 else [], "rows")
    drawn = diagram(columns, arrows, title="some")
    assert_inside(drawn)
    boxes = [shape for shape in drawn.shapes if isinstance(shape, Box)]
    assert len(boxes) == len(ordered)
    for one in boxes:
        for other in boxes:
            apart = one.x + one.width <= other.x or other.x + other.width <= one.x
            apart |= one.y + one.height <= other.y or other.y + other.height <= one.y
            assert apart or one is other


@given(st.text(alphabet="abc .,", max_size=30))
def test_a_box_is_as_wide_as_its_lines(line: str) -> None:
    assert Part("p", (line,)).width >= width_of(line, 11)


@pytest.mark.parametrize(
    ("arrow", "match"),
    [
        (("a", "z"), "names 'z', which is no part"),
        (("b", "a"), "from 'b' to 'a' leads back"),
        (("c", "b"), "from 'c' to 'b' leads back"),
    ],
)
def test_arrows_that_cannot_be_drawn_are_named(arrow: tuple[str, str], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        diagram([[Part("a")], [Part("b"), Part("c")]], {arrow: ""}, title="wrong")


def test_a_diagram_that_is_too_wide_is_rejected() -> None:
    with pytest.raises(UsageError, match="pixels are needed"):
        diagram([[Part("x" * 80)], [Part("y" * 80)]], {}, title="wide")


@given(
    st.dictionaries(
        st.builds(
            lambda name, start, length: Event(name, start, start + length),
            st.text(max_size=8),
            st.integers(-1000, 1000),
            st.integers(1, 500),
        ),
        st.just("a note"),
        min_size=1,
        max_size=6,
    ),
    st.dictionaries(st.text(max_size=8), st.integers(-1000, 1500), max_size=3),
)
def test_lifetimes_are_inside_their_picture(
    events: dict[Event, str], times: dict[str, int]
) -> None:
    assert_inside(lifetimes(events, times, title="some"))
    ET.fromstring(draw_lifetimes(events, times, title="some"))


def test_an_event_without_an_end_runs_to_the_edge() -> None:
    short, long = Event("a", 1, 9), Event("b", 1, FOREVER)
    drawn = lifetimes({short: "", long: ""}, {}, title="two")
    _, first, second = [shape for shape in drawn.shapes if isinstance(shape, Box)]
    assert second.width > first.width
    assert "b 1..: " in drawn.words


def test_no_event_is_rejected() -> None:
    with pytest.raises(UsageError, match="there is no event"):
        lifetimes({}, {}, title="none")
