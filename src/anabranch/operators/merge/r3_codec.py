"""The state of merge R3 as bytes: four Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per event that may still change; `end_0`, `end_1`, ... in replica order
    settled    one row per event that is final and may still be mentioned
    payload    one row per node

No pickle, and nothing that depends on the machine.  A state of another kind or version is
refused by name, never guessed at.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.buffers import numbers, take, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.operators.merge.r3_index import Keys
from anabranch.operators.merge.r3_members import Members
from anabranch.operators.merge.r3_settled import Settled
from anabranch.operators.merge.r3_state import R3State

KIND: Final = "anabranch merge r3"
VERSION: Final = 1

_TYPES: Final = {
    np.dtype(np.int8): pa.int8(),
    np.dtype(np.int64): pa.int64(),
    np.dtype(np.uint64): pa.uint64(),
}


def write_state(state: R3State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    members, keys, settled = state.members, state.keys, state.settled
    header = {
        "kind": KIND,
        "version": str(VERSION),
        "time": state.schema.time.value,
        "frontier": str(state.frontier),
        "conflicts": str(state.conflicts),
    }
    control = {
        "attachment": members.attachment,
        "guarantee": members.guarantee,
        "frontier": members.frontier,
        "last_seq": members.last_seq,
    }
    names = pa.array(members.names, pa.string())
    nodes: dict[str, NDArray[Any]] = {
        "high": keys.high,
        "low": keys.low,
        "start": keys.start,
        "salt": keys.salt,
        "output_end": state.output_end,
        "in_conflict": state.in_conflict.astype(np.int8),
    }
    ends = {f"end_{i}": state.ends[:, i] for i in range(len(members))}
    known: dict[str, NDArray[Any]] = {
        "high": settled.high,
        "low": settled.low,
        "start": settled.start,
        "end": settled.end,
    }
    payload = take(state.payload, state.row) if state.payload.num_columns else state.payload
    return _write(
        _table(control).append_column("name", names).replace_schema_metadata(header),
        _table(nodes | ends),
        _table(known),
        payload.replace_schema_metadata(None),
    )


def read_state(data: bytes, schema: ElementSchema) -> R3State:
    """The state that was written, ready for the next step."""
    source = pa.BufferReader(data)
    control = _read(source)
    header = _header(control)
    _require_kind(header)
    nodes, known, payload = _read(source), _read(source), _read(source)
    _require_payload(header, payload, schema)
    # Control is changed in place by the next step; a view of the bytes may not be.
    columns = [
        _column(control, name).copy()
        for name in ("attachment", "guarantee", "frontier", "last_seq")
    ]
    members = Members(control.column("name").to_pylist(), *columns)
    ends = np.empty((nodes.num_rows, len(members)), np.int64)
    for i in range(len(members)):
        ends[:, i] = _column(nodes, f"end_{i}")
    return R3State(
        replace(schema, has_seq=False, has_replica=False),
        members,
        Keys(*(_column(nodes, name) for name in ("high", "low", "start", "salt"))),
        output_end=_column(nodes, "output_end"),
        ends=ends,
        in_conflict=_column(nodes, "in_conflict").astype(np.bool_),
        payload=payload,
        row=np.arange(nodes.num_rows),
        settled=Settled(*(_column(known, name) for name in ("high", "low", "start", "end"))),
        frontier=int(header["frontier"]),
        conflicts=int(header["conflicts"]),
    )


def _require_kind(header: dict[str, str]) -> None:
    found = f"'{header.get('kind', 'unknown')}' version {header.get('version', 'unknown')}"
    wanted = f"'{KIND}' version {VERSION}"
    if found != wanted:
        message = (
            f"merge: the state is {found}, this program reads {wanted}; continue with the "
            "version that wrote it, or start with a new checkpoint and output folder"
        )
        raise StateError(message)


def _require_payload(header: dict[str, str], payload: pa.Table, schema: ElementSchema) -> None:
    if payload.schema != schema.payload or header["time"] != schema.time.value:
        message = (
            f"merge: the state has {header['time']} times and the payload "
            f"{_show(payload.schema)}, the input has {schema.time.value} times and "
            f"{_show(schema.payload)}; the columns of a running merge cannot change, start "
            "with a new checkpoint and output folder"
        )
        raise StateError(message)


def _show(schema: pa.Schema) -> str:
    return "(" + ", ".join(f"{field.name} {field.type}" for field in schema) + ")"


def _header(control: pa.Table) -> dict[str, str]:
    return {k.decode(): v.decode() for k, v in (control.schema.metadata or {}).items()}


def _table(columns: dict[str, NDArray[Any]]) -> pa.Table:
    return pa.table({name: to_arrow(c, _TYPES[c.dtype]) for name, c in columns.items()})


def _column(table: pa.Table, name: str) -> NDArray[Any]:
    kind = table.schema.field(name).type
    return numbers(table.column(name), np.dtype(kind.to_pandas_dtype()))


def _write(*tables: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(source: pa.BufferReader) -> pa.Table:
    try:
        with pa.ipc.open_stream(source) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        message = (
            f"merge: the bytes are not a state of '{KIND}' ({error}); the checkpoint is "
            "damaged or not ours; start with a new checkpoint and output folder"
        )
        raise StateError(message) from error
