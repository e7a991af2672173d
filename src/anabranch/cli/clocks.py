"""`anabranch clocks`: which lateness a stream needs, and what each costs.

Exit code 0: answered.  2: the file, a column or an option cannot be read.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.windows.show import require_pictures
from anabranch.errors import FileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.clocks.estimate import Distances, Estimate
    from anabranch.pictures.curve import Curve

_LOSSES = (0.0, 0.00001, 0.0001, 0.001, 0.01, 0.05)
_SECOND = 1_000_000
_MOST_SOURCES = 20


@click.group("clocks")
def command() -> None:
    """Find the bounds of sources, and the lateness that a stream needs.

    Each command has --help with an example, and --json.
    """


@command.command("estimate")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--time", required=True, help="Column of the rows' own times.")
@click.option("--arrival", help="Column of arrival times.  Without it: the order of the file.")
@click.option("--source", help="Column that names the source.  Without it: one source.")
@click.option(
    "--loss",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.0001,
    show_default=True,
    help="Share of rows that may be late.",
)
@click.option("--delimiter", default=",", show_default=True, help="Separator of a CSV file.")
@click.option(
    "--picture",
    "pictures",
    type=click.Path(path_type=Path),
    multiple=True,
    help="File (.svg or .png) for the plot of delay against loss.",
)
@click.option("--bounds", type=click.Path(path_type=Path), help="TOML file for the bounds.")
@click.option("--plot/--no-plot", default=True, help="Plot in the terminal.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def estimate_command(
    *,
    file: Path,
    time: str,
    arrival: str | None,
    source: str | None,
    loss: float,
    delimiter: str,
    pictures: tuple[Path, ...],
    bounds: Path | None,
    plot: bool,
    as_json: bool,
) -> None:
    """Estimate the bounds of a recorded stream: CSV, Parquet or JSON lines.

    A row is late under a delay if it is further behind the greatest time that arrived before
    it.  Rows are taken in the order of arrival.

    \b
    anabranch clocks estimate examples/clocks_spikes.csv --time ts \\
        --arrival arrived --source sensor --loss 0.01 --picture loss.svg
    """  # noqa: D301
    from anabranch.cli.clocks_input import read_recording
    from anabranch.clocks.estimate import estimate_coded

    require_pictures(pictures)
    if len(delimiter) != 1:
        message = f"--delimiter is {delimiter!r}; expected one character"
        raise UsageError(message)
    read = read_recording(file, time=time, arrival=arrival, source=source, delimiter=delimiter)
    same = read.clock and read.arrival_clock
    found = estimate_coded(read.times, read.names, read.source, read.arrivals, delays=same)
    answer = Answer(file, time, found, loss, clock=read.clock, wall=read.arrival_clock)
    answer.write(pictures, bounds)
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.text(plot=plot))


class Answer:
    """What the command answers, as lines, as JSON and as files."""

    def __init__(
        self,
        path: Path,
        column: str,
        found: "Estimate",
        loss: float,
        *,
        clock: bool,
        wall: bool,
    ) -> None:
        self.path, self.column, self.found, self.loss = path, column, found, loss
        self.clock, self.wall = clock, wall
        self.delay = self.rounded(found.disorder.needed(loss))

    def rounded(self, units: int) -> int:
        """A delay that people would write: up to whole seconds or milliseconds."""
        if not self.clock:
            return units
        step = _SECOND if units >= _SECOND else 1000
        return -(-units // step) * step

    def show(self, units: int | None, *, wall: bool = False) -> str:
        """A distance, or a span of the wall clock."""
        from anabranch.batch.times import show_span

        if units is None:
            return "-"
        return show_span(units) if (self.wall if wall else self.clock) else str(units)

    def settings(self) -> dict[str, str]:
        """What to set elsewhere, with the share that is then late."""
        late = show_share(self.found.disorder.share_late(self.delay))
        if not self.clock:
            note = f"disorder({self.delay}): {late} late"
            return {"anabranch": note}
        millis = self.delay // 1000
        text = self.show(self.delay)
        found = {
            "spark": f"use withWatermark('{self.column}', '{text}'): {late} late",
            "flink": (
                "use WatermarkStrategy.forBoundedOutOfOrderness"
                f"(Duration.ofMillis({millis})): {late} late"
            ),
            "anabranch": f"use disorder({self.delay}) of anabranch.clocks: {late} late",
        }
        pause = self.found.pause
        if pause is not None and self.wall and len(self.found.by_source) > 1:
            idle = -(-2 * pause // _SECOND)
            found["flink idle"] = (
                f"add .withIdleness(Duration.ofSeconds({idle})): twice the longest pause of a "
                f"source, {self.show(pause, wall=True)}"
            )
        return found

    def text(self, *, plot: bool) -> str:
        """The answer as lines."""
        found = self.found
        count = len(found.by_source)
        head = f"{found.rows:,} rows of {count:,} source{'s' if count > 1 else ''}"
        lines = [head, "", *self._table(), "", *self._losses(), ""]
        lines += [f"{name}: {text}" for name, text in self.settings().items()]
        if found.delay is None:
            lines += ["", "Without arrival times of the same clock: disorder only."]
        if plot:
            from anabranch.cli.windows.show import takes_unicode
            from anabranch.pictures.curve import curve_text

            lines += ["", curve_text(self.curve(), ascii_only=not takes_unicode())]
        return "\n".join(lines)

    def _table(self) -> "list[str]":
        share = show_share(self.loss)
        heads = ["source", "rows", "disorder, none late", f"disorder, {share} late"]
        heads += [f"delay, {share} late", "longest pause"]
        by_need = sorted(self.found.by_source, key=lambda one: -one.disorder.needed(self.loss))
        rows = [
            [
                one.name,
                f"{one.rows:,}",
                self.show(one.disorder.needed(0.0)),
                self.show(one.disorder.needed(self.loss)),
                self.show(None if one.delay is None else one.delay.needed(self.loss)),
                self.show(one.pause, wall=True),
            ]
            for one in by_need[:_MOST_SOURCES]
        ]
        lines = _columns([heads, *rows])
        rest = len(by_need) - _MOST_SOURCES
        return [*lines, f"... and {rest:,} more sources that need less"] if rest > 0 else lines

    def _losses(self) -> "list[str]":
        heads = [
            "late at most",
            "disorder of all rows",
            *(["delay"] if self.found.delay else []),
        ]
        rows = [
            [
                show_share(loss),
                self.show(self.found.disorder.needed(loss)),
                *([self.show(self.found.delay.needed(loss))] if self.found.delay else []),
            ]
            for loss in sorted({*_LOSSES, self.loss})
        ]
        return _columns([heads, *rows])

    def curve(self) -> "Curve":
        """Delay against loss, with the chosen delay pointed out."""
        from anabranch.pictures.curve import Curve, Spot

        share = self.found.disorder.share_late(self.delay)
        label = f"{self.show(self.delay)}: {show_share(share)} late"
        return Curve(
            f"{self.path.name}: delay against loss",
            tuple(self.found.disorder.curve()),
            (Spot(self.delay, share, label),),
            clock=self.clock,
        )

    def write(self, pictures: "Sequence[Path]", bounds: Path | None) -> None:
        """The files that were asked for."""
        from anabranch.batch.schema import TimeType
        from anabranch.clocks.settings import to_toml
        from anabranch.pictures.curve import curve_png, curve_svg

        contents: list[tuple[Path, bytes]] = []
        for path in pictures:
            is_png = path.suffix.lower() == ".png"
            drawn = curve_png(self.curve()) if is_png else curve_svg(self.curve()).encode()
            contents.append((path, drawn))
        if bounds is not None:
            time = TimeType.TIMESTAMP if self.clock else TimeType.BIGINT
            contents.append((bounds, to_toml(self.found.bounds(self.loss), time).encode()))
        for path, content in contents:
            try:
                path.write_bytes(content)
            except OSError as error:
                message = f"{path}: cannot be written: {error.strerror}"
                raise FileError(message) from error

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON values; times are in units: microseconds for timestamps."""
        found = self.found
        return {
            "file": str(self.path),
            "times": "timestamp" if self.clock else "integer",
            "rows": found.rows,
            "loss": self.loss,
            "disorder": self.delay,
            "share_late": found.disorder.share_late(self.delay),
            "settings": self.settings(),
            "all": _needed(found.disorder, found.delay),
            "sources": [
                {
                    "name": one.name,
                    "rows": one.rows,
                    "longest_pause": one.pause,
                    **_needed(one.disorder, one.delay),
                }
                for one in found.by_source
            ],
            "skew": [
                {"from": i, "to": j, "needed": distances.needed(self.loss)}
                for (i, j), distances in found.skew.items()
            ],
            "curve": found.disorder.curve(),
        }


def _needed(disorder: "Distances", delay: "Distances | None") -> dict[str, Any]:
    table = {"disorder": {str(loss): disorder.needed(loss) for loss in _LOSSES}}
    if delay is not None:
        table["delay"] = {str(loss): delay.needed(loss) for loss in _LOSSES}
    return table


def show_share(share: float) -> str:
    """A share in percent, without needless zeros.

    >>> show_share(0.0001), show_share(0.05), show_share(0)
    ('0.01 %', '5 %', '0 %')
    """
    text = f"{share * 100:.4f}".rstrip("0").rstrip(".")
    return f"{text if share == 0 or float(text) else '< 0.0001'} %"


def _columns(rows: "list[list[str]]") -> "list[str]":
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
