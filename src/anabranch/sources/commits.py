"""Which files of an output folder count: only those that Spark has committed.

* A folder `trigger-000000000012` counts when Spark's committer has put `_SUCCESS` into it.
* Where Spark's own file sink wrote (`_spark_metadata` is there), the files that its log lists
  count and no others; a compacted log file stands for all before it.
"""

import json
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from anabranch.errors import FileError

LOG: Final = "_spark_metadata"
SUCCESS: Final = "_SUCCESS"

_TRIGGER: Final = re.compile(r"trigger-\d+")
_ENTRY: Final = re.compile(r"(\d+)(\.compact)?")
_VERSION: Final = "v1"


def has_commits(folder: Path) -> bool:
    """Whether a folder is one that Spark commits into, trigger by trigger or by its log."""
    return (folder / LOG).is_dir() or any(
        _TRIGGER.fullmatch(entry.name) for entry in folder.iterdir() if entry.is_dir()
    )


def committed(folder: Path) -> tuple[Path, ...]:
    """The data files of such a folder that count, in the order of their triggers."""
    if (folder / LOG).is_dir():
        return _listed(folder)
    triggers = sorted(
        entry
        for entry in folder.iterdir()
        if entry.is_dir() and _TRIGGER.fullmatch(entry.name) and (entry / SUCCESS).is_file()
    )
    return tuple(file for trigger in triggers for file in data_files(trigger))


def data_files(folder: Path) -> list[Path]:
    """The files of a folder in name order; names that start with `_` or `.` are not data."""
    return sorted(
        entry for entry in folder.iterdir() if entry.is_file() and entry.name[0] not in "_."
    )


def _listed(folder: Path) -> tuple[Path, ...]:
    logs = []
    for entry in (folder / LOG).iterdir():
        match = _ENTRY.fullmatch(entry.name)
        if match:
            logs.append((int(match[1]), match[2] is not None, entry))
    logs.sort()
    compacts = [at for at, (_, is_compact, _) in enumerate(logs) if is_compact]
    counted: dict[Path, None] = {}
    for _, _, log in logs[compacts[-1] if compacts else 0 :]:
        for name, action in _entries(log):
            file = folder / name
            if action == "add":
                counted[file] = None
            else:
                counted.pop(file, None)
    missing = [file for file in counted if not file.is_file()]
    if missing:
        message = (
            f"{missing[0]}: Spark's sink log in {folder / LOG} lists it, but it is not there; "
            "the output folder is damaged; restore the file, or write the output anew"
        )
        raise FileError(message)
    return tuple(counted)


def _entries(log: Path) -> list[tuple[str, str]]:
    """The file names and actions of one log file."""
    try:
        version, *lines = log.read_text(encoding="utf-8").splitlines()
        if version.strip() != _VERSION:
            message = f"version {version!r}"
            raise ValueError(message)
        found = [json.loads(line) for line in lines if line.strip()]
        return [(_name(str(entry["path"])), str(entry["action"])) for entry in found]
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = (
            f"{log}: expected a sink log of Spark (a line '{_VERSION}', then one JSON object "
            f"per file), but {error}; the folder is damaged, or of an unknown Spark version"
        )
        raise FileError(message) from error


def _name(path: str) -> str:
    """The base name: the folder may have been moved since Spark wrote into it."""
    return unquote(urlparse(path).path).rpartition("/")[2]
