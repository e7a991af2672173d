"""The state of the merges R0, R1 and R2 as bytes: Arrow streams, the first says what it is.

    replicas   one row each; its metadata has the kind, the version and the output's times
    group      the events at the current start; `said_0`, `said_1`, ... in replica order
    held       the inserts that wait, and behind them those whose replica left meanwhile: their
               replica numbers go on from the members, their names are in the metadata
    payloads   those of group and held, one row each

No pickle, and nothing that depends on the machine.  A state of another case or version is
refused by name, never guessed at.
"""

import json
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import concat
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.contract import Reason, Resolved
from anabranch.operators.merge.ordered_bag import Bag
from anabranch.operators.merge.ordered_held import Held
from anabranch.operators.merge.ordered_latest import Latest
from anabranch.operators.merge.ordered_state import OrderedState
from anabranch.operators.merge.r3_members import Members

VERSION: Final = 1
"""Of all three; the kind of state names the case."""

_TYPES: Final = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64()}
_CONTROL: Final = ("attachment", "guarantee", "frontier", "last_seq")


def kind_of(case: MergeCase) -> str:
    """What a state of this case is called."""
    return f"anabranch merge {case.value}"


def write_state(state: OrderedState) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    members, group = state.members, state.group
    header = {
        "kind": kind_of(state.case),
        "version": str(VERSION),
        "time": state.schema.time.value,
        "frontier": str(state.frontier),
        "current": str(state.current),
        "conflicts": str(state.conflicts),
        "owed": json.dumps([one.replica for one in state.owed]),
    }
    control = {name: getattr(members, name) for name in _CONTROL}
    names = pa.array(members.names, pa.string())
    replicas = _table(control | {"last_start": state.last_start}).append_column("name", names)
    events: dict[str, NDArray[Any]] = {"end": group.end}
    if isinstance(group, Bag):
        events["emitted"] = group.emitted
        events |= {f"said_{i}": group.said[:, i] for i in range(len(members))}
    waiting = [state.held.batch(state.schema, np.arange(len(state.held)))]
    batch = concat([*waiting, *(one.batch for one in state.owed)])
    left = [np.full(len(o.batch), len(members) + i) for i, o in enumerate(state.owed)]
    replica = np.concatenate([state.held.replica, *left])
    return _write(
        replicas.replace_schema_metadata(header),
        _table(events),
        _table({"replica": replica, "start": batch.start, "end": batch.end}),
        group.payload.replace_schema_metadata(None),
        batch.payload.replace_schema_metadata(None),
    )


def read_state(data: bytes, case: MergeCase, schema: ElementSchema) -> OrderedState:
    """The state that was written, ready for the next step."""
    source = pa.BufferReader(data)
    control = _read(source, case)
    header = {k.decode(): v.decode() for k, v in (control.schema.metadata or {}).items()}
    _require_kind(header, case)
    events, waiting, payload, held_payload = (_read(source, case) for _ in range(4))
    _require_payload(header, held_payload, schema)
    state = OrderedState.empty(case, replace(schema, has_seq=False, has_replica=False))
    _read_members(state.members, control)
    state.last_start = _column(control, "last_start")
    state.frontier, state.current = int(header["frontier"]), int(header["current"])
    state.conflicts = int(header["conflicts"])
    if isinstance(state.group, Latest):
        state.group = Latest(payload, _column(events, "end"))
    else:
        said = np.empty((events.num_rows, len(state.members)), np.int32)
        for i in range(said.shape[1]):
            said[:, i] = _column(events, f"said_{i}")
        ends, emitted = _column(events, "end"), _column(events, "emitted")
        state.group.restore(state.current, payload, ends, emitted, said)
    _read_held(state, waiting, held_payload, json.loads(header["owed"]))
    return state


def _read_members(members: Members, control: pa.Table) -> None:
    for name in control.column("name").to_pylist():
        members.add(name, attachment=0, guarantee=None)
    for column in _CONTROL:
        setattr(members, column, _column(control, column))


def _read_held(
    state: OrderedState, waiting: pa.Table, payload: pa.Table, owed: list[str]
) -> None:
    replica, place = _column(waiting, "replica"), np.arange(waiting.num_rows)
    both = Held(replica, _column(waiting, "start"), _column(waiting, "end"), place, payload)
    members = len(state.members)
    left = [np.flatnonzero(replica == members + i) for i in range(len(owed))]
    abandoned = Reason.ABANDONED.code
    state.owed = tuple(
        Resolved(name, both.batch(state.schema, rows), np.full(len(rows), abandoned, np.int8))
        for name, rows in zip(owed, left, strict=True)
    )
    state.held = both.keep(np.flatnonzero(replica < members)).compact()


def _require_kind(header: dict[str, str], case: MergeCase) -> None:
    found = f"'{header.get('kind', 'unknown')}' version {header.get('version', 'unknown')}"
    wanted = f"'{kind_of(case)}' version {VERSION}"
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
    return pa.table({name: to_arrow(c, _TYPES[c.dtype]) for name, c in columns.items()})


def _column(table: pa.Table, name: str) -> NDArray[Any]:
    """A copy: a step changes columns in place, and a view of the bytes may not be changed."""
    wide = table.schema.field(name).type == pa.int64()
    return numbers(table.column(name), np.dtype(np.int64 if wide else np.int32)).copy()


def _write(*tables: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(source: pa.BufferReader, case: MergeCase) -> pa.Table:
    try:
        with pa.ipc.open_stream(source) as reader:
            return reader.read_all()
    except (pa.ArrowInvalid, OSError) as error:
        message = (
            f"merge: the bytes are not a state of '{kind_of(case)}' ({error}); the checkpoint "
            "is damaged or not ours; start with a new checkpoint and output folder"
        )
        raise StateError(message) from error
