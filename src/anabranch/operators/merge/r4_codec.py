"""The state of merge R4 as bytes: five Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per identity that may still change, in the order of first arrival
    ends       (node, column, end, count): column 0 is the output, i + 1 the i-th replica; the
               count 0 says that all events were removed
    settled    one row per identity that is final and may still be mentioned
    payload    one row per node

When to look at a node again is not written: `restore` finds it out.  No pickle, and nothing
that depends on the machine.  A state of another kind or version is refused by name.
"""

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.operators.merge.r4_nodes import IN_CONFLICT, ROW, STATUS
from anabranch.operators.merge.r4_restore import restore, restore_members
from anabranch.operators.merge.r4_settled import END
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import HIGH, LOW, START

KIND: Final = "anabranch merge r4"
VERSION: Final = 1

_NAME: Final = {"start": START, "high": HIGH, "low": LOW}
_ENDS: Final = ("node", "column", "end", "count")
_CONTROL: Final = ("attachment", "guarantee", "frontier", "last_seq")


def write_state(state: R4State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    members, settled = state.members, state.settled
    header = {
        "kind": KIND,
        "version": str(VERSION),
        "time": state.schema.time.value,
        "frontier": str(state.frontier),
        "conflicts": str(state.conflicts),
        "shrink_only": str(int(state.shrink_only)),
    }
    control = _table({name: getattr(members, name) for name in _CONTROL})
    names = pa.array(members.names, pa.string())
    ids, rows = state.ends()
    facts = state.nodes.facts[ids]
    nodes = {name: facts[:, column] for name, column in _NAME.items()}
    known = settled.rows
    final = {name: known[:, column] for name, column in (_NAME | {"end": END}).items()}
    return _write(
        control.append_column("name", names).replace_schema_metadata(header),
        _table(nodes | {"in_conflict": facts[:, STATUS] & IN_CONFLICT}),
        _table({name: rows[:, column] for column, name in enumerate(_ENDS)}),
        _table(final),
        state.nodes.payloads.take(facts[:, ROW]).replace_schema_metadata(None),
    )


def read_state(data: bytes, schema: ElementSchema) -> R4State:
    """The state that was written, ready for the next step."""
    source = pa.BufferReader(data)
    control = _read(source)
    header = {k.decode(): v.decode() for k, v in (control.schema.metadata or {}).items()}
    _require_kind(header)
    nodes, ends, final, payload = (_read(source) for _ in range(4))
    _require_payload(header, payload, schema)
    plain = replace(schema, has_seq=False, has_replica=False)
    state = R4State.empty(plain, shrink_only=header["shrink_only"] == "1")
    state.frontier, state.conflicts = int(header["frontier"]), int(header["conflicts"])
    known = {name: _column(control, name) for name in _CONTROL}
    state.members = restore_members(control.column("name").to_pylist(), **known)
    state.settled.remember(_matrix(final, tuple(_NAME)), _column(final, "end"))
    restore(
        state,
        _matrix(nodes, tuple(_NAME)),
        _column(nodes, "in_conflict"),
        _matrix(ends, _ENDS),
        payload,
    )
    return state


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


def _table(columns: dict[str, NDArray[Any]]) -> pa.Table:
    return pa.table({name: to_arrow(c, pa.int64()) for name, c in columns.items()})


def _column(table: pa.Table, name: str) -> Ints:
    """A copy: the next step changes it in place."""
    return numbers(table.column(name), np.dtype(np.int64)).copy()


def _matrix(table: pa.Table, names: tuple[str, ...]) -> Ints:
    return np.stack([_column(table, name) for name in names], axis=1)


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
