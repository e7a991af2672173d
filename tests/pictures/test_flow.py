"""The picture of a merge has each event once on the output, and nothing outside its frame."""

import importlib.util
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model import FOREVER, Event
from anabranch.pictures.flow import draw_flow, flow
from anabranch.pictures.scene import Box, Words

ROOT = Path(__file__).parents[2]
SVG = "{http://www.w3.org/2000/svg}"

events = st.builds(
    lambda name, start, length: Event(name, start, start + length),
    st.text(max_size=12),
    st.integers(-1000, 1000),
    st.integers(1, 500),
)


@pytest.mark.parametrize("drawer", ["pictures", "pictures_of_queries"])
def test_the_committed_pictures_are_those_that_are_drawn_now(drawer: str) -> None:
    path = ROOT / ".ci" / f"{drawer}.py"
    spec = importlib.util.spec_from_file_location(f"{drawer}_of_pages", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, draw in module.PICTURES.items():
        assert (ROOT / name).read_text() == draw(), f"{name}: run `make pictures`"


def test_a_copy_shows_what_it_lacks_and_the_output_lacks_nothing() -> None:
    a, b = Event("a", 1, 4), Event("b", 2, 6)
    root = ET.fromstring(draw_flow({"east": [a], "west": [b, a]}, title="two"))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert (texts.count("a"), texts.count("b"), texts.count("lacks it")) == (3, 2, 1)
    assert {"east: lacks 1", "west: complete"} <= set(texts)
    described = root.find(f"{SVG}desc")
    assert described is not None
    assert (described.text or "").startswith("east lacks b; west is complete.")


@given(st.lists(st.lists(events, max_size=5, unique=True), min_size=1, max_size=4))
def test_nothing_is_drawn_outside_the_picture(copies: list[list[Event]]) -> None:
    named = {f"copy {number}": own for number, own in enumerate(copies)}
    if not any(copies):
        with pytest.raises(UsageError, match="no copy has an event"):
            flow(named, title="none")
        return
    drawn = flow(named, title="some")
    for shape in drawn.shapes:
        if isinstance(shape, Box):
            assert 0 <= shape.x <= shape.x + shape.width <= drawn.width
            assert 0 <= shape.y <= shape.y + shape.height <= drawn.height
        if isinstance(shape, Words):
            assert 0 <= shape.y <= drawn.height
    ET.fromstring(draw_flow(named, title="some"))


def test_an_event_without_an_end_is_rejected() -> None:
    with pytest.raises(UsageError, match="without an end"):
        draw_flow({"east": [Event("a", 1, FOREVER)]}, title="open")
