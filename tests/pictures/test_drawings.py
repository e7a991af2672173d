"""The three forms of a timeline: valid, the same each time, and not fooled by what is in it."""

import sys
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SetupError
from anabranch.pictures import Timeline, draw_png, draw_svg, draw_text, timeline
from anabranch.pictures.scene import WIDTH, Box, Words, scene, width_of
from anabranch.pictures.text import ASCII, LEAST_WIDTH
from anabranch.windows import Stable, engine, predict

EXAMPLE_2 = [(30, 10), (31, 20), (36, 30), Stable(37)]
LATE = [
    (1, 10),
    (2, 20),
    (4, 30),
    (3, 7),
    (9, 40),
    (2, 5),
    (9, 1),
    (15, 8),
    (16, 3),
    Stable(30),
]
SVG = "{http://www.w3.org/2000/svg}"


def example_2() -> Timeline:
    names = ("stream", "coral8", "streambase")
    return timeline([predict(name, 5, 1, EXAMPLE_2, "avg") for name in names], EXAMPLE_2)


def late() -> Timeline:
    engines = [engine("spark-append", delay=2), engine("flink", lateness=4), "kafka-streams"]
    return timeline([predict(one, 6, 2, LATE, "sum") for one in engines], LATE)


def lines(seen: Timeline, width: int, **more: object) -> list[str]:
    drawn = draw_text(seen, width, **more)  # type: ignore[arg-type]
    return ["".join(text for _, text in line) for line in drawn]


def test_secret_example_2_in_a_terminal() -> None:
    drawn = lines(example_2(), 80)
    begin = next(n for n, line in enumerate(drawn) if line.startswith("streambase"))
    assert drawn[:4] == [
        "avg over windows of size 5, slide 1",
        "3 tuples, then stable 37",
        "                        ●10   ●20                           ●30   ┊stable 37",
        "26    27    28    29    30    31    32    33    34    35    36    37",
    ]
    assert drawn[begin:] == [
        "streambase: (10), (15), (15), (15), (15), (20), (30)",
        "┣━━━━━━━━━━━━━━━━━━━━━━━◆10━━┫┣━━━━━━━━━━━━━━━━━━━━━━━◆20━━┫",
        "      ┣━━━━━━━━━━━━━━━━━━━━━━━◆15━━┫┣━━━━━━━━━━━━━━━━━━━━━━━◆30━━┫",
        "            ┣━━━━━━━━━━━━━━━━━━━━━━━◆15━━┫",
        "                  ┣━━━━━━━━━━━━━━━━━━━━━━━◆15━━┫",
        "                        ┣━━━━━━━━━━━━━━━━━━━━━━━◆15━━┫",
    ]
    assert "            ├╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌┤" in drawn[: begin - 1]


@pytest.mark.parametrize("width", [0, 40, 41, 60, 79, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for seen in (example_2(), late()):
        body = [line for line in lines(seen, width) if not line.startswith(seen.about[:8])]
        assert max(len(line) for line in body) <= max(width, LEAST_WIDTH)


def test_ascii_is_ascii() -> None:
    drawn = "\n".join(lines(late(), 79, letters=ASCII))
    assert drawn.isascii()
    assert "!30, late 37" in drawn
    assert "x5" in drawn


@pytest.mark.parametrize("make", [example_2, late], ids=["example 2", "late"])
def test_svg_is_xml_with_a_title_a_description_and_all_values(make: object) -> None:
    seen = make()  # type: ignore[operator]
    root = ET.fromstring(draw_svg(seen))
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    ids = {root.find(f"{SVG}title").get("id"), root.find(f"{SVG}desc").get("id")}  # type: ignore[union-attr]
    assert ids == set(root.get("aria-labelledby", "").split())
    assert root.find(f"{SVG}desc").text == seen.words  # type: ignore[union-attr]
    texts = {text.text for text in root.iter(f"{SVG}text")}
    for track in seen.tracks:
        assert track.name in texts
        assert {mark.label for bar in track.bars for mark in bar.marks[-1:]} <= texts
    assert {point.label for point in seen.points} <= texts


@given(st.lists(st.text(max_size=30), min_size=1, max_size=4))
def test_no_value_breaks_the_svg(values: list[str]) -> None:
    tuples = [*enumerate(values), Stable(9)]
    seen = timeline([predict("flink", 9, 9, tuples, "collect")], tuples)
    root = ET.fromstring(draw_svg(seen))
    assert len(list(root.iter(f"{SVG}circle"))) >= len(values)
    draw_text(seen, 60)


def test_nothing_is_drawn_outside_the_picture() -> None:
    for seen in (example_2(), late()):
        drawn = scene(seen)
        for shape in drawn.shapes:
            if isinstance(shape, Box):
                assert shape.x >= 0
                assert shape.x + shape.width <= WIDTH
                assert shape.y + shape.height <= drawn.height
            if isinstance(shape, Words) and shape.anchor == "start":
                assert shape.x + width_of(shape.text, shape.size) <= WIDTH
                assert shape.y <= drawn.height


@pytest.mark.parametrize("draw", [draw_svg, draw_png], ids=["svg", "png"])
def test_the_same_input_gives_the_same_bytes(draw: object) -> None:
    assert draw(late()) == draw(late())  # type: ignore[operator]


def test_png_is_a_png_without_a_date_or_version() -> None:
    drawn = draw_png(example_2())
    assert drawn.startswith(b"\x89PNG\r\n\x1a\n")
    assert b"matplotlib" not in drawn
    assert int.from_bytes(drawn[16:20], "big") == 2 * WIDTH


def test_formulas_and_users_settings_do_not_change_a_png() -> None:
    import matplotlib as mpl

    tuples = [(1, "$"), (2, "$x_1$"), (3, "\u6642"), Stable(9)]
    seen = timeline([predict("flink", 9, 9, tuples, "collect")], tuples)
    plain = draw_png(seen)
    with mpl.rc_context({"text.color": "red", "lines.linewidth": 9, "font.size": 40,
                         "savefig.bbox": "tight", "figure.facecolor": "black"}):  # fmt: skip
        assert draw_png(seen) == plain


def test_without_matplotlib_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SetupError, match=r"pip install matplotlib.*\.svg"):
        draw_png(example_2())
    assert draw_svg(example_2())
