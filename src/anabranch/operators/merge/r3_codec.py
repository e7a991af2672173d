"""The state of merge R3 as bytes: four Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per event that may still change, in the order in which they came; its
               end on the output is `lasts` after its start, and what the attachment with
               serial 7 says is `later_7` after that
    settled    one row per event that is final and may still be mentioned
    payload    one row per node

Events of a stream last equally long, more often than not, and replicas agree: as distances
ends take hardly any room when they are pressed.  Differences wrap around, there and back.  The
hash of a payload would take more room than all of these; it is computed again.

No pickle, and nothing that depends on the machine.  Version 2 (ends as they are, with hashes)
and version 1 (a table that was built anew for every step, with salts instead of comparisons,
and replicas counted from 0) are read as well; a state of another kind or version is refused by
name, never guessed at.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.members_codec import members_table, read_members
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
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.settled_codec import SWAPPED, read_settled, settled_table
from anabranch.operators.merge.slots import HIGH, LOW, START
from anabranch.operators.state_codec import StateKind, column_of, to_table, write_tables

KIND: Final = StateKind("anabranch merge r3", version=3, reads=(1, 2, 3))


def write_state(state: R3State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    ids, settled = state.in_order(), state.settled
    return write_tables(
        control_table(state),
        node_table(state, ids).drop_columns("node"),
        settled_table(settled.all()),
        payload_table(state, ids),
    )


def read_state(data: bytes, schema: ElementSchema) -> R3State:
    """The state that was written, ready for the next step."""
    streams = KIND.open(data)
    control, header = streams.first()
    nodes, known, payload = (streams.next() for _ in range(3))
    KIND.require_payload(header, payload, schema)
    members = read_members(control, header)
    columns = read_table(payload)
    is_old = header["version"] == "1"
    rows = _read_rows_v1(nodes, members) if is_old else read_nodes(nodes, members, columns)
    state = new_state(schema, header, members)
    # Numbers are given anew: whoever saves in parts must write all of them.
    state.mark += 1
    state.nodes.restore(np.arange(len(rows)), rows, columns, state.mark)
    state.next_born = max(state.next_born, int(rows[:, BORN].max(initial=-1)) + 1)
    names = read_settled(known, SWAPPED) if is_old else read_settled(known)
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
        stable_lag=int(header.get("stable_lag", "0")),
    )


def control_table(state: R3State) -> pa.Table:
    """The replicas, with the header of the state."""
    header = KIND.header(
        time=state.schema.time.value,
        frontier=state.frontier,
        conflicts=state.conflicts,
        next_born=state.next_born,
        settled=state.settled.first,
        mark=state.mark,
        stable_lag=state.stable_lag,
    )
    return members_table(state.members, header)


def node_table(state: R3State, ids: Ints) -> pa.Table:
    """These nodes, without what their payloads tell."""
    rows = state.nodes.rows[ids]
    start, out = rows[:, START], rows[:, OUT]
    columns: dict[str, NDArray[Any]] = {
        "node": ids,
        "start": start,
        "born": np.where(out == ABSENT, ABSENT, rows[:, BORN]),
        "lasts": out - start,
        "in_conflict": (rows[:, FLAGS] & CONFLICT != 0).astype(np.int8),
    }
    serials = state.members.serial.tolist()
    ends = {f"later_{serial}": rows[:, ENDS + i] - out for i, serial in enumerate(serials)}
    return to_table(columns | ends)


def read_nodes(nodes: pa.Table, members: Members, payload: Sequence[Column]) -> Ints:
    """The rows of a table of nodes, of this version or the one before."""
    if "lasts" not in nodes.column_names:
        return read_rows(nodes, members)
    rows = np.empty((nodes.num_rows, ENDS + len(members)), np.int64)
    rows[:, START], rows[:, BORN] = column_of(nodes, "start"), column_of(nodes, "born")
    names = hash_columns(payload, len(rows)).view(np.int64)
    rows[:, LOW], rows[:, HIGH] = names[:, 0], names[:, 1]
    out = rows[:, START] + column_of(nodes, "lasts")
    _fill_output(rows, nodes, out)
    for i, serial in enumerate(members.serial.tolist()):
        name = f"later_{serial}"
        # Who was attached after this was written has said nothing here.
        is_there = name in nodes.column_names
        rows[:, ENDS + i] = out + column_of(nodes, name) if is_there else ABSENT
    return rows


def named_table(state: R3State, ids: Ints) -> pa.Table:
    """These nodes with their hashes and ends, as version 2 and merges with a policy have it."""
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
    """The rows of a table with hashes and ends; who is not attached is left out."""
    rows = np.empty((nodes.num_rows, ENDS + len(members)), np.int64)
    rows[:, START], rows[:, BORN] = column_of(nodes, "start"), column_of(nodes, "born")
    rows[:, HIGH], rows[:, LOW] = column_of(nodes, "high"), column_of(nodes, "low")
    _fill_output(rows, nodes, column_of(nodes, "output_end"))
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
    _fill_output(rows, nodes, column_of(nodes, "output_end"))
    for i in range(len(members)):
        rows[:, ENDS + i] = column_of(nodes, f"end_{i}")
    return rows


def _fill_output(rows: Ints, nodes: pa.Table, out: Ints) -> None:
    rows[:, OUT], rows[:, ROW] = out, 0
    rows[:, FLAGS] = np.where(column_of(nodes, "in_conflict") != 0, LIVE | CONFLICT, LIVE)


def payload_table(state: R3State, ids: Ints) -> pa.Table:
    """The payloads of these nodes."""
    rows = state.nodes.rows[ids, ROW]
    return state.nodes.take(rows).replace_schema_metadata(None)
