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
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.merge import r3_codec as codec
from anabranch.operators.merge.members_codec import read_members
from anabranch.operators.merge.r3_nodes import BLOCK, BLOCK_BITS, FLAGS, LIVE
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.settled import BLOCK as NAMES
from anabranch.operators.merge.settled import BLOCK_BITS as NAME_BITS
from anabranch.operators.merge.settled import END
from anabranch.operators.merge.slots import LOW
from anabranch.operators.state_codec import column_of, header_of, to_table, write_tables
from anabranch.operators.state_parts import (
    CONTROL,
    EVERYTHING,
    Saved,
    part_of,
    read_marked,
    with_mark,
)

_KIND: Final = replace(codec.KIND, reads=(2,))


def write_parts(state: R3State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    blocks = _blocks(state)
    written = {CONTROL: _write_control(state, blocks)}
    gone = np.flatnonzero(state.nodes.changed > after)
    deleted = []
    for block in gone[~np.isin(gone, blocks)].tolist():
        deleted += [f"nodes/{block}", f"payload/{block}"]
    for block in blocks[state.nodes.changed[blocks] > after].tolist():
        ids = _ids(state, block)
        written[f"nodes/{block}"] = with_mark(
            state.nodes.changed[block], codec.node_table(state, ids)
        )
        if state.nodes.filled[block] > after:
            written[f"payload/{block}"] = with_mark(
                state.nodes.filled[block],
                to_table({"node": ids}),
                codec.payload_table(state, ids),
            )
    settled = state.settled
    new, emptied = settled.blocks(after)
    for block in new:
        first = max(block << NAME_BITS, settled.first)
        rows = settled.rows(first, min((block + 1) << NAME_BITS, settled.next))
        written[f"settled/{block}"] = with_mark(first, codec.settled_table(rows))
    deleted += [f"settled/{block}" for block in emptied]
    return Saved(written, () if since is None else tuple(deleted), state.mark)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3State:
    """The state that was saved last."""
    streams = _KIND.open(part_of(parts, CONTROL, _KIND))
    control, header = streams.first()
    blocks, empty = streams.next(), streams.next()
    _KIND.require_payload(header, empty, schema)
    state = codec.new_state(schema, header, read_members(control, header))
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
    header = header_of(table) | {"settled_next": str(state.settled.next)}
    nodes = state.nodes
    marks = {"block": blocks, "changed": nodes.changed[blocks], "filled": nodes.filled[blocks]}
    return write_tables(
        table.replace_schema_metadata(header),
        to_table(marks),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def _read_nodes(
    state: R3State, parts: Mapping[str, bytes], blocks: pa.Table, empty: pa.Table
) -> None:
    ids, rows = [np.empty(0, np.int64)], [codec.read_rows(_no_nodes(state), state.members)]
    payloads = [empty]
    columns = [column_of(blocks, name) for name in ("block", "changed", "filled")]
    for block, changed, filled in zip(*(column.tolist() for column in columns), strict=True):
        nodes, _ = read_marked(parts, f"nodes/{block}", changed, _KIND)
        held, streams = read_marked(parts, f"payload/{block}", filled, _KIND)
        mine = column_of(nodes, "node")
        at = np.searchsorted(column_of(held, "node"), mine)
        ids.append(mine)
        rows.append(codec.read_rows(nodes, state.members))
        payloads.append(take(streams.next(), at))
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
        table = _KIND.open(part_of(parts, f"settled/{block}", _KIND)).next()
        first = int(header_of(table)["mark"])
        rows = codec.read_settled(table)[settled.next - first : end - first]
        settled.remember(rows[:, : LOW + 1], rows[:, END], state.mark)
