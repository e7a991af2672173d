"""The state of merge R3 as bytes: four Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per event that may still change, in the order in which they came;
               `end_7` is what the attachment with serial 7 says
    settled    one row per event that is final and may still be mentioned
    payload    one row per node

No pickle, and nothing that depends on the machine.  Version 1 (a table that was built anew for
every step, with salts instead of comparisons, and replicas counted from 0) is read as well; a
state of another kind or version is refused by name, never guessed at.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.errors import StateError
from anabranch.operators.merge.r3_members import COLUMNS, Members
from anabranch.operators.merge.r3_nodes import (
    ABSENT,
    BORN,
    CONFLICT,
    ENDS,
    FLAGS,
    LIVE,
    OUT,
    ROW,
    Nodes,
)
from anabranch.operators.merge.r3_settled import END, Settled
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.slots import HIGH, LOW, START

KIND: Final = "anabranch merge r3"
VERSION: Final = 2
READ_VERSIONS: Final = ("1", "2")

_TYPES: Final = {np.dtype(np.int8): pa.int8(), np.dtype(np.int64): pa.int64()}
_SETTLED: Final = {"start": START, "high": HIGH, "low": LOW, "end": END}
# Version 1 called the first word of the hash high.
_SETTLED_V1: Final = {"start": START, "high": LOW, "low": HIGH, "end": END}


def write_state(state: R3State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    ids, settled = state.in_order(), state.settled
    return write_tables(
        control_table(state),
        node_table(state, ids).drop_columns("node"),
        settled_table(settled.rows(settled.first, settled.next)),
        payload_table(state, ids),
    )


def read_state(data: bytes, schema: ElementSchema) -> R3State:
    """The state that was written, ready for the next step."""
    source = pa.BufferReader(data)
    control = read_table_of(source)
    header = header_of(control)
    require_kind(header)
    nodes, known, payload = (read_table_of(source) for _ in range(3))
    require_payload(header, payload, schema)
    members = read_members(control, header)
    is_old = header["version"] == "1"
    rows = _read_rows_v1(nodes, members) if is_old else read_rows(nodes, members)
    state = new_state(schema, header, members)
    # Numbers are given anew: whoever saves in parts must write all of them.
    state.mark += 1
    state.nodes.restore(np.arange(len(rows)), rows, read_table(payload), state.mark)
    state.next_born = max(state.next_born, int(rows[:, BORN].max(initial=-1)) + 1)
    names = read_settled(known, _SETTLED_V1 if is_old else _SETTLED)
    state.settled.remember(names[:, : LOW + 1], names[:, END], state.mark)
    return state.restored()


def new_state(schema: ElementSchema, header: dict[str, str], members: Members) -> R3State:
    """A state without events, as far as the header tells."""
    plain = replace(schema, has_seq=False, has_replica=False)
    return R3State(
        plain,
        members,
        Nodes(plain.payload, replicas=len(members)),
        Settled(int(header.get("settled", "0"))),
        frontier=int(header["frontier"]),
        conflicts=int(header["conflicts"]),
        next_born=int(header.get("next_born", "0")),
        mark=int(header.get("mark", "0")),
    )


def control_table(state: R3State) -> pa.Table:
    """The replicas, with the header of the state."""
    header = {
        "kind": KIND,
        "version": str(VERSION),
        "time": state.schema.time.value,
        "frontier": str(state.frontier),
        "conflicts": str(state.conflicts),
        "next_born": str(state.next_born),
        "next_serial": str(state.members.next_serial),
        "settled": str(state.settled.first),
        "mark": str(state.mark),
    }
    columns = {name: getattr(state.members, name) for name in COLUMNS}
    names = pa.array(state.members.names, pa.string())
    return to_table(columns).append_column("name", names).replace_schema_metadata(header)


def read_members(control: pa.Table, header: dict[str, str]) -> Members:
    """The replicas."""
    # Control is changed in place by the next step; a view of the bytes may not be.
    columns = {
        name: column_of(control, name).copy()
        for name in COLUMNS
        if name in control.column_names
    }
    columns.setdefault("serial", np.arange(control.num_rows))
    next_serial = int(header.get("next_serial", control.num_rows))
    return Members(control.column("name").to_pylist(), **columns, next_serial=next_serial)


def node_table(state: R3State, ids: Ints) -> pa.Table:
    """These nodes, without their payloads."""
    rows = state.nodes.rows[ids]
    out = rows[:, OUT]
    columns: dict[str, NDArray[Any]] = {
        "node": ids,
        "start": rows[:, START],
        "high": rows[:, HIGH],
        "low": rows[:, LOW],
        "born": np.where(out == ABSENT, ABSENT, rows[:, BORN]),
        "output_end": out,
        "in_conflict": (rows[:, FLAGS] & CONFLICT != 0).astype(np.int8),
    }
    serials = state.members.serial.tolist()
    ends = {f"end_{serial}": rows[:, ENDS + i] for i, serial in enumerate(serials)}
    return to_table(columns | ends)


def read_rows(nodes: pa.Table, members: Members) -> Ints:
    """The rows of a table of nodes; who is not attached any more is left out."""
    rows = np.empty((nodes.num_rows, ENDS + len(members)), np.int64)
    rows[:, START], rows[:, BORN] = column_of(nodes, "start"), column_of(nodes, "born")
    rows[:, HIGH], rows[:, LOW] = column_of(nodes, "high"), column_of(nodes, "low")
    _read_output(rows, nodes)
    for i, serial in enumerate(members.serial.tolist()):
        name = f"end_{serial}"
        # Who was attached after this was written has said nothing here.
        rows[:, ENDS + i] = column_of(nodes, name) if name in nodes.column_names else ABSENT
    return rows


def _read_rows_v1(nodes: pa.Table, members: Members) -> Ints:
    rows = np.empty((nodes.num_rows, ENDS + len(members)), np.int64)
    rows[:, START], rows[:, BORN] = column_of(nodes, "start"), np.arange(len(rows))
    rows[:, LOW] = column_of(nodes, "high").view(np.int64)
    rows[:, HIGH] = column_of(nodes, "low").view(np.int64)
    _read_output(rows, nodes)
    for i in range(len(members)):
        rows[:, ENDS + i] = column_of(nodes, f"end_{i}")
    return rows


def _read_output(rows: Ints, nodes: pa.Table) -> None:
    rows[:, OUT], rows[:, ROW] = column_of(nodes, "output_end"), 0
    rows[:, FLAGS] = np.where(column_of(nodes, "in_conflict") != 0, LIVE | CONFLICT, LIVE)


def settled_table(rows: Ints) -> pa.Table:
    """These settled names."""
    return to_table({name: rows[:, column] for name, column in _SETTLED.items()})


def read_settled(table: pa.Table, columns: dict[str, int] = _SETTLED) -> Ints:
    """The rows of a table of settled names, by end."""
    rows = np.empty((table.num_rows, len(columns)), np.int64)
    for name, column in columns.items():
        rows[:, column] = column_of(table, name).view(np.int64)
    return rows


def payload_table(state: R3State, ids: Ints) -> pa.Table:
    """The payloads of these nodes."""
    rows = state.nodes.rows[ids, ROW]
    return state.nodes.take(rows).replace_schema_metadata(None)


def require_kind(header: dict[str, str], readable: Sequence[str] = READ_VERSIONS) -> None:
    """Refuse what this program cannot read, by both names."""
    kind, version = header.get("kind", "unknown"), header.get("version", "unknown")
    if kind != KIND or version not in readable:
        message = (
            f"merge: the state is '{kind}' version {version}, this program reads '{KIND}' "
            f"version {' and '.join(readable)}; continue with the version that wrote it, or "
            "start with a new checkpoint and output folder"
        )
        raise StateError(message)


def require_payload(header: dict[str, str], payload: pa.Table, schema: ElementSchema) -> None:
    """Refuse a state of other columns than the input has."""
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


def header_of(table: pa.Table) -> dict[str, str]:
    """The metadata of a table, as text."""
    return {k.decode(): v.decode() for k, v in (table.schema.metadata or {}).items()}


def to_table(columns: dict[str, NDArray[Any]]) -> pa.Table:
    """Columns of numbers as a table."""
    return pa.table({name: to_arrow(c, _TYPES[c.dtype]) for name, c in columns.items()})


def column_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of numbers."""
    kind = table.schema.field(name).type
    return numbers(table.column(name), np.dtype(kind.to_pandas_dtype()))


def write_tables(*tables: pa.Table) -> bytes:
    """Arrow streams, one after the other."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def read_table_of(source: pa.BufferReader) -> pa.Table:
    """The next stream."""
    try:
        with pa.ipc.open_stream(source) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        message = (
            f"merge: the bytes are not a state of '{KIND}' ({error}); the checkpoint is "
            "damaged or not ours; start with a new checkpoint and output folder"
        )
        raise StateError(message) from error
