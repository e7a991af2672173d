"""An inbox as a source: a folder with one sub-folder of files per replica.

The files hold elements, or plain rows (`anabranch.sources.plain`).

`inbox` reads the footers of the files and the notes of the replicas, and raises what they show:
columns that differ, a half-written file, a path that is no inbox.  It reads no row and needs no
Spark.  Files and replicas that appear later are found while a query runs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.types as pt

from anabranch.batch.schema import TimeType
from anabranch.errors import FileError, SchemaError, UsageError
from anabranch.model.properties import StreamProperties
from anabranch.offered import Offered
from anabranch.sources.files import Folder, Format, Layout, look
from anabranch.sources.notes import NOTE
from anabranch.sources.plain import PlainRows

_URI: Final = re.compile(r"(?!file:)[A-Za-z][\w+.-]+:/")


@dataclass(frozen=True, eq=False)
class Inbox(Offered):
    """The replicas of one folder, as `ab.merge` takes them; made by `inbox`."""

    _hidden = "beats declared folder founders plain source"
    folder: Folder
    beats: Mapping[str, Any] | None = None
    """How stables are inferred, as the user wrote it; `ab.merge` validates it."""

    def heartbeats(
        self,
        bounds: Any = None,
        *,
        disorder: str | int | None = None,
        delay: str | None = None,
        idle_after: str | None = None,
        timeout: str | None = None,
        source: str | None = None,
        group: str | Mapping[str, str] | None = None,
        arrival: str | None = None,
        guard: str | int | None = "1 hour",
        target_loss: float | None = None,
    ) -> "Inbox":
        """The inbox with progress that is inferred from the times of its plain rows.

        Each replica is a source, unless a column names them; rows arrive when a look into the
        inbox finds their file, unless a column has the time.  The arguments are those of
        `ab.events(...).heartbeats`.  No effect on views, which are batches.

        Args:
            bounds: `ab.clocks.Bounds` or `Alike`, the path of a TOML file, or "adaptive".
            disorder: The greatest distance of a row behind the greatest time of its source.
            delay: The longest time from a row's timestamp to its arrival.
            idle_after: A source that sends nothing for this long is not waited for.
            timeout: If all send nothing for this long, they have reached the greatest time.
            source: The column that names the source of a row.  Default: its replica.
            group: The column that names a group of sources with one heartbeat; for bounds of
                named sources a mapping from source to group.
            arrival: The column with the time at which a row arrived; it is no payload.
            guard: A time that is more than this ahead of its arrival moves nothing (bigint
                times: ahead of all times before, if given).
            target_loss: With "adaptive": the share of rows that may be late.
        """
        if self.plain is None:
            message = (
                f"{self.folder.path}: its files hold elements, which have stables of their "
                "own; heartbeats (--disorder, --delay, --idle-after) are for plain rows: give "
                "--time (start= of ab.inbox)"
            )
            raise UsageError(message)
        folder = self.folder
        by = group if isinstance(group, str) else None
        for option, name in (("source", source), ("group", by), ("arrival", arrival)):
            if name is not None and name not in folder.payload.names:
                message = (
                    f"{folder.path}: --{option} ({option}= of heartbeats): there is no column "
                    f"'{name}'; the rows have {folder.payload.names} beside their times"
                )
                raise SchemaError(message)
        if arrival is not None:
            folder = with_arrival(folder, arrival)
        given = {
            "bounds": bounds, "disorder": disorder, "delay": delay, "idle_after": idle_after,
            "timeout": timeout, "source": source, "group": group, "arrival": arrival,
            "guard": guard, "target_loss": target_loss,
        }  # fmt: skip
        return replace(self, folder=folder, beats=given)

    @property
    def path(self) -> Path:
        """The folder, as an absolute path."""
        return self.folder.path.resolve()

    @property
    def plain(self) -> PlainRows | None:
        """The times of plain rows; None: the files hold elements."""
        return self.folder.plain

    @property
    def names(self) -> tuple[str, ...]:
        """All replicas that are there now, also detached ones."""
        return tuple(str(one.name) for one in self.folder.replicas)

    @property
    def founders(self) -> tuple[str, ...]:
        """The replicas that are there now and not detached."""
        return tuple(str(one.name) for one in self.folder.replicas if not one.detached)

    @property
    def declared(self) -> dict[str, StreamProperties | None]:
        """What each replica that is not detached declares of itself."""
        return declared(self.folder)


def inbox(
    path: Path | str,
    *,
    schema: Path | str | None = None,
    start: str | None = None,
    end: str | None = None,
    lifetime: str | int | None = None,
) -> Inbox:
    """The replicas of a folder, each a sub-folder of files: an input of `ab.merge`.

    The files hold elements (docs/guide/elements.md has the format), or, with `start`, plain
    rows: each is an event, and all columns but `start` and `end` are payload.

    Args:
        path: The folder, on a disk that all machines of the query share.
        schema: A file with the types of the columns, for JSON lines only.  Default: the types
            of all files that are there.
        start: Plain rows: the column with the time at which an event starts, bigint or
            timestamp.
        end: Plain rows: the column with the time at which it ends; null: open (FOREVER).
        lifetime: Plain rows: how long every event lasts, "10 minutes", or a number for bigint
            times.  Default: one unit of time (for timestamps, a microsecond).
    """
    if start is None and (end is not None or lifetime is not None):
        given = "--end (end=)" if end is not None else "--lifetime (lifetime=)"
        message = (
            f"{path}: {given} is for plain rows; name the column with their times by --time "
            "(start= of ab.inbox)"
        )
        raise UsageError(message)
    plain = None if start is None else PlainRows(start, end, lifetime)
    if _URI.match(str(path)):
        message = (
            f"{path}: an inbox is a folder on a disk that all machines of the query share, and "
            "this is a URI; read the files with spark.readStream instead, as ab.elements"
        )
        raise FileError(message)
    types = None if schema is None else Path(schema)
    folder = look(path, schema=types, partial=True, plain=plain)
    require_inbox(folder)
    return Inbox(folder)


def with_arrival(folder: Folder, column: str) -> Folder:
    """The folder with a column that is the time of arrival, and no payload."""
    assert folder.plain is not None, "elements have no arrival"
    schema, at = folder.schema, folder.schema.get_field_index(column)
    if folder.format is Format.JSONL and pt.is_string(schema.field(at).type):
        schema = schema.set(at, schema.field(at).with_type(TimeType.TIMESTAMP.arrow))
    kind = schema.field(at).type
    if not pt.is_timestamp(kind):
        message = (
            f"{folder.path}: --arrival (arrival= of heartbeats): column '{column}' is {kind}, "
            "expected timestamp (in JSON lines text like 2024-05-31T12:00:00Z)"
        )
        raise SchemaError(message)
    return replace(folder, schema=schema, plain=replace(folder.plain, arrival=column))


def require_inbox(folder: Folder) -> None:
    """Reject what has no replicas by name."""
    if folder.layout is not Layout.INBOX:
        message = (
            f"{folder.path}: is a {folder.layout.value}, expected an inbox: one sub-folder of "
            "element files per replica; name the folder above, or put them into INBOX/NAME/"
        )
        raise FileError(message)


def declared(folder: Folder) -> dict[str, StreamProperties | None]:
    """What each replica of an inbox declares; None: nothing.  Detached ones are left out."""
    found: dict[str, StreamProperties | None] = {}
    for replica in folder.replicas:
        if replica.detached:
            continue
        promised = {} if replica.note is None else replica.note.properties
        where = str(replica.path / NOTE)
        known = StreamProperties.from_dict(promised, where=where) if promised else None
        found[str(replica.name)] = known
    return found
