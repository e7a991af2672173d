"""A recorded run for `anabranch windows infer`: tuples in one CSV file, results in another.

The results have a column `value` and perhaps `start`, `end` (the window is `[start, end)`, in
the kind of time that the tuples have) and `step`, a whole number that grows: results with the
same one were shown together.  Without --results the tuples are given to the engine itself.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from anabranch.errors import InputError, UsageError

if TYPE_CHECKING:
    from anabranch.cli.windows.query import Asked
    from anabranch.windows import Inference, Parameter, Recorded, Space
    from anabranch.windows.inference.answers import Run

_F = TypeVar("_F", bound=Callable[..., Any])
_PATH: Final = click.Path(path_type=Path)
_OF_INPUT: Final = ("value", "size", "slide", "batch", "stable", "results")
_DURATIONS: Final = {"delays": "--delay", "latenesses": "--lateness", "offsets": "--offset"}
_TIMED: Final = {"progress.delay", "progress.lateness", "start.offset"}
_FOREVER: Final = "forever"


def recording_options(function: _F) -> _F:
    """The options of a recorded run, in the order of the help text."""
    options = [
        click.option("--input", "path", type=_PATH, help="A CSV file of tuples."),
        click.option(
            "--results",
            type=_PATH,
            help="A CSV file of what the engine showed for them: value, start, end, step.",
        ),
        click.option("--time", default="time", show_default=True, help="Column of times."),
        click.option("--value", help="Column of values; count needs none."),
        click.option("--size", help='Length of the windows of --input: 5, or "5 minutes".'),
        click.option("--slide", help="Distance between window starts.  [default: the size]"),
        click.option("--batch", help="Column of batch numbers.  [default: one per tuple]"),
        click.option("--stable", help="Application time reached after the last tuple."),
        click.option("--delimiter", default=",", show_default=True, help="Separator."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def space_options(function: _F) -> _F:
    """The numbers to consider."""
    usual = {"delays": "0, 2, 5", "latenesses": f"0, 2, {_FOREVER}", "offsets": "0, 1, 2"}
    for name, option in reversed(_DURATIONS.items()):
        text = (
            f"One {option[2:]} to consider; may be repeated.  "
            f"[default: {usual[name]}; with timestamps 0]"
        )
        function = click.option(option, name, multiple=True, help=text)(function)
    return function


@dataclass(frozen=True, slots=True)
class Recording:
    """What was asked for: nothing but probes, tuples for the engine, or a recorded run."""

    asked: "Asked | None"
    results: "list[dict[str, Any]] | None"

    def recorded(self, run: "Run | None") -> "list[Recorded]":
        """The recording; `run` makes it if only the tuples are given."""
        from anabranch.windows import Recorded
        from anabranch.windows.inference.answers import ask
        from anabranch.windows.inference.probes import Probe

        if self.asked is None:
            return []
        query, given = self.asked.query, self.asked.tuples
        if self.results is not None or run is None:
            return [Recorded(query.size, query.slide, given, self.results or [])]
        probe, _ = Recorded(query.size, query.slide, given, []).read(1)
        shown = ask(run, Probe(query.size, query.slide, probe.tuples), 0)
        if shown is None:
            message = f"{self.asked.path}: the engine does not take this query; try another"
            raise InputError(message)
        results = [
            {name: one for name, one in result._asdict().items() if one is not None}
            for result in shown
        ]
        return [
            Recorded(
                query.size, query.slide, given, [{"value": None, **one} for one in results]
            )
        ]

    @property
    def clock(self) -> bool:
        """Whether times are timestamps."""
        return self.asked is not None and self.asked.clock

    def space(self, options: dict[str, Any]) -> "Space":
        """The numbers to consider, in the unit of the times."""
        from anabranch.batch.schema import TimeType
        from anabranch.batch.times import to_units
        from anabranch.windows import Space

        kind = TimeType.TIMESTAMP if self.clock else TimeType.BIGINT
        # Numbers of microseconds by chance would never be right.
        values: dict[str, Any] = (
            {"delays": (0,), "latenesses": (0, None), "offsets": (0,), "periods": (1,)}
            if self.clock
            else {}
        )
        for name, option in _DURATIONS.items():
            if options[name]:
                values[name] = tuple(
                    None
                    if text == _FOREVER and name == "latenesses"
                    else to_units(text, kind, option=option)
                    for text in options[name]
                )
        return Space(**values)

    def text(self, found: "Inference") -> str:
        """The answer for people; timestamps and durations where there are such."""
        shown = str(self._plain(found))
        return self.asked.show(shown) if self.asked is not None else shown

    def json(self, found: "Inference") -> str:
        """The answer as one object."""
        from anabranch.cli.windows.show import as_json

        report = self._plain(found).to_dict()
        return json.dumps(report) if self.asked is None else as_json(self.asked, report)

    def _plain(self, found: "Inference") -> "Inference":
        if not self.clock:
            return found
        # Inputs that were searched or proposed have small numbers, which timestamps are not.
        shown = tuple(map(_with_durations, found.parameters))
        return replace(found, parameters=shown, next_probe=None, searched=0)


def _with_durations(parameter: "Parameter") -> "Parameter":
    from anabranch.pictures.axis import show_duration

    if parameter.name not in _TIMED:
        return parameter
    values, tried = (
        tuple(
            show_duration(value, clock=True) if isinstance(value, int) and value else value
            for value in some
        )
        for some in (parameter.values, parameter.tried)
    )
    return replace(parameter, values=values, tried=tried)


def read_recording(options: dict[str, Any], *, runs: bool) -> Recording:
    """Read the files, if there are any."""
    from anabranch.cli.windows.query import ask

    if options["path"] is None:
        lone = [f"--{name}" for name in _OF_INPUT if options[name] is not None]
        if lone:
            message = f"{lone[0]} belongs to --input, a CSV file of tuples; name that too"
            raise UsageError(message)
    if not runs and (options["path"] is None or options["results"] is None):
        message = (
            "there is nothing to infer from; give --command, an engine to run, or --input and "
            "--results, a run of it that was recorded"
        )
        raise UsageError(message)
    if options["path"] is None:
        return Recording(None, None)
    if options["size"] is None:
        message = "--input needs --size, the length of the windows of that run"
        raise UsageError(message)
    asked = ask({**options, "arrived": None}, ())
    if runs and asked.clock:
        message = (
            f"{options['path']} has timestamps, and probes have small whole numbers; give "
            "whole numbers, or a recorded run with --results and without --command"
        )
        raise UsageError(message)
    if options["results"] is None:
        return Recording(asked, None)
    return Recording(asked, _results(options, clock=asked.clock))


def _results(options: dict[str, Any], *, clock: bool) -> list[dict[str, Any]]:
    from anabranch.cli.windows.input import read_columns, read_time, read_value

    path: Path = options["results"]
    found: list[dict[str, Any]] = []
    optional: Sequence[str] = ("start", "end", "step")
    for where, cells in read_columns(path, ("value",), optional, options["delimiter"]):
        value = read_value(cells["value"], where, numbers=True) if cells["value"] else None
        result: dict[str, Any] = {"value": value}
        for name in optional:
            if name not in cells:
                continue
            time, is_clock = read_time(cells[name], f"{where}: {name}")
            if is_clock != (clock and name != "step"):
                kinds = ("a whole number", "a timestamp")
                wanted = kinds[clock and name != "step"]
                message = f"{where}: {name} is {cells[name]!r}; expected {wanted}"
                raise InputError(message)
            result[name] = time
        found.append(result)
    return found
