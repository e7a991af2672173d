"""The options of the `windows` commands (file, query, engines), read and validated once.

An engine is a name with settings, as in `flink,delay=5,lateness=10`; settings are delay,
lateness, offset, keeps and idle_batches.  Durations are whole numbers, or, where times are
timestamps, text such as "5 minutes".
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from anabranch.errors import InputError, UsageError
from anabranch.model import Stable

if TYPE_CHECKING:
    from anabranch.windows import Engine, Query
    from anabranch.windows.stream import Given

_PATH = click.Path(path_type=Path)
_F = TypeVar("_F", bound=Callable[..., Any])
_ANY_VALUE: Final = {"count", "collect"}
_SETTINGS: Final = ("delay", "lateness", "offset", "keeps", "idle_batches")
_LONG_NUMBER: Final = re.compile(r"(?<![\w.])-?\d{12,}(?![\w.])")

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")


def query_options(function: _F) -> _F:
    """The options of a query, in the order of the help text."""
    options = [
        click.option("--input", "path", type=_PATH, required=True, help="A CSV file."),
        click.option("--time", default="time", show_default=True, help="Column of times."),
        click.option("--value", help="Column of values; count needs none."),
        click.option("--size", required=True, help='Length of a window: 5, or "5 minutes".'),
        click.option("--slide", help="Distance of windows.  [default: the size]"),
        click.option("--agg", default="count", show_default=True, help="The aggregate."),
        click.option(
            "--by",
            type=click.Choice(["time", "rows", "arrival"]),
            default="time",
            show_default=True,
            help="What windows count: times, tuples, or times of arrival.",
        ),
        click.option("--batch", help="Column of batch numbers.  [default: one per tuple]"),
        click.option("--arrived", help="Column of arrival times.  [default: the order]"),
        click.option("--stable", help="Application time reached after the last tuple."),
        click.option("--delimiter", default=",", show_default=True, help="Separator."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def engine_option(help_text: str) -> Callable[[_F], _F]:
    """`--engine`, as often as wanted."""
    return click.option("--engine", "engines", multiple=True, required=True, help=help_text)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that can be answered."""

    path: Path
    query: "Query"
    engines: tuple["Engine", ...]
    tuples: tuple["Given", ...]
    clock: bool
    """Whether times are timestamps, in microseconds."""

    def show(self, text: str) -> str:
        """The text with timestamps where it has microseconds of the input's time.

        The model uses units; only numbers near the times of the input are taken for
        times.
        """
        times = [int(one.time) for one in self.tuples if not isinstance(one, tuple)]
        if not self.clock or not times:
            return text
        margin = 4 * (self.query.size + self.query.slide) + max(times) - min(times)
        near = range(min(times) - margin, max(times) + margin + 1)
        return _LONG_NUMBER.sub(lambda found: _shown(found[0], near), text)

    @contextmanager
    def named(self) -> Iterator[None]:
        """Add the file to errors of the model."""
        try:
            yield
        except InputError as error:
            message = f"{self.path}: {self.show(str(error))} (item 1 is below the first line)"
            raise type(error)(message) from error


def _shown(text: str, near: range) -> str:
    from anabranch.pictures.axis import show_time

    return show_time(int(text), clock=True) if int(text) in near else text


def ask(options: dict[str, Any], engines: tuple[str, ...]) -> Asked:
    """Read the file, then what depends on its kind of times."""
    from anabranch.batch.schema import TimeType
    from anabranch.cli.windows.input import Columns, read_csv
    from anabranch.windows import Query
    from anabranch.windows.aggregate import aggregate

    agg, by = options["agg"], options["by"]
    aggregate(agg)
    if options["value"] is None and agg != "count":
        message = f"--agg {agg} needs values; name their column with --value"
        raise UsageError(message)
    if len(options["delimiter"]) != 1:
        message = f"--delimiter is {options['delimiter']!r}; expected one character"
        raise UsageError(message)
    columns = Columns(*(options[name] for name in ("time", "value", "batch", "arrived")))
    read = read_csv(
        options["path"], columns, numbers=agg not in _ANY_VALUE, delimiter=options["delimiter"]
    )
    if not read.arrivals:
        message = f"{options['path']}: there are no lines below the first; nothing to predict"
        raise InputError(message)
    clock = read.arrived_clock if by == "arrival" else read.clock
    kind = TimeType.TIMESTAMP if clock and by != "rows" else TimeType.BIGINT
    lengths = [
        _length(options[name] or options["size"], kind, f"--{name}") for name in _LENGTHS
    ]
    stable = _stable(options["stable"], by, clock=read.clock)
    kind = TimeType.TIMESTAMP if clock else TimeType.BIGINT
    found = tuple(read_engine(one, kind) for one in engines)
    query = Query(lengths[0], lengths[1], agg, by)
    return Asked(options["path"], query, found, (*read.arrivals, *stable), clock)


_LENGTHS: Final = ("size", "slide")


def _length(text: str, kind: Any, option: str) -> int:
    from anabranch.batch.times import to_units

    units = to_units(text, kind, option=option)
    if units < 1:
        message = f"{option} is {text}; a window needs a length of at least 1 unit"
        raise UsageError(message)
    return units


def _stable(text: str | None, by: str, *, clock: bool) -> tuple[Stable, ...]:
    from anabranch.cli.windows.input import read_time

    if text is None:
        return ()
    if by == "arrival":
        message = "--stable is an application time, which --by arrival does not use; drop it"
        raise UsageError(message)
    time, is_clock = read_time(text, "--stable")
    if is_clock != clock:
        kinds = ("whole numbers", "timestamps")
        message = f"--stable {text}: the times of the file are {kinds[clock]}; give one of them"
        raise UsageError(message)
    return (Stable(time),)


def read_engine(text: str, kind: Any) -> "Engine":
    """An engine by its name and settings; it is called as it was written."""
    from anabranch.batch.times import to_units
    from anabranch.windows import engine

    name, *parts = (part.strip() for part in text.split(","))
    settings: dict[str, Any] = {}
    for part in parts:
        key, equals, value = (word.strip() for word in part.partition("="))
        if not equals or key not in _SETTINGS:
            message = (
                f"--engine {text}: {part!r} is not a setting; expected NAME,delay=5 with one "
                f"of {', '.join(_SETTINGS)}"
            )
            raise UsageError(message)
        if key == "keeps":
            settings[key] = value
        elif key == "idle_batches":
            settings[key] = _yes(value, text)
        else:
            settings[key] = to_units(value, kind, option=f"--engine {name},{key}=")
    called = ", ".join([engine(name).name, *parts])
    return replace(engine(name, **settings), name=called)


def _yes(value: str, text: str) -> bool:
    if value.lower() not in {"yes", "no", "true", "false"}:
        message = f"--engine {text}: idle_batches is {value!r}; expected yes or no"
        raise UsageError(message)
    return value.lower() in {"yes", "true"}
