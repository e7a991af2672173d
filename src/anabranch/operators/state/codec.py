"""Serialisation of states: Arrow streams, each with a description of its content.

A state, or a part of one, is one Arrow stream after the other.  The metadata of the first is
the header: the kind and version of state, its times, and single numbers.  No pickle, and
nothing that depends on the machine.  A state of another kind, version or payload is refused by
both names, never guessed at.

>>> kind = StateKind("anabranch merge r9", version=1)
>>> data = write_tables(to_table({"x": np.arange(3)}, kind.header(frontier=7)))
>>> table, header = kind.open(data).first()
>>> column_of(table, "x").tolist(), header["frontier"]
([0, 1, 2], '7')
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError

_TYPES: Final = {
    np.dtype(np.int8): pa.int8(),
    np.dtype(np.int32): pa.int32(),
    np.dtype(np.int64): pa.int64(),
}
_START_NEW: Final = "start with a new checkpoint and output folder"


@dataclass(frozen=True, slots=True)
class StateKind:
    """What a state is: its name and version; nothing else is read."""

    name: str
    version: int

    @property
    def operator(self) -> str:
        """Who writes it: how messages begin."""
        return self.name.split()[1]

    def header(self, **numbers: int | str) -> dict[str, str]:
        """The header of a state of this kind, as it is written now."""
        own = {"kind": self.name, "version": str(self.version)}
        return own | {name: str(number) for name, number in numbers.items()}

    def open(self, data: bytes) -> "Streams":
        """The tables of a state, or of a part."""
        return Streams(self, data)

    def require(self, header: Mapping[str, str]) -> None:
        """Refuse another kind or version of state, by both names."""
        kind, version = header.get("kind", "unknown"), header.get("version", "unknown")
        if kind != self.name or version != str(self.version):
            message = (
                f"{self.operator}: the state is '{kind}' version {version}, this program reads "
                f"'{self.name}' version {self.version}; continue with the version "
                f"that wrote it, or {_START_NEW}"
            )
            raise StateError(message)

    def require_payload(
        self, header: Mapping[str, str], payload: pa.Table, schema: ElementSchema
    ) -> None:
        """Refuse a state of other columns than the input has."""
        if payload.schema != schema.payload or header["time"] != schema.time.value:
            message = (
                f"{self.operator}: the state has {header['time']} times and the payload "
                f"{_show(payload.schema)}, the input has {schema.time.value} times and "
                f"{_show(schema.payload)}; the columns of a running {self.operator} cannot "
                f"change, {_START_NEW}"
            )
            raise StateError(message)


class Streams:
    """The tables of a state, one after the other."""

    def __init__(self, kind: StateKind, data: bytes) -> None:
        self._kind = kind
        self._source = pa.BufferReader(data)

    def next(self) -> pa.Table:
        """The next table."""
        try:
            with pa.ipc.open_stream(self._source) as reader:
                return reader.read_all()
        except (pa.ArrowInvalid, OSError) as error:
            message = (
                f"{self._kind.operator}: the bytes are not a state of '{self._kind.name}' "
                f"({error}); the checkpoint is damaged or not ours; {_START_NEW}"
            )
            raise StateError(message) from error

    def first(self) -> tuple[pa.Table, dict[str, str]]:
        """The first table of a state, with its header; StateError if it is another kind."""
        table = self.next()
        header = header_of(table)
        self._kind.require(header)
        return table, header


def kind_of(data: bytes) -> str | None:
    """The kind of state in the header of these bytes; None if there is no header."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(data)) as reader:
            kind = (reader.schema.metadata or {}).get(b"kind")
    except (pa.ArrowInvalid, OSError):
        return None
    return None if kind is None else kind.decode()


def header_of(table: pa.Table) -> dict[str, str]:
    """The metadata of a table, as text."""
    return {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}


def to_table(
    columns: Mapping[str, NDArray[Any]], header: Mapping[str, str] | None = None
) -> pa.Table:
    """Columns of numbers as a table."""
    table = pa.table({name: to_arrow(c, _TYPES[c.dtype]) for name, c in columns.items()})
    return table.replace_schema_metadata(dict(header) if header else None)


def column_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of numbers; a view of the bytes."""
    kind = table.schema.field(name).type
    return numbers(table.column(name), np.dtype(kind.to_pandas_dtype()))


def matrix_of(table: pa.Table, names: tuple[str, ...]) -> NDArray[np.int64]:
    """Columns of numbers side by side; a copy."""
    rows = np.empty((table.num_rows, len(names)), np.int64)
    for i, name in enumerate(names):
        rows[:, i] = column_of(table, name).view(np.int64)
    return rows


def write_tables(*tables: pa.Table) -> bytes:
    """Arrow streams, one after the other."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _show(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
