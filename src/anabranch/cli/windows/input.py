"""A CSV file as tuples: its first line names the columns, each line below is one arrival.

Times are whole numbers, or ISO-8601 timestamps (without a zone: UTC), the same in all lines;
timestamps become microseconds.  Values are numbers; `count` and `collect` take any text.
Whatever cannot be read is named with its line, and nothing is guessed or skipped.
"""

import csv
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from anabranch.errors import FileError, InputError, SchemaError
from anabranch.windows.stream import Arrival

_WHOLE: Final = re.compile(r"[+-]?\d+")


@dataclass(frozen=True, slots=True)
class Columns:
    """The names of the columns; only the time is required."""

    time: str
    value: str | None = None
    batch: str | None = None
    arrived: str | None = None


@dataclass(frozen=True, slots=True)
class Read:
    """The tuples of a file, and whether its times are timestamps."""

    arrivals: tuple[Arrival, ...]
    clock: bool
    arrived_clock: bool = False


def read_csv(path: Path, columns: Columns, *, numbers: bool, delimiter: str = ",") -> Read:
    """The tuples in the order of the file; `numbers`: values must be numbers."""
    lines = _lines(path, delimiter)
    header = _header(path, lines)
    places = {
        name: _column(path, header, getattr(columns, name), f"--{name}", delimiter)
        for name in ("time", "value", "batch", "arrived")
    }
    arrivals: list[Arrival] = []
    clocks: dict[str, bool] = {}
    for where, cells in _cells(path, header, lines, places):
        arrivals.append(_arrival(where, cells, clocks, numbers=numbers))
    return Read(tuple(arrivals), clocks.get("time", False), clocks.get("arrived", False))


def read_columns(
    path: Path, names: Sequence[str], optional: Sequence[str], delimiter: str
) -> Iterator[tuple[str, dict[str, str]]]:
    """The cells of these columns, line by line, each with its place; some may be absent."""
    lines = _lines(path, delimiter)
    header = _header(path, lines)
    known = [cell.strip() for cell in header]
    chosen = [*names, *(name for name in optional if name in known)]
    places = {name: _column(path, header, name, "--results", delimiter) for name in chosen}
    yield from _cells(path, header, lines, places)


def _header(path: Path, lines: Iterator[tuple[int, list[str]]]) -> list[str]:
    _, header = next(lines, (0, []))
    if not header:
        message = f"{path}: the file is empty; expected a first line with column names"
        raise InputError(message)
    return header


def _cells(
    path: Path,
    header: Sequence[str],
    lines: Iterator[tuple[int, list[str]]],
    places: dict[str, int | None],
) -> Iterator[tuple[str, dict[str, str]]]:
    for line, row in lines:
        where = f"{path}, line {line}"
        if len(row) != len(header):
            message = (
                f"{where}: {len(row)} fields, the first line has {len(header)}; "
                "put fields with a separator in quotes"
            )
            raise InputError(message)
        yield where, {name: row[at].strip() for name, at in places.items() if at is not None}


def _arrival(
    where: str, cells: dict[str, str], clocks: dict[str, bool], *, numbers: bool
) -> Arrival:
    times: dict[str, int] = {}
    for name in ("time", "arrived"):
        if name in cells:
            times[name], clock = read_time(cells[name], f"{where}: {name}")
            if clocks.setdefault(name, clock) != clock:
                message = (
                    f"{where}: {name} {cells[name]!r}, but the lines above have "
                    f"{'timestamps' if clocks[name] else 'whole numbers'}; use one kind"
                )
                raise InputError(message)
    value = read_value(cells["value"], where, numbers=numbers) if "value" in cells else None
    batch = _whole(cells["batch"], f"{where}: batch") if "batch" in cells else None
    return Arrival(times["time"], value, times.get("arrived"), batch)


def read_time(text: str, where: str) -> tuple[int, bool]:
    """A time in units, and whether it is a timestamp (microseconds since 1970, UTC).

    >>> read_time("37", "here"), read_time("1970-01-01T00:00:01Z", "here")
    ((37, False), (1000000, True))
    """
    if _WHOLE.fullmatch(text):
        return int(text), False
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        message = (
            f"{where} {text!r} is not a time; expected a whole number of units (choose a "
            "smaller unit for fractions), or a timestamp such as 2026-01-31T09:05:00Z"
        )
        raise InputError(message) from None
    from anabranch.batch.times import instant_units

    return instant_units(instant), True


def _whole(text: str, where: str) -> int:
    if not _WHOLE.fullmatch(text):
        message = f"{where} {text!r} is not a whole number"
        raise InputError(message)
    return int(text)


def read_value(text: str, where: str, *, numbers: bool) -> object:
    """A number; or any text, unless `numbers`."""
    if _WHOLE.fullmatch(text):
        return int(text)
    try:
        number = float(text)
    except ValueError:
        if not numbers:
            return text
        message = f"{where}: the value {text!r} is not a number; --agg count takes any value"
        raise InputError(message) from None
    if not math.isfinite(number):
        message = f"{where}: the value is {text}; no result follows from it: remove the line"
        raise InputError(message)
    return number


def _lines(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that are not empty, with their numbers."""
    if not path.exists():
        near = get_close_matches(path.name, _siblings(path), n=1)
        hint = f"; did you mean {path.with_name(near[0])}?" if near else ""
        message = f"{path}: there is no such file{hint}"
        raise FileError(message)
    if path.is_dir():
        message = f"{path} is a folder; expected one CSV file"
        raise FileError(message)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=delimiter, strict=True)
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
    except UnicodeDecodeError as error:
        message = f"{path}: not UTF-8 text ({error.reason} at byte {error.start}); convert it"
        raise FileError(message) from error
    except csv.Error as error:
        message = f"{path}, line {reader.line_num}: not CSV: {error}"
        raise InputError(message) from error
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise FileError(message) from error


def _siblings(path: Path) -> list[str]:
    try:
        return [one.name for one in path.parent.iterdir() if one.is_file()]
    except OSError:
        return []


def _column(
    path: Path, header: Sequence[str], name: str | None, option: str, delimiter: str
) -> int | None:
    if name is None:
        return None
    known = [cell.strip() for cell in header]
    if known.count(name) == 1:
        return known.index(name)
    if name in known:
        message = f"{path}: {known.count(name)} columns are called {name!r}; rename them"
        raise SchemaError(message)
    near = get_close_matches(name, known, n=1)
    other = next((mark for mark in ";\t|," if mark != delimiter and mark in header[0]), None)
    hint = f" did you mean {option} {near[0]}?" if near else ""
    if len(known) == 1 and other:
        hint = f" the line seems to be separated by {other!r}: use --delimiter {other!r}"
    message = f"{path}: no column {name!r} ({option}); there are {', '.join(known)}.{hint}"
    raise SchemaError(message)
