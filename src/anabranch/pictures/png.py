"""A timeline as PNG, drawn by matplotlib: `pip install matplotlib`.

The shapes are those of the SVG.  No date and no version goes into the file.
"""

import io
import warnings
from typing import TYPE_CHECKING, Final

from anabranch.errors import SetupError
from anabranch.pictures.scene import PAPER, Box, Disc, Line, Scene, Shape, scene
from anabranch.pictures.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SCALE: Final = 2
"""Pixels for each pixel of the SVG: sharp on today's screens."""
_DPI: Final = 100


def draw_png(seen: Timeline) -> bytes:
    """The bytes of a PNG file."""
    return paint(scene(seen))


def paint(drawn: Scene) -> bytes:
    """The same for shapes that are laid out already."""
    try:
        from matplotlib import rc_context, rcdefaults
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as problem:
        message = (
            "a PNG picture needs matplotlib, which is not installed: "
            "pip install matplotlib, or ask for a .svg file, which needs nothing"
        )
        raise SetupError(message) from problem
    # The settings of this machine's user must not change the picture.
    with rc_context(), warnings.catch_warnings():
        # A letter that the font lacks becomes an empty box, which is good enough.
        warnings.filterwarnings("ignore", message="Glyph")
        rcdefaults()
        figure = Figure((drawn.width / _DPI, drawn.height / _DPI), dpi=_DPI * SCALE)
        figure.patch.set_facecolor(PAPER)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, drawn.width)
        axes.set_ylim(drawn.height, 0)
        for order, shape in enumerate(drawn.shapes):
            _put(axes, shape, order)
        target = io.BytesIO()
        figure.savefig(target, format="png", metadata={"Software": None})
    return target.getvalue()


def _points(pixels: float) -> float:
    """Lengths of strokes and letters are in points of 1/72 inch."""
    return pixels * 72 / _DPI


def _put(axes: "Axes", shape: Shape, order: int) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Circle

    if isinstance(shape, Box):
        _put_box(axes, shape, order)
    elif isinstance(shape, Line):
        axes.add_line(
            Line2D(
                [shape.x1, shape.x2],
                [shape.y1, shape.y2],
                color=shape.stroke,
                linewidth=_points(shape.width),
                linestyle=(0, (4 / shape.width, 3 / shape.width)) if shape.dashed else "-",
                zorder=order,
            )
        )
    elif isinstance(shape, Disc):
        place = (shape.x, shape.y)
        axes.add_patch(Circle(place, shape.radius, color=shape.fill, lw=0, zorder=order))
    else:
        axes.text(
            shape.x,
            shape.y,
            shape.text,
            parse_math=False,  # a $ is a $
            fontsize=_points(shape.size),
            color=shape.fill,
            fontweight="bold" if shape.bold else "normal",
            ha={"start": "left", "middle": "center", "end": "right"}[shape.anchor],
            va="baseline",
            zorder=order,
        )


def _put_box(axes: "Axes", box: Box, order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    radius = min(box.radius, box.width / 2, box.height / 2)
    style = f"round,pad=0,rounding_size={radius}" if radius else "square,pad=0"
    axes.add_patch(
        FancyBboxPatch(
            (box.x, box.y),
            box.width,
            box.height,
            boxstyle=style,
            facecolor=box.fill,
            edgecolor=box.stroke or "none",
            linewidth=_points(1) if box.stroke else 0,
            linestyle=(0, (4, 3)) if box.dashed else "-",
            zorder=order,
        )
    )
