"""A curve of loss against delay, and steps of a bound over time: as SVG, as PNG and as text.

`Curve` has points (x, share) and marks; the share is drawn on a logarithmic axis, since the
interesting part of a loss is its end.  `Steps` has a bound that changes over time, with the
estimates that changed it (the paper's Figure 3).

Papers: Heartbeats 6.2, Figure 3.

>>> curve = Curve("loss", ((0, 0.5), (10, 0.01), (20, 0.0)), (Spot(10, 0.01, "1 % late"),))
>>> print(curve_text(curve, width=40).splitlines()[0])
loss
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10
from typing import Final

from anabranch.clocks.learn import Change
from anabranch.pictures import png, svg
from anabranch.pictures.axis import marks, show_duration
from anabranch.pictures.scene import (
    BLUE,
    GUIDE,
    INK,
    MARGIN,
    MUTED,
    NORMAL,
    RUST,
    SMALL,
    WIDTH,
    Disc,
    Line,
    Scene,
    Shape,
    Words,
)

_LEFT: Final = 84
_TOP: Final = 76
_HEIGHT: Final = 260


@dataclass(frozen=True, slots=True)
class Spot:
    """A point of a curve that is pointed out."""

    x: int
    share: float
    label: str


@dataclass(frozen=True, slots=True)
class Curve:
    """Delays and the share of rows that each loses; delays rise."""

    title: str
    points: tuple[tuple[int, float], ...]
    spots: tuple[Spot, ...] = ()
    clock: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """A bound over time: (time, bound) where it changed, and (time, estimate) beside it."""

    title: str
    bound: tuple[tuple[int, int], ...]
    estimates: tuple[tuple[int, int], ...] = ()


def steps_of(trail: Sequence[Change], *, source: str, other: str, wait: int = 0) -> Steps:
    """The trail of one learned bound, as in Figure 3; estimates that exceeded it are points."""
    mine = [c for c in trail if (c.source, c.other, c.wait) == (source, other, wait)]
    return Steps(
        f"{source} behind {other} after {wait}",
        tuple((change.at, change.after) for change in mine),
        tuple((change.at, change.after) for change in mine if change.cause == "exceeded"),
    )


def curve_svg(curve: Curve) -> str:
    """The text of an SVG file."""
    return svg.write(curve_scene(curve))


def curve_png(curve: Curve) -> bytes:
    """The bytes of a PNG file; needs matplotlib."""
    return png.paint(curve_scene(curve))


def steps_svg(steps: Steps) -> str:
    """The text of an SVG file."""
    return svg.write(steps_scene(steps))


def _least(curve: Curve) -> float:
    """The lowest share of the axis: a power of ten below every loss that is not 0."""
    shares = [share for _, share in curve.points if share > 0]
    return 10.0 ** (int(log10(min(shares))) - 1) if shares else 1e-4


def curve_scene(curve: Curve) -> Scene:
    """The shapes of a curve."""
    most = max((x for x, _ in curve.points), default=1) or 1
    least = _least(curve)
    right, bottom = WIDTH - MARGIN, _TOP + _HEIGHT

    def place(x: int, share: float) -> tuple[float, float]:
        height = log10(max(share, least) / least) / -log10(least)
        return _LEFT + (right - _LEFT) * x / most, bottom - _HEIGHT * height

    shapes: list[Shape] = [Words(MARGIN, 36, curve.title, 18, bold=True)]
    shapes.append(Words(MARGIN, 58, "share of late rows against the delay", NORMAL, MUTED))
    power = 1.0
    while power > least * 0.5:
        y = place(0, power)[1]
        shapes.append(Line(_LEFT, y, right, y, GUIDE))
        label = "0" if power <= least * 1.5 else f"{power * 100:g} %"
        shapes.append(Words(_LEFT - 8, y + 4, label, SMALL, MUTED, anchor="end"))
        power /= 10
    for delay in marks(0, most, 8, clock=curve.clock):
        at = place(delay, 1.0)[0]
        shapes.append(Line(at, bottom, at, bottom + 5, MUTED))
        text = _delay(delay, clock=curve.clock)
        shapes.append(Words(at, bottom + 20, text, SMALL, MUTED, anchor="middle"))
    for first, second in zip(curve.points, curve.points[1:], strict=False):
        (x1, y1), (x2, y2) = place(*first), place(*second)
        shapes += [Line(x1, y1, x2, y1, BLUE, 2), Line(x2, y1, x2, y2, BLUE, 2)]
    for spot in curve.spots:
        x, y = place(spot.x, spot.share)
        end = x > (right + _LEFT) / 2
        shapes.append(Disc(x, y, 5, RUST, spot.label))
        shift = -10 if end else 10
        anchor = "end" if end else "start"
        shapes.append(Words(x + shift, y - 8, spot.label, SMALL, INK, anchor=anchor))  # type: ignore[arg-type]
    words = "; ".join(spot.label for spot in curve.spots)
    return Scene(WIDTH, bottom + 44, curve.title, words, tuple(shapes))


def steps_scene(steps: Steps) -> Scene:
    """The shapes of a bound over time: estimates as points, the bound as a line above them."""
    times = [at for at, _ in (*steps.bound, *steps.estimates)] or [0]
    low, high = min(times), max(times)
    most = max((value for _, value in (*steps.bound, *steps.estimates)), default=1) or 1
    right, bottom = WIDTH - MARGIN, _TOP + _HEIGHT

    def place(at: int, value: int) -> tuple[float, float]:
        wide = (at - low) / max(1, high - low)
        return _LEFT + (right - _LEFT) * wide, bottom - _HEIGHT * value / most

    shapes: list[Shape] = [
        Words(MARGIN, 36, steps.title, 18, bold=True),
        Words(MARGIN, 58, "points: estimates; line: the bound", NORMAL, MUTED),
        Line(_LEFT, bottom, right, bottom, MUTED),
    ]
    for value in marks(0, most, 5):
        y = place(low, value)[1]
        shapes.append(Line(_LEFT, y, right, y, GUIDE))
        shapes.append(Words(_LEFT - 8, y + 4, str(value), SMALL, MUTED, anchor="end"))
    shapes += [Disc(*place(at, value), 2, INK) for at, value in steps.estimates]
    ends = [*steps.bound[1:], (high, steps.bound[-1][1])] if steps.bound else []
    for (at, value), (until, after) in zip(steps.bound, ends, strict=True):
        (x1, y1), (x2, y2) = place(at, value), place(until, after)
        shapes += [Line(x1, y1, x2, y1, BLUE, 2), Line(x2, y1, x2, y2, BLUE, 2)]
    words = f"{len(steps.bound)} changes of a bound"
    return Scene(WIDTH, bottom + 30, steps.title, words, tuple(shapes))


def curve_text(
    curve: Curve, width: int = 80, height: int = 12, *, ascii_only: bool = False
) -> str:
    """The curve in a terminal: one column per delay, the share on a logarithmic axis."""
    most = max((x for x, _ in curve.points), default=1) or 1
    least = _least(curve)
    cells = max(10, width - 12)
    shares = [_share_at(curve.points, most * column // (cells - 1)) for column in range(cells)]
    levels = [round(log10(max(s, least) / least) / -log10(least) * height) for s in shares]
    block, empty = ("#", " ") if ascii_only else ("█", " ")
    lines = [curve.title]
    for level in range(height, 0, -1):
        share = least ** (1 - level / height)
        label = f"{share:.4%}" if share < 0.001 else f"{share:.1%}"
        row = "".join(block if one >= level else empty for one in levels).rstrip()
        lines.append(f"{label:>9} |{row}")
    lines.append(f"{'0':>9} +{'-' * cells}")
    end = _delay(most, clock=curve.clock)
    lines.append(" " * 11 + "0" + end.rjust(cells - 1))
    return "\n".join(lines)


def _delay(units: int, *, clock: bool) -> str:
    return show_duration(units, clock=clock) if units else "0"


def _share_at(points: Sequence[tuple[int, float]], x: int) -> float:
    """The share of a step curve at a delay."""
    share = points[0][1] if points else 0.0
    for at, value in points:
        if at > x:
            break
        share = value
    return share
