"""The state of an operator of one input as bytes: two Arrow streams.

    rows      one row per live event: the number of its payload, and its numbers; the metadata
              has the kind and version of the state, its times and its frontier
    payload   one row per payload (per identity, where rows are found by identity)

No pickle, and nothing that depends on the machine.  A state of another kind or version is
refused by name, never guessed at.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.operators.unary_live import LiveEvents

_INT64: Final = np.dtype(np.int64)


@dataclass(frozen=True, slots=True)
class StateFormat:
    """What a state is: who wrote it, its version, and the names of its numbers."""

    operator: str
    version: int
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """What is written, and what is said when it does not fit."""
        return f"'anabranch {self.operator}' version {self.version}"

    def write(self, live: LiveEvents, *, times: dict[str, int], schema: ElementSchema) -> bytes:
        """The bytes from which `read` makes an equal state; `times` are single numbers."""
        group, rows = live.all()
        first = np.flatnonzero(np.diff(group, prepend=-1))
        columns = {"group": np.cumsum(np.diff(group, prepend=-1) > 0) - 1}
        columns |= {name: rows[:, i] for i, name in enumerate(self.columns)}
        header = {"state": self.name, "time": schema.time.value}
        header |= {name: str(time) for name, time in times.items()}
        table = pa.table({name: to_arrow(c, pa.int64()) for name, c in columns.items()})
        payload = live.payload(group[first])
        return _write(table.replace_schema_metadata(header), payload)

    def read(self, data: bytes, schema: ElementSchema, live: LiveEvents) -> dict[str, int]:
        """Fill an empty `live`; returns the single numbers."""
        source = pa.BufferReader(data)
        table = self._next(source)
        metadata = table.schema.metadata or {}
        header = {key.decode(): value.decode() for key, value in metadata.items()}
        if header.get("state") != self.name:
            message = (
                f"{self.operator}: the state is {header.get('state', 'unknown')}, this program "
                f"reads {self.name}; continue with the version that wrote it, or start with a "
                "new checkpoint and output folder"
            )
            raise StateError(message)
        payload = self._next(source)
        if payload.schema != schema.payload or header["time"] != schema.time.value:
            message = (
                f"{self.operator}: the state has {header['time']} times and the payload "
                f"{_show(payload.schema)}, the input has {schema.time.value} times and "
                f"{_show(schema.payload)}; the columns of a running query cannot change, start "
                "with a new checkpoint and output folder"
            )
            raise StateError(message)
        group = numbers(table.column("group"), _INT64)
        rows = np.stack([numbers(table.column(c), _INT64) for c in self.columns], axis=1)
        _fill(live, group, rows, payload)
        return {k: int(v) for k, v in header.items() if k not in ("state", "time")}

    def _next(self, source: pa.BufferReader) -> pa.Table:
        try:
            with pa.ipc.open_stream(source) as reader:
                return reader.read_all()
        except (pa.ArrowInvalid, OSError) as error:
            message = (
                f"{self.operator}: the bytes are not a state of {self.name} ({error}); "
                "the checkpoint is damaged or not ours; start with a new checkpoint and output "
                "folder"
            )
            raise StateError(message) from error


def _fill(live: LiveEvents, group: Ints, rows: Ints, payload: pa.Table) -> None:
    first = np.flatnonzero(np.diff(group, prepend=-1))
    found = live.find(rows[first, 0], payload)
    live.write(found, found[group], rows)


def _write(*tables: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _show(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"
