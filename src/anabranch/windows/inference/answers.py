"""Asking a black box: a callable, or a command that reads a probe and prints results.

**A callable** gets `(tuples, size, slide)` and returns the results in the order in which they
were shown.  Each result is a value, or a mapping with `value` and, if it is known, `start` and
`end` (the window is `[start, end)`) and `step` (any number that grows: results with the same
one were shown together).  More fields distinguish more settings.  None: the
engine rejects such a query (for instance a slide above the size).

**A command** is a list of words, run without a shell, once for each run of a probe.

* `format="json"`: it reads one object, `{"size": 4, "slide": 2, "agg": "sum", "tuples":
  [{"time": 3, "value": 1, "batch": 1}, {"stable": 9}, ...]}`, and prints one list of results,
  or `null` for a query that it does not take.
* `format="csv"`: `{size}`, `{slide}` and `{agg}` in its words are replaced; it reads lines
  `time,value,batch` with that header, and prints one value per line (an empty line for none),
  or lines with a header that has `value`.  A printed `refused` is a query it does not take.

A command that is not there, takes longer than `timeout` seconds, exits with anything but 0 or
prints something else is an error that names the probe.
"""

import csv
import io
import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anabranch.errors import AnabranchError, InputError, RunError, UsageError
from anabranch.model import Stable
from anabranch.windows.inference.probes import FIELDS, Probe, Shown, rounded
from anabranch.windows.stream import Arrival

Run: TypeAlias = Callable[[Sequence[Arrival | Stable], int, int], Iterable[Any] | None]


@dataclass(frozen=True, slots=True)
class Command:
    """A command as an engine: how it is called, and what it reads and prints."""

    words: tuple[str, ...]
    format: Literal["json", "csv"] = "json"
    agg: str = "sum"
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not self.words or not all(isinstance(word, str) and word for word in self.words):
            message = (
                f"the command is {self.words!r}; give it as a list of words, "
                'for example ["python", "engine.py"]; no shell is used'
            )
            raise UsageError(message)
        if self.format not in {"json", "csv"}:
            message = f"the format of the command is {self.format!r}; expected json or csv"
            raise UsageError(message)
        if not self.timeout > 0:
            message = f"the timeout is {self.timeout}; give seconds above 0"
            raise UsageError(message)
        if self.format == "csv" and not all(
            any(hole in word for word in self.words) for hole in ("{size}", "{slide}")
        ):
            message = (
                f"the command {' '.join(self.words)} reads CSV, which does not contain the "
                "window; put {size} and {slide} into its words, or use format='json'"
            )
            raise UsageError(message)

    def __call__(
        self, tuples: Sequence[Arrival | Stable], size: int, slide: int
    ) -> list[Any] | None:
        """Run it once."""
        if self.format == "json":
            return _read_json(
                self._printed(list(self.words), _as_json(self, tuples, size, slide))
            )
        holes = {"{size}": str(size), "{slide}": str(slide), "{agg}": self.agg}
        words = list(self.words)
        for hole, value in holes.items():
            words = [word.replace(hole, value) for word in words]
        return _read_csv(self._printed(words, _as_csv(tuples)))

    def _printed(self, words: list[str], given: str) -> str:
        try:
            ran = subprocess.run(
                words,
                input=given,
                capture_output=True,
                text=True,
                timeout=self.timeout,
                check=False,
            )
        except FileNotFoundError as error:
            message = f"there is no command {words[0]!r}; give its path, or install it"
            raise UsageError(message) from error
        except PermissionError as error:
            message = f"the command {words[0]!r} may not be run; make the file executable"
            raise UsageError(message) from error
        except subprocess.TimeoutExpired as error:
            message = (
                f"{words[0]} gave no answer within {self.timeout:g} seconds; "
                "it must end after its input ends, or needs a longer timeout"
            )
            raise RunError(message) from error
        except UnicodeDecodeError as error:
            message = f"{words[0]} printed bytes that are not UTF-8 text ({error})"
            raise InputError(message) from error
        if ran.returncode != 0:
            message = (
                f"{words[0]} ended with exit code {ran.returncode}; its stderr: "
                f"{ran.stderr.strip()[-400:] or 'nothing'}"
            )
            raise RunError(message)
        return ran.stdout


def _as_json(
    command: Command, tuples: Sequence[Arrival | Stable], size: int, slide: int
) -> str:
    items = [
        {"stable": one.time}
        if isinstance(one, Stable)
        else {"time": one.time, "value": one.value, "batch": one.batch}
        for one in tuples
    ]
    return json.dumps({"size": size, "slide": slide, "agg": command.agg, "tuples": items})


def _as_csv(tuples: Sequence[Arrival | Stable]) -> str:
    lines = ["time,value,batch"]
    for one in tuples:
        if isinstance(one, Stable):
            message = "CSV has no word for a stable; use format='json', or stables=False"
            raise UsageError(message)
        lines.append(f"{one.time},{one.value},{one.batch}")
    return "\n".join(lines) + "\n"


def _read_json(text: str) -> list[Any] | None:
    try:
        found = json.loads(text)
    except ValueError as error:
        message = f"the command printed {text[:80]!r}, which is not JSON: {error}"
        raise InputError(message) from error
    if found is not None and not isinstance(found, list):
        message = f"the command printed {text[:80]!r}; expected one JSON list, or null"
        raise InputError(message)
    return found


def _read_csv(text: str) -> list[Any] | None:
    lines = text.splitlines()
    if [line.strip() for line in lines] == ["refused"]:
        return None
    if lines and "value" in lines[0].split(","):
        rows = csv.DictReader(io.StringIO(text))
        return [{key: _number(cell) for key, cell in row.items()} for row in rows]
    return [_number(line) for line in lines]


def _number(cell: object) -> int | float | None:
    text = cell.strip() if isinstance(cell, str) else ""
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError as error:
        message = f"the command printed {text[:80]!r} where a number was expected"
        raise InputError(message) from error


def as_run(run: Run | Command | Sequence[str] | None, agg: str, timeout: float) -> Run:
    """The engine as a callable."""
    if run is None:
        return lambda tuples, size, slide: None  # noqa: ARG005 - there is no engine to run
    if callable(run):
        return run
    if isinstance(run, str) or not isinstance(run, Sequence):
        message = (
            f"run is {run!r}; expected a callable (tuples, size, slide) -> results, or a "
            'command as a list of words, for example ["python", "engine.py"]'
        )
        raise UsageError(message)
    return Command(tuple(run), agg=agg, timeout=timeout)


def ask(run: Run, probe: Probe, number: int) -> tuple[Shown, ...] | None:
    """The answer of an engine to a probe, checked; None if it does not take the query."""
    where = f"probe {number} ({probe})"
    try:
        given = run(probe.tuples, probe.size, probe.slide)
        results = None if given is None else list(given)
    except AnabranchError as error:
        message = f"{where}: {error}"
        raise type(error)(message) from error
    except Exception as error:
        message = f"{where}: the engine failed with {type(error).__name__}: {error}"
        raise RunError(message) from error
    return None if results is None else read_results(results, where)


def read_results(results: Iterable[Any], where: str) -> tuple[Shown, ...]:
    """Results as they are compared, checked."""
    return tuple(_shown(one, f"{where}, result {n}") for n, one in enumerate(results, start=1))


def _shown(one: object, where: str) -> Shown:
    fields: Mapping[str, Any] = one if isinstance(one, Mapping) else {"value": one}
    if "value" not in fields or (unknown := set(fields) - set(FIELDS)):
        extra = (
            "" if "value" not in fields else f" (not {', '.join(sorted(map(str, unknown)))})"
        )
        message = (
            f"{where} is {one!r}; expected a value, or a mapping with value and perhaps "
            f"start, end and step{extra}"
        )
        raise InputError(message)
    for name in FIELDS[1:]:
        found = fields.get(name)
        if name in fields and (isinstance(found, bool) or not isinstance(found, int)):
            message = f"{where}: {name} is {found!r}; expected a whole number"
            raise InputError(message)
    value = rounded(fields["value"])
    if isinstance(value, str | bytes | bool | Mapping) or value != value:  # noqa: PLR0124
        message = f"{where}: the value is {value!r}; expected a number, a list or None"
        raise InputError(message)
    return Shown(value, fields.get("start"), fields.get("end"), fields.get("step"))


def fields_of(shown: Sequence[Shown]) -> frozenset[str]:
    """The fields that all these results have."""
    return frozenset(
        name
        for name in FIELDS
        if name == "value" or all(getattr(one, name) is not None for one in shown)
    )
