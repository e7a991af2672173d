"""The settings in force, and where each one comes from.

A flag wins over the environment (`ANABRANCH_<NAME>`), that over the one settings file, that
over the default. The file is the first that exists of `$ANABRANCH_CONFIG`, `./anabranch.toml`
and `~/.config/anabranch/config.toml`. An unknown key is an error that names the nearest known
one.
"""

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import FileError, UsageError
from anabranch.spark.run.shares import WARN_SHARE
from anabranch.spark.session import host
from anabranch.spark.session.java import LOG_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

PREFIX = "ANABRANCH_"
CONFIG_VARIABLE = "ANABRANCH_CONFIG"
DEFAULT = "default"
"""The origin of a default value."""


@dataclass(frozen=True, slots=True)
class Key:
    """A setting that exists: how its text is read, its default, and what it does."""

    name: str
    read: Callable[[str], str | int | float | Path]
    default: Callable[[], str | int | float | Path | None]
    meaning: str

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


@dataclass(frozen=True, slots=True)
class Value:
    """A setting in force: its value, and the place that decided it."""

    name: str
    value: str | int | float | Path | None
    origin: str


def _read_lanes(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        message = "a whole number from 1"
        raise ValueError(message)
    return int(text)


def _read_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        message = "a share from 0 to 1, such as 0.01"
        raise ValueError(message)
    return share


def _read_kept(text: str) -> str:
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"\d+|\d+ [a-z]+", part) for part in parts):
        message = "a number of triggers, a time, or both: 1000, 7 days"
        raise ValueError(message)
    return text


def _read_bytes(text: str) -> int:
    try:
        return host.to_bytes(text, option="max_bytes_per_trigger")
    except UsageError as error:
        message = "a number of bytes, such as 128m"
        raise ValueError(message) from error


def _read_memory(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d*[mMgG]", text):
        message = "a size such as 2g or 1500m"
        raise ValueError(message)
    return text


def _read_text(text: str) -> str:
    if not text.strip():
        message = "a text that is not empty"
        raise ValueError(message)
    return text


def _read_path(text: str) -> Path:
    return Path(_read_text(text)).expanduser().absolute()


KEYS: tuple[Key, ...] = (
    Key("master", _read_text, lambda: "local[*]", "where Spark runs"),
    Key(
        "driver_memory",
        _read_memory,
        lambda: host.COMMAND_HEAP,
        "heap of Spark's driver; on a cluster by default a third of the memory",
    ),
    Key(
        "lanes",
        _read_lanes,
        host.cores,
        "key groups of a new query",
    ),
    Key(
        "warn_share",
        _read_share,
        lambda: WARN_SHARE,
        "merge: warn if more of the rows are late, violations or missing; 0: never",
    ),
    Key(
        "keep_progress",
        _read_kept,
        lambda: "1000",
        "merge: triggers whose progress is kept, or for how long, such as 7 days",
    ),
    Key(
        "max_bytes_per_trigger",
        _read_bytes,
        lambda: host.TRIGGER_BYTES,
        "merge: bytes of rows that a trigger takes of an inbox",
    ),
    Key("log_file", _read_path, lambda: None, "Spark's log; unset: one per run in cache_dir"),
    Key("cache_dir", _read_path, host.cache_dir, "what Anabranch makes for itself"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings with their origins; the attributes give the values."""

    values: Mapping[str, Value]
    file: Path | None

    @property
    def master(self) -> str:
        """Where Spark runs."""
        return str(self.values["master"].value)

    @property
    def driver_memory(self) -> str:
        """The heap of Spark's driver."""
        return str(self.values["driver_memory"].value)

    @property
    def lanes(self) -> int:
        """Key groups of a new query."""
        return int(str(self.values["lanes"].value))

    @property
    def warn_share(self) -> float:
        """The share of late, missing or violating rows above which a merge warns."""
        return float(str(self.values["warn_share"].value))

    @property
    def keep_progress(self) -> str:
        """Triggers whose records of progress are kept, or for how long."""
        return str(self.values["keep_progress"].value)

    @property
    def max_bytes_per_trigger(self) -> int:
        """Bytes of rows that a trigger takes of an inbox."""
        return int(str(self.values["max_bytes_per_trigger"].value))

    @property
    def log_file(self) -> Path | None:
        """Spark's log file, if one was named."""
        value = self.values["log_file"].value
        return None if value is None else Path(str(value))

    @property
    def cache_dir(self) -> Path:
        """The folder for what Anabranch makes for itself."""
        return Path(str(self.values["cache_dir"].value))

    def start_session(
        self, *, app_name: str = "anabranch", config: Mapping[str, str] | None = None
    ) -> "SparkSession":
        """A Spark session with these settings; `config` are settings of Spark's, and win."""
        from anabranch.spark.session.start import session

        # Options of spark-submit take precedence over defaults.
        is_default = self.values["driver_memory"].origin == DEFAULT
        heap = {"spark.driver.memory": self.driver_memory}
        return session(
            master=None if self.values["master"].origin == DEFAULT else self.master,
            app_name=app_name,
            config=({} if is_default else heap) | dict(config or {}),
            log_path=self.log_file,
            cache=self.cache_dir,
            usual=heap if is_default and self.master.startswith("local") else None,
        )


def load(
    *,
    flags: Mapping[str, str | int | Path | None] | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Settings:
    """Read all settings; a flag that is None was not given."""
    variables = os.environ if environment is None else environment
    file = find_file(variables, folder or Path.cwd())
    in_file = {} if file is None else _read_file(file)
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    _warn_of_typos(variables)
    values: dict[str, Value] = {}
    for key in KEYS:
        if key.name in given:
            flag = "--" + key.name.replace("_", "-")
            values[key.name] = _value(key, given[key.name], f"flag {flag}")
        elif key.variable in variables:
            values[key.name] = _value(
                key, variables[key.variable], f"environment {key.variable}"
            )
        elif key.name in in_file:
            values[key.name] = _value(key, in_file[key.name], f"file {file}")
        else:
            values[key.name] = Value(key.name, key.default(), DEFAULT)
    return Settings(values, file)


def find_file(variables: Mapping[str, str], folder: Path) -> Path | None:
    """The one settings file, if there is one. Raises FileError if a named one is not there."""
    named = variables.get(CONFIG_VARIABLE)
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            message = (
                f"{CONFIG_VARIABLE} names {path}, which is not a file; make it, or unset it"
            )
            raise FileError(message)
        return path
    home = Path(variables.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    places = (folder / "anabranch.toml", home / "anabranch" / "config.toml")
    return next((place for place in places if place.is_file()), None)


def _read_file(file: Path) -> dict[str, object]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        message = f"the settings file {file} cannot be read: {problem}; it must be TOML"
        raise FileError(message) from problem
    for name in content:
        if name not in {key.name for key in KEYS}:
            message = f"the settings file {file} has an unknown key {name!r}; {_hint(name)}"
            raise UsageError(message)
    return content


def _warn_of_typos(variables: Mapping[str, str]) -> None:
    """Name variables that look like a misspelt setting; others may use the prefix too."""
    known = {CONFIG_VARIABLE, LOG_VARIABLE, *(key.variable for key in KEYS)}
    for name in sorted(variables):
        near = _nearest(name.removeprefix(PREFIX).lower(), cutoff=0.75)
        if name.startswith(PREFIX) and name not in known and near:
            meant = PREFIX + near.upper()
            log.warning(
                "the environment variable %s is not a setting; did you mean %s?", name, meant
            )


def _hint(name: str) -> str:
    near = _nearest(name, cutoff=0.6)
    names = ", ".join(key.name for key in KEYS)
    return f"did you mean {near!r}?" if near else f"known are {names}"


def _nearest(name: str, *, cutoff: float) -> str | None:
    near = difflib.get_close_matches(name, [key.name for key in KEYS], n=1, cutoff=cutoff)
    return near[0] if near else None


def _value(key: Key, raw: object, origin: str) -> Value:
    # TOML has types of its own: a number is fine for lanes, true or a list never is.
    if isinstance(raw, (str, int, float, Path)) and not isinstance(raw, bool):
        try:
            return Value(key.name, key.read(str(raw)), origin)
        except ValueError as problem:
            message = f"{origin}: {key.name} must be {problem}, not {raw!r}"
            raise UsageError(message) from problem
    message = f"{origin}: {key.name} must be a text or a number, not {raw!r}"
    raise UsageError(message)
