"""The state of merge R3 in parts, so that a save writes only what changed since the last one.

    control      always: the replicas with the header, the list of blocks, an empty payload
    nodes/K      the events with the numbers of block K, without their payloads
    payload/K    the payloads of that block; written only when an event got a number in it
    settled/K    the names with the numbers of block K; never changed when full

A block without events has no parts.  The control says when each block was last changed, and a
part says which change it has: parts that do not belong together are refused by name.  A part
may hold more than is true (payloads of events that left, names that were forgotten): the
control decides.

What a save costs: control (about 100 bytes per block of 1,024 events) and the changed blocks.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.errors import StateError
from anabranch.operators.merge import r3_codec as codec
from anabranch.operators.merge.r3_nodes import BLOCK, BLOCK_BITS, FLAGS, LIVE
from anabranch.operators.merge.r3_settled import BLOCK as NAMES
from anabranch.operators.merge.r3_settled import BLOCK_BITS as NAME_BITS
from anabranch.operators.merge.r3_settled import END
from anabranch.operators.merge.r3_state import R3State, Saved
from anabranch.operators.merge.slots import LOW

CONTROL: Final = "control"
_VERSIONS: Final = ("2",)
_ALWAYS: Final = -1


def write_parts(state: R3State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = _ALWAYS if since is None else since
    blocks = _blocks(state)
    written = {CONTROL: _write_control(state, blocks)}
    gone = np.flatnonzero(state.nodes.changed > after)
    deleted = []
    for block in gone[~np.isin(gone, blocks)].tolist():
        deleted += [f"nodes/{block}", f"payload/{block}"]
    for block in blocks[state.nodes.changed[blocks] > after].tolist():
        ids = _ids(state, block)
        written[f"nodes/{block}"] = _with_mark(
            state.nodes.changed[block], codec.node_table(state, ids)
        )
        if state.nodes.filled[block] > after:
            written[f"payload/{block}"] = _with_mark(
                state.nodes.filled[block],
                codec.to_table({"node": ids}),
                codec.payload_table(state, ids),
            )
    settled = state.settled
    new, emptied = settled.blocks(after)
    for block in new:
        first = max(block << NAME_BITS, settled.first)
        rows = settled.rows(first, min((block + 1) << NAME_BITS, settled.next))
        written[f"settled/{block}"] = _with_mark(first, codec.settled_table(rows))
    deleted += [f"settled/{block}" for block in emptied]
    return Saved(written, () if since is None else tuple(deleted), state.mark)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3State:
    """The state that was saved last."""
    source = pa.BufferReader(_part(parts, CONTROL))
    control = codec.read_table_of(source)
    header = codec.header_of(control)
    codec.require_kind(header, _VERSIONS)
    blocks, empty = codec.read_table_of(source), codec.read_table_of(source)
    codec.require_payload(header, empty, schema)
    state = codec.new_state(schema, header, codec.read_members(control, header))
    _read_nodes(state, parts, blocks, empty)
    _read_settled(state, parts, int(header["settled_next"]))
    return state.restored()


def _blocks(state: R3State) -> Ints:
    """The blocks that have events."""
    return np.flatnonzero(state.nodes.held)


def _ids(state: R3State, block: int) -> Ints:
    first = block << BLOCK_BITS
    rows = state.nodes.rows[first : min(first + BLOCK, state.nodes.used)]
    return first + np.flatnonzero(rows[:, FLAGS] & LIVE)


def _write_control(state: R3State, blocks: Ints) -> bytes:
    table = codec.control_table(state)
    header = codec.header_of(table) | {"settled_next": str(state.settled.next)}
    nodes = state.nodes
    marks = {"block": blocks, "changed": nodes.changed[blocks], "filled": nodes.filled[blocks]}
    return codec.write_tables(
        table.replace_schema_metadata(header),
        codec.to_table(marks),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def _with_mark(mark: int, table: pa.Table, *more: pa.Table) -> bytes:
    return codec.write_tables(table.replace_schema_metadata({"mark": str(mark)}), *more)


def _part(parts: Mapping[str, bytes], name: str) -> bytes:
    data = parts.get(name)
    if data is None:
        message = (
            f"merge: the state has no part '{name}', but its control names it; the checkpoint "
            "is incomplete; start with a new checkpoint and output folder"
        )
        raise StateError(message)
    return data


def _read_marked(
    parts: Mapping[str, bytes], name: str, mark: int
) -> tuple[pa.Table, pa.BufferReader]:
    """The first table of a part, if the part is the one that belongs to this save."""
    source = pa.BufferReader(_part(parts, name))
    table = codec.read_table_of(source)
    found = codec.header_of(table).get("mark", "unknown")
    if found != str(mark):
        message = (
            f"merge: part '{name}' of the state is of change {found}, the control asks for "
            f"{mark}; the parts are of different saves; start with a new checkpoint and output "
            "folder"
        )
        raise StateError(message)
    return table, source


def _read_nodes(
    state: R3State, parts: Mapping[str, bytes], blocks: pa.Table, empty: pa.Table
) -> None:
    ids, rows = [np.empty(0, np.int64)], [codec.read_rows(_no_nodes(state), state.members)]
    payloads = [empty]
    columns = [codec.column_of(blocks, name) for name in ("block", "changed", "filled")]
    for block, changed, filled in zip(*(column.tolist() for column in columns), strict=True):
        nodes, _ = _read_marked(parts, f"nodes/{block}", changed)
        held, source = _read_marked(parts, f"payload/{block}", filled)
        mine = codec.column_of(nodes, "node")
        at = np.searchsorted(codec.column_of(held, "node"), mine)
        ids.append(mine)
        rows.append(codec.read_rows(nodes, state.members))
        payloads.append(take(codec.read_table_of(source), at))
    payload = read_table(pa.concat_tables(payloads)) if len(empty.schema) else []
    state.nodes.restore(np.concatenate(ids), np.concatenate(rows), payload, 0)
    state.nodes.changed[columns[0]], state.nodes.filled[columns[0]] = columns[1], columns[2]


def _no_nodes(state: R3State) -> pa.Table:
    return codec.node_table(state, np.empty(0, np.int64))


def _read_settled(state: R3State, parts: Mapping[str, bytes], end: int) -> None:
    settled = state.settled
    for block in range(settled.first >> NAME_BITS, -(-end // NAMES)):
        if settled.next == end:
            break
        source = pa.BufferReader(_part(parts, f"settled/{block}"))
        table = codec.read_table_of(source)
        first = int(codec.header_of(table)["mark"])
        rows = codec.read_settled(table)[settled.next - first : end - first]
        settled.remember(rows[:, : LOW + 1], rows[:, END], state.mark)
