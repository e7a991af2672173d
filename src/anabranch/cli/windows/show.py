"""Output of the `windows` commands: lines, a drawing in the terminal, a picture in a file."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from anabranch.errors import FileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anabranch.cli.windows.query import Asked
    from anabranch.pictures import Timeline
    from anabranch.windows import Prediction

MOST_DRAWN: Final = 24
"""Windows of an engine up to which a drawing is shown unasked."""
FILE_WIDTH: Final = 120
_TIMES: Final = {"start", "end", "instant", "time", "stable"}
_STYLES: Final = {
    "plain": "",
    "title": "bold",
    "muted": "dim",
    "bar": "blue",
    "silent": "dim",
    "mark": "bold blue",
    "late": "bold dark_orange3",
    "stable": "green",
}


def picture_options(function: Any) -> Any:
    """`--picture` and `--timeline`."""
    function = click.option(
        "--timeline/--no-timeline",
        "drawn",
        default=None,
        help="Draw the timeline in the terminal.  [default: only if it is small]",
    )(function)
    return click.option(
        "--picture",
        "pictures",
        type=click.Path(path_type=Path),
        multiple=True,
        help="Also draw it into this .svg or .png file.",
    )(function)


def require_pictures(paths: "Sequence[Path]") -> None:
    """Raise before anything is computed if a picture cannot be written."""
    for path in paths:
        if path.suffix.lower() not in {".svg", ".png"}:
            message = f"--picture {path}: expected a name that ends with .svg or .png"
            raise UsageError(message)
        if not path.parent.is_dir():
            message = f"--picture {path}: there is no folder {path.parent}; make it first"
            raise FileError(message)
        if path.is_dir():
            message = f"--picture {path}: that is a folder; name a file"
            raise FileError(message)


def write_pictures(paths: "Sequence[Path]", seen: "Timeline") -> None:
    """Draw the timeline into each file, all or none."""
    from anabranch.pictures import draw_png, draw_svg

    draw: Callable[[Path], bytes] = lambda path: (  # noqa: E731
        draw_png(seen) if path.suffix.lower() == ".png" else draw_svg(seen).encode()
    )
    files = [(path, draw(path)) for path in paths]
    for path, content in files:
        try:
            path.write_bytes(content)
        except OSError as error:
            message = f"--picture {path}: cannot be written: {error.strerror}"
            raise FileError(message) from error


def timeline_of(asked: "Asked", predictions: "Sequence[Prediction]") -> "Timeline":
    """The timeline of an answer."""
    from anabranch.pictures import timeline

    return timeline(predictions, asked.tuples, clock=asked.clock)


def print_timeline(seen: "Timeline", *, drawn: bool | None) -> None:
    """Draw it where people look, as wide as that is; left out unasked where it is large."""
    from rich.console import Console
    from rich.text import Text

    from anabranch.pictures.text import ASCII, draw_text

    most = max(len(track.bars) + track.left_out for track in seen.tracks)
    if drawn is False or (drawn is None and most > MOST_DRAWN):
        return
    console = Console(highlight=False)
    width = console.width if console.is_terminal else FILE_WIDTH
    click.echo()
    for line in draw_text(seen, width, None if takes_unicode() else ASCII):
        pieces = [(text, _STYLES[role]) for role, text in line]
        console.print(Text.assemble(*pieces), soft_wrap=True)


def takes_unicode() -> bool:
    """Whether the terminal can show the letters of drawings."""
    try:
        "┣◆╌".encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def listed(values: "Sequence[Any]", limit: int) -> str:
    """Results in one line, the first of them."""
    from anabranch.windows.predict import show_value

    shown = ", ".join(f"({show_value(value)})" for value in values[:limit]) or "no result"
    rest = len(values) - limit
    return shown if rest <= 0 else f"{shown} ... and {rest:,} more (--limit shows more)"


def prediction_lines(predictions: "Sequence[Prediction]", limit: int) -> str:
    """What each engine returns, one line each."""
    widest = max(len(one.engine.name) for one in predictions)
    return "\n".join(
        f"{one.engine.name + ':':{widest + 1}} {listed(one.values, limit)}"
        for one in predictions
    )


def as_json(asked: "Asked", report: dict[str, Any]) -> str:
    """One JSON object; times are as in the file, whole numbers or timestamps."""
    times = "timestamp" if asked.clock else "integer"
    found = {"input": str(asked.path), "times": times, **report}
    return json.dumps(_plain(found, clock=asked.clock), allow_nan=False)


def _plain(value: Any, *, clock: bool, name: str = "") -> Any:
    from anabranch.pictures.axis import show_duration, show_time

    if isinstance(value, dict):
        return {key: _plain(one, clock=clock, name=key) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one, clock=clock) for one in value]
    if (
        clock
        and isinstance(value, int)
        and name in {"start", "end", "instant", "time", "stable"}
    ):
        return show_time(value, clock=True)
    if clock and isinstance(value, int) and name in {"size", "slide"}:
        return show_duration(value, clock=True)
    return value
