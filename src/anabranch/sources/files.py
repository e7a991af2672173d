"""`look`: the format, layout and schema of a path, before any row is read.

    stream      element files                   reference   files without `kind`
    inbox       one sub-folder per replica      output      what a merge wrote (elements/ ...)

All files of a folder have one format and one schema: Parquet footers are read, JSON lines are
read whole (or their schema is given), and what does not fit raises `FileError` or `SchemaError`
that names the file, the column, what was expected and what to do.  Names that start with `_`
or `.` are not data.  In an output only committed files count.

Not checked here: rows.  See `anabranch.sources.elements`.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from anabranch.batch.schema import (
    END,
    KIND,
    OLD_END,
    START,
    TIME_COLUMNS,
    ElementSchema,
    TimeType,
    payload_schema,
)
from anabranch.errors import FileError, SchemaError
from anabranch.sinks.published import tail_of
from anabranch.sources import jsonl
from anabranch.sources.channels import ELEMENTS, LATE, PROGRESS, VIOLATIONS
from anabranch.sources.commits import committed, data_files, has_commits
from anabranch.sources.jsontypes import common_json
from anabranch.sources.notes import ReplicaNote, read_note
from anabranch.sources.plain import PlainRows
from anabranch.sources.typenames import read_schema_file
from anabranch.sources.unify import common_type, lacking, missing, unify

DETACHED: Final = "_detached"
PAUSED: Final = "_paused"
OTHER_CHANNELS: Final = (LATE, VIOLATIONS, PROGRESS)


class Layout(Enum):
    """How the files of a path are arranged, and what they hold."""

    STREAM = "stream"
    INBOX = "inbox"
    OUTPUT = "output"
    REFERENCE = "reference"


class Format(Enum):
    """How a file is written; by the end of its name."""

    PARQUET = "parquet"
    JSONL = "jsonl"


_RUN: Final = "_run.json"
"""The record of the run that writes an output."""

SUFFIXES: Final = {
    ".parquet": Format.PARQUET,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
}


@dataclass(frozen=True)
class Replica:
    """One physical stream of a path: its files in order; only an inbox names it."""

    name: str | None
    path: Path
    files: tuple[Path, ...]
    note: ReplicaNote | None = None
    detached: bool = False


@dataclass(frozen=True)
class Folder:
    """What a path holds; `schema` is the one of all files, `rows` is None if not counted."""

    path: Path
    layout: Layout
    format: Format
    schema: pa.Schema
    replicas: tuple[Replica, ...]
    rows: int | None
    lacks: tuple[tuple[str, str], ...] = ()
    """Columns that some file does not have, with such a file; only where that may be right."""
    plain: PlainRows | None = None
    """What the times of plain rows are; None: the files have the columns of elements."""

    def require_all(self, but: Collection[str] = ()) -> None:
        """Reject files that lack a column of the others, unless it is one of these."""
        for name, file in self.lacks:
            if name not in but:
                has = next(str(f) for f in self.files if name in footer_names(f))
                raise missing(file, name, has)

    @property
    def files(self) -> tuple[Path, ...]:
        """All data files, replica by replica, in name order."""
        return tuple(file for replica in self.replicas for file in replica.files)

    @property
    def time(self) -> TimeType:
        """What the time columns hold."""
        if self.layout is not Layout.REFERENCE:
            return self.elements.time
        return TimeType.TIMESTAMP if self._is_timestamp(START) else TimeType.BIGINT

    @property
    def elements(self) -> ElementSchema:
        """The schema of the elements; a reference history has none."""
        if self.plain is not None:
            return self.plain.elements(self.schema, where=str(self.path))
        return ElementSchema.of(self.schema, where=str(self.path))

    @property
    def payload(self) -> pa.Schema:
        """The payload columns."""
        if self.plain is not None:
            return self.elements.payload
        return payload_schema(self.schema, where=str(self.path))

    def _is_timestamp(self, name: str) -> bool:
        return bool(pt.is_timestamp(self.schema.field(name).type))


def look(
    path: Path | str,
    *,
    schema: Path | None = None,
    partial: bool = False,
    plain: PlainRows | None = None,
) -> Folder:
    """Find out what a path holds; `schema` is a schema file, for JSON lines only.

    The files of an output may lack columns that its run has got later, and those of an inbox,
    if it may be `partial`.  With `plain` the files hold rows with these times, not elements.
    """
    place = Path(path)
    if not place.exists():
        message = (
            f"{place}: there is no such file or folder; expected element files, an inbox, an "
            "output folder or a reference history; check the path"
        )
        raise FileError(message)
    is_inbox, replicas = _arrange(place)
    files = [file for replica in replicas for file in replica.files]
    if not files:
        raise _empty(place, is_inbox=is_inbox)
    form = _one_format(files)
    rows: int | None
    lacks: dict[str, str] = {}
    if form is Format.PARQUET:
        columns, rows, lacks = _parquet_schema(files, plain)
    else:
        columns, rows = _json_schema(files, schema, plain)
    if plain is not None:
        plain = plain.settled(columns, str(place))
    layout = _layout(place, columns, plain, is_inbox=is_inbox)
    if layout is Layout.OUTPUT:
        _, gone = changed_columns(place)
        columns = pa.schema([field for field in columns if field.name not in gone])
    folder = Folder(place, layout, form, columns, replicas, rows, tuple(lacks.items()), plain)
    if layout is not Layout.OUTPUT and not (partial and is_inbox):
        folder.require_all()
    _check_guarantees(folder)
    return folder


def changed_columns(place: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The columns of an output that its run has added and dropped, by the run's record."""
    for folder in (place, tail_of(place)):
        if (folder / _RUN).exists():
            run = json.loads((folder / _RUN).read_text())
            return frozenset(run.get("added", ())), frozenset(run.get("dropped", ()))
    return frozenset(), frozenset()


def schema_of(files: Sequence[Path], plain: PlainRows | None = None) -> pa.Schema:
    """The one schema of these files, as `look` finds it; at least one file."""
    if _one_format(files) is Format.PARQUET:
        # Absent columns are null: a restart sees the same.
        return _parquet_schema(files, plain)[0]
    return _json_schema(files, None, plain)[0]


def file_format(file: Path) -> Format:
    """The format of a data file, by the end of its name."""
    found = SUFFIXES.get(file.suffix.lower())
    if found is None:
        message = (
            f"{file}: not an element file; expected a name that ends in {', '.join(SUFFIXES)}; "
            "move it away, or give it a name that starts with '_'"
        )
        raise FileError(message)
    return found


def footer(file: Path) -> pq.FileMetaData:
    """The footer of a Parquet file."""
    try:
        return pq.read_metadata(file)
    except (pa.ArrowException, OSError) as error:
        message = (
            f"{file}: no readable Parquet footer ({str(error).split('. ')[0]}); the file is "
            "half-written or not Parquet; wait for its writer (which should "
            "rename complete files), or remove it"
        )
        raise FileError(message) from error


def _arrange(place: Path) -> tuple[bool, tuple[Replica, ...]]:
    """Whether this is an inbox, and its physical streams with their files."""
    if place.is_file():
        return False, (Replica(None, place, (place,)),)
    others = [name for name in OTHER_CHANNELS if (place / name).is_dir()]
    if (place / ELEMENTS).is_dir() and others:
        return False, (Replica(None, place, committed(place / ELEMENTS)),)
    if has_commits(place):
        return False, (Replica(None, place, committed(place)),)
    folders = sorted(e for e in place.iterdir() if e.is_dir() and e.name[0] not in "_.")
    files = data_files(place)
    if folders and files:
        message = (
            f"{place}: holds files (such as {files[0].name}) and folders (such as "
            f"{folders[0].name}); expected element files only, or one sub-folder per replica "
            "only; move the one or the other away"
        )
        raise FileError(message)
    if not folders:
        return False, (replace(_replica(place), name=None),)
    return True, tuple(_replica(folder) for folder in folders)


def _replica(folder: Path) -> Replica:
    inner = sorted(e.name for e in folder.iterdir() if e.is_dir() and e.name[0] not in "_.")
    if inner:
        message = (
            f"{folder / inner[0]}: a folder inside a replica's folder; expected "
            "INBOX/REPLICA/element files; name the inbox itself, or move the folder away"
        )
        raise FileError(message)
    files = tuple(data_files(folder))
    note, detached = read_note(folder), (folder / DETACHED).exists()
    return Replica(folder.name, folder, files, note, detached)


def _one_format(files: Sequence[Path]) -> Format:
    first = file_format(files[0])
    for file in files:
        if file_format(file) is not first:
            message = (
                f"{file}: is {file_format(file).value}, but {files[0]} is {first.value}; all "
                "files of one folder have one format; move the others to a folder of their own"
            )
            raise FileError(message)
    return first


def footer_names(file: Path) -> list[str]:
    """The columns of a Parquet file."""
    names: list[str] = footer(file).schema.to_arrow_schema().names
    return names


def _parquet_schema(
    files: Sequence[Path], plain: PlainRows | None = None
) -> tuple[pa.Schema, int, dict[str, str]]:
    schemas, rows = [], 0
    for file in files:
        found = footer(file)
        schema = found.schema.to_arrow_schema()
        _check_columns(file, schema, plain)
        schemas.append((str(file), schema))
        rows += found.num_rows
    found = unify(schemas, common=common_type, absent_is_null=True)
    return found, rows, lacking(dict(schemas))


def _json_schema(
    files: Sequence[Path], given: Path | None, plain: PlainRows | None = None
) -> tuple[pa.Schema, int | None]:
    if given is not None:
        return read_schema_file(given, None if plain is None else plain.times), None
    times = TIME_COLUMNS if plain is None else plain.times
    schemas, rows = [], 0
    for file in files:
        found, count = jsonl.infer(file)
        schema = _with_times(found, times)
        if count:
            shown = _complete(schema) if plain is None and KIND in schema.names else schema
            _check_columns(file, shown, plain)
        schemas.append((str(file), schema))
        rows += count
    made = unify(schemas, common=common_json, absent_is_null=True)
    return made if plain is not None else _complete(made), rows


def _check_columns(file: Path, schema: pa.Schema, plain: PlainRows | None) -> None:
    """What one file shows by itself, so that the error names the file and not the folder."""
    if plain is not None:
        plain.require(schema, str(file))
    elif KIND in schema.names:
        ElementSchema.of(schema, where=str(file))
    elif START not in schema.names:
        raise _foreign(file, schema)


def _with_times(schema: pa.Schema, times: Collection[str]) -> pa.Schema:
    """Text in a time column is meant as a time."""
    instant = TimeType.TIMESTAMP.arrow
    return pa.schema(
        [
            (f.name, instant if f.name in times and pt.is_string(f.type) else f.type)
            for f in schema
        ]
    )


def _complete(schema: pa.Schema) -> pa.Schema:
    """The time columns that no line mentions are null everywhere: of the type of the others."""
    types = {field.name: field.type for field in schema}
    known = [types[n] for n in TIME_COLUMNS if n in types and not pt.is_null(types[n])]
    time = known[0] if known else pa.int64()
    needed = (START, END, OLD_END) if KIND in types else (END,)
    for name in needed:
        if name not in types or pt.is_null(types[name]):
            types[name] = time
    return pa.schema(list(types.items()))


def _layout(
    place: Path, schema: pa.Schema, plain: PlainRows | None, *, is_inbox: bool
) -> Layout:
    """The layout, now that the columns are known; they are checked as such."""
    if plain is not None:
        return Layout.INBOX if is_inbox else Layout.STREAM
    if KIND in schema.names:
        ElementSchema.of(schema, where=str(place))
        if is_inbox:
            return Layout.INBOX
        return Layout.OUTPUT if place.is_dir() and _is_output(place) else Layout.STREAM
    if {START, END} <= set(schema.names) and not is_inbox:
        # What is no `kind` may not be missing either: the same checks, with one added.
        ElementSchema.of(schema.append(pa.field(KIND, pa.string())), where=str(place))
        return Layout.REFERENCE
    raise _foreign(place, schema)


def _is_output(place: Path) -> bool:
    return (place / ELEMENTS).is_dir() or has_commits(place)


def _check_guarantees(folder: Folder) -> None:
    for replica in folder.replicas:
        if replica.note is not None:
            replica.note.check_time(folder.time, where=str(replica.path))


def _empty(place: Path, *, is_inbox: bool) -> FileError:
    expected = "element files (.parquet, .jsonl, .ndjson or .json)"
    if is_inbox:
        expected = f"at least one replica with {expected}"
    elif place.is_dir() and _is_output(place):
        expected = "the rows of at least one committed trigger"
    else:
        expected += ", or one sub-folder per replica with such files"
    message = (
        f"{place}: there is no data in it; expected {expected}; check the path, or wait for "
        "the first file (names that start with '_' or '.' are not data)"
    )
    return FileError(message)


def _foreign(file: Path, schema: pa.Schema) -> SchemaError:
    message = (
        f"{file}: neither elements nor a reference history; expected the columns 'kind', "
        f"'start', 'end' and payload (a reference history has no 'kind'), this has "
        f"{schema.names}; rename the columns, or move the file away; plain rows are merged "
        "with `anabranch merge INBOX --time COLUMN` (ab.inbox: start=COLUMN)"
    )
    return SchemaError(message)
