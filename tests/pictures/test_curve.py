"""Curves of loss and steps of bounds: same input, same picture; every point inside."""

from anabranch.clocks import Clock, Learning, summarise
from anabranch.pictures.curve import (
    Curve,
    Spot,
    Steps,
    curve_png,
    curve_scene,
    curve_svg,
    curve_text,
    steps_of,
    steps_scene,
    steps_svg,
)
from anabranch.pictures.scene import Disc, Line

CURVE = Curve(
    "loss of a stream",
    ((0, 0.5), (10, 0.02), (40, 0.0001), (90, 0.0)),
    (Spot(10, 0.02, "2 % late"), Spot(90, 0.0, "none late")),
)


def inside(scene):
    for shape in scene.shapes:
        if isinstance(shape, Line):
            assert all(0 <= x <= scene.width for x in (shape.x1, shape.x2)), shape
            assert all(0 <= y <= scene.height for y in (shape.y1, shape.y2)), shape
        if isinstance(shape, Disc):
            assert 0 <= shape.x <= scene.width
            assert 0 <= shape.y <= scene.height


def test_a_curve_is_inside_its_picture_and_always_the_same():
    inside(curve_scene(CURVE))
    assert curve_svg(CURVE) == curve_svg(CURVE)
    assert "2 % late" in curve_svg(CURVE)
    assert curve_png(CURVE).startswith(b"\x89PNG")


def test_a_curve_in_a_terminal_falls():
    lines = curve_text(CURVE, width=60).splitlines()
    assert lines[0] == "loss of a stream"
    heights = [line.count("█") for line in lines[1:-2]]
    assert heights == sorted(heights), "more delays lose less"
    assert max(map(len, lines)) <= 60
    assert "█" not in curve_text(CURVE, ascii_only=True)


def test_a_stream_that_loses_nothing_has_a_curve():
    flat = Curve("in order", ((0, 0.0),))
    inside(curve_scene(flat))
    assert curve_text(flat).splitlines()[0] == "in order"
    inside(curve_scene(Curve("empty", ())))


def test_figure_3_a_bound_rises_at_once_and_falls_by_windows():
    state = Clock(Learning(window=5, alpha=0.5, warm_up=0)).empty()
    for n in range(1, 60):
        late = 100 if n == 20 else 0
        state.step(summarise(["s"], [10 * n - late], [n]), n)
    steps = steps_of(state.learner.trail, source="s", other="s")
    values = [value for _, value in steps.bound]
    assert values[0] == max(values)
    assert values == sorted(values, reverse=True)
    assert values[-1] == 0
    inside(steps_scene(steps))
    assert "s behind s" in steps_svg(steps)
    inside(steps_scene(Steps("none", ())))
