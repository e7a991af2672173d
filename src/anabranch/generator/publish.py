"""Writes generated replicas as an inbox, in files that appear atomically.

A file is written beside its place under a name that starts with `.` (no data, by the rules of
an inbox) and renamed.  `_replica.json` is there before the first element file.  A folder with
something in it is refused before anything is written.

* `write_inbox` writes all at once; `publish` lets files appear over time, as a `Schedule` per
  replica gives.  Both yield each new file, so that a caller can show it, or stop.
* Time is handed in: `publish` takes `sleep` and `clock`.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from anabranch.batch.batch import ADJUST, INSERT, STABLE
from anabranch.batch.buffers import one_array
from anabranch.errors import FileError, UsageError
from anabranch.generator.present import Presentation
from anabranch.generator.schedule import Schedule, timetable
from anabranch.generator.workload import Workload

log = logging.getLogger(__name__)

FILE_ROWS: Final = 50_000
REPLICA_FILE: Final = "_replica.json"
NOT_DATA: Final = ("_", ".")
_LINES_AT_ONCE: Final = 8_192


class FileFormat(Enum):
    """How element files are written."""

    PARQUET = "parquet"
    JSONL = "jsonl"


@dataclass(frozen=True, slots=True)
class Appeared:
    """One file that is there now, and what is in it."""

    replica: str
    path: Path
    inserts: int
    adjusts: int
    stables: int
    bytes: int

    @property
    def elements(self) -> int:
        """All rows of the file."""
        return self.inserts + self.adjusts + self.stables


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """Where replicas are written, and how; `names` has one name per replica, or is empty."""

    path: Path
    names: tuple[str, ...] = ()
    reference: Path | None = None
    file_format: FileFormat = FileFormat.PARQUET
    file_rows: int = FILE_ROWS


def write_inbox(workload: Workload, inbox: Inbox) -> Iterator[Appeared]:
    """Write every replica, one after the other; yields each file once it is there."""
    names = prepare(workload, inbox)
    for replica, name in enumerate(names):
        stream = workload.present(replica)
        for number in range(_files(stream, inbox.file_rows)):
            yield _write_part(workload, inbox, name, stream, number)


def publish(
    workload: Workload,
    inbox: Inbox,
    *,
    rate: float,
    sleep: Callable[[float], None],
    clock: Callable[[], float],
    schedules: Mapping[str, Schedule] | None = None,
) -> Iterator[Appeared]:
    """Let the files of all replicas appear over time, `rate` elements a second each."""
    check_rate(rate)
    planned = dict(schedules or {})
    unknown = sorted(set(planned) - set(replica_names(workload, inbox)))
    if unknown:
        message = f"no replica {', '.join(unknown)} to schedule; see the names of the replicas"
        raise UsageError(message)
    names = prepare(workload, inbox)
    stream = [workload.present(replica) for replica in range(len(names))]
    due = [
        timetable(
            _ends(stream[replica], inbox.file_rows) / rate,
            planned.get(name, Schedule()),
            np.random.default_rng(
                np.random.SeedSequence(workload.seed, spawn_key=(3, replica))
            ),
        )
        for replica, name in enumerate(names)
    ]
    plan = sorted((at, r, n) for r in range(len(names)) for n, at in enumerate(due[r].tolist()))
    begin = clock()
    for at, replica, number in plan:
        wait = at - (clock() - begin)
        if wait > 0:
            sleep(wait)
        yield _write_part(workload, inbox, names[replica], stream[replica], number)


def check_rate(rate: float) -> None:
    """Refuse a rate that no stream can have."""
    if not 0 < rate < float("inf"):
        message = f"--rate is {rate}; it must be more than 0 elements a second, and finite"
        raise UsageError(message)


def replica_names(workload: Workload, inbox: Inbox) -> tuple[str, ...]:
    """The names of the replicas: as given, or r0, r1, ..."""
    names = inbox.names or tuple(f"r{replica}" for replica in range(workload.replicas))
    if len(names) != workload.replicas:
        message = (
            f"--names has {len(names)} names ({', '.join(names)}) for --replicas "
            f"{workload.replicas}; give one name per replica"
        )
        raise UsageError(message)
    for name in names:
        if (
            not name
            or name.startswith(NOT_DATA)
            or set(name) & set("/\\\0")
            or name.strip() != name
        ):
            message = (
                f"replica name {name!r} cannot be a folder of an inbox; it must not be empty, "
                "start with '_' or '.', have a '/' or '\\' in it, or spaces around it"
            )
            raise UsageError(message)
    if len({name.casefold() for name in names}) < len(names):
        message = f"two replicas have one name: {', '.join(names)}; give each its own"
        raise UsageError(message)
    return names


def prepare(workload: Workload, inbox: Inbox) -> tuple[str, ...]:
    """Validate the request, then write the folders, the replica notes and the reference."""
    names = replica_names(workload, inbox)
    if inbox.file_rows < 1:
        message = f"--file-rows is {inbox.file_rows}; it must be at least 1"
        raise UsageError(message)
    _require_empty(inbox.path, "OUT")
    if inbox.reference is not None:
        _require_empty(inbox.reference, "--reference")
        _require_apart(inbox.path, inbox.reference)
    # Drawn before the first folder is made: a draw may still be refused.
    truth = workload.truth
    about = {
        "guarantee": None,
        "attachment": 1,
        "properties": workload.properties.to_dict(),
    }
    for name in names:
        folder = inbox.path / name
        _make(folder)
        write_whole(folder / REPLICA_FILE, json.dumps(about, indent=2).encode() + b"\n")
    if inbox.reference is not None:
        log.info(
            "writing the true history, %d events, to %s", len(truth.events), inbox.reference
        )
        _make(inbox.reference)
        write_whole(inbox.reference / "part-00000.parquet", workload.history())
    return names


def write_whole(path: Path, content: pa.Table | bytes) -> int:
    """Write a file beside its place and rename it; how many bytes it has."""
    temporary = path.with_name(f".{path.name}.writing")
    try:
        if isinstance(content, bytes):
            temporary.write_bytes(content)
        else:
            # Only `kind` repeats itself; dictionaries of the others cost time and save nothing.
            names = [name for name in content.column_names if name == "kind"]
            pq.write_table(content, temporary, use_dictionary=names, compression="zstd")
        size = temporary.stat().st_size
        temporary.rename(path)
    except OSError as error:
        message = (
            f"{path}: cannot be written ({error}); free some space, or choose another folder"
        )
        raise FileError(message) from error
    finally:
        temporary.unlink(missing_ok=True)
    return size


def _write_part(
    workload: Workload, inbox: Inbox, name: str, stream: Presentation, number: int
) -> Appeared:
    rows = slice(number * inbox.file_rows, (number + 1) * inbox.file_rows)
    table = workload.part(stream, rows)
    kinds = np.bincount(stream.kind[rows], minlength=3)
    path = inbox.path / name / f"part-{number:05d}.{inbox.file_format.value}"
    lines = inbox.file_format is FileFormat.JSONL
    size = write_whole(path, json_lines(table) if lines else table)
    return Appeared(
        name, path, int(kinds[INSERT]), int(kinds[ADJUST]), int(kinds[STABLE]), size
    )


def _files(stream: Presentation, rows: int) -> int:
    return -(-len(stream) // rows)


def _ends(stream: Presentation, rows: int) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """How many elements there are up to the end of each file."""
    return np.minimum(np.arange(1, _files(stream, rows) + 1) * rows, len(stream))


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        message = f"{folder}: the folder cannot be made ({error}); choose another place"
        raise FileError(message) from error


def _require_empty(folder: Path, option: str) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists():
        message = (
            f"{option} {folder} is there already and is not an empty folder; generate writes "
            "only into a new or empty one; name another, or remove it"
        )
        raise UsageError(message)


def _require_apart(out: Path, reference: Path) -> None:
    inbox, truth = out.resolve(), reference.resolve()
    inside = truth.is_relative_to(inbox) and truth != inbox
    hidden = inside and truth.relative_to(inbox).parts[0].startswith(NOT_DATA)
    if hidden or not (inside or inbox.is_relative_to(truth)):
        return
    message = (
        f"--reference {reference} and OUT {out} lie in one another, so that one would be read "
        "as a part of the other; name a folder outside of OUT"
    )
    raise UsageError(message)


def summarise(names: Sequence[str], files: Sequence[Appeared]) -> list[dict[str, int | str]]:
    """Per replica: what its files hold together."""
    counted = ("elements", "inserts", "adjusts", "stables", "bytes")
    summary: list[dict[str, int | str]] = []
    for name in names:
        own = [file for file in files if file.replica == name]
        sums = {key: sum(int(getattr(file, key)) for file in own) for key in counted}
        summary.append({"name": name, **sums, "files": len(own)})
    return summary


def json_lines(table: pa.Table) -> bytes:
    r"""A generated table as JSON lines, built in columns; nulls are left out.

    Times are integers, or ISO-8601 with a zone (`2026-01-01T00:00:20.000000Z`).  Strings are
    written as they are: the generator's letters need no escaping.

    >>> bytes(json_lines(pa.table({"kind": ["stable"], "start": [7], "end": pa.nulls(1)})))
    b'{"kind":"stable","start":7}\n'
    """
    begins = range(0, table.num_rows, _LINES_AT_ONCE)
    parts = [_lines(table.slice(at, _LINES_AT_ONCE)) for at in begins]
    return b"".join(memoryview(part) for part in parts)


def _lines(table: pa.Table) -> pa.Buffer:
    members = [_member(name, one_array(table.column(name))) for name in table.column_names]
    body = pc.binary_join_element_wise(*members, ",", null_handling="skip")
    lines = pc.binary_join_element_wise("{", body, "}\n", "")
    # The lines of one array lie one after the other in its last buffer.
    return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())


def _member(name: str, column: pa.Array) -> pa.Array:
    """`"name":value` per row; null where the value is."""
    if pt.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    if pt.is_string(column.type):
        return pc.binary_join_element_wise(f'"{name}":"', column, '"', "")
    if pt.is_timestamp(column.type):
        # Without a zone, the cast needs no time zone database; the zone is written by us.
        text = pc.cast(column.view(pa.timestamp("us")), pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(f'"{name}":"', text, 'Z"', "")
    return pc.binary_join_element_wise(f'"{name}":', pc.cast(column, pa.string()), "")
