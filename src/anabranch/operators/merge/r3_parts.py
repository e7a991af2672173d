"""The state of merge R3 in parts, so that a save writes only what changed since the last one.

    control      always: the replicas with the header, the list of blocks, an empty payload
    nodes/K      the events with the numbers of block K, without their payloads
    payload/K    the payloads of that block; written only when an event got a number in it
    settled/K    the names with the numbers of block K; never changed when full

A block without events has no parts.  A part may hold more than is true (payloads of events that
left, names that were forgotten): the control decides; see `state_parts`.

What a save costs: control (about 100 bytes per block of 1,024 events) and the changed blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.merge import r3_codec as codec
from anabranch.operators.merge.members_codec import read_members
from anabranch.operators.merge.r3_nodes import BLOCK, BLOCK_BITS, FLAGS, LIVE, Nodes
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.settled_codec import read_settled_parts, settled_parts
from anabranch.operators.state_codec import column_of, header_of, write_tables
from anabranch.operators.state_parts import (
    CONTROL,
    EVERYTHING,
    Blocks,
    Saved,
    part_of,
    read_blocks,
    write_blocks,
)

_KIND: Final = replace(codec.KIND, reads=(2,))


def write_parts(state: R3State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    nodes, no_nodes = write_blocks(_InBlocks(state), after)
    names, no_names = settled_parts(state.settled, after)
    written = {CONTROL: _write_control(state)} | nodes | names
    return Saved(written, () if since is None else (*no_nodes, *no_names), state.mark)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3State:
    """The state that was saved last."""
    streams = _KIND.open(part_of(parts, CONTROL, _KIND))
    control, header = streams.first()
    blocks, empty = Blocks.read(streams.next()), streams.next()
    _KIND.require_payload(header, empty, schema)
    state = codec.new_state(schema, header, read_members(control, header))
    _read_nodes(state, parts, blocks, empty)
    end = int(header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, _KIND)
    return state.restored()


def blocks_of(nodes: Nodes) -> Blocks:
    """The blocks of the nodes; views."""
    return Blocks(np.arange(len(nodes.held)), nodes.changed, nodes.filled, nodes.held)


@dataclass(frozen=True)
class _InBlocks:
    state: R3State

    def blocks(self) -> Blocks:
        return blocks_of(self.state.nodes)

    def ids(self, block: int) -> Ints:
        first = block << BLOCK_BITS
        rows = self.state.nodes.rows[first : min(first + BLOCK, self.state.nodes.used)]
        return first + np.flatnonzero(rows[:, FLAGS] & LIVE)

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        return (codec.node_table(self.state, ids),)

    def payload(self, ids: Ints) -> pa.Table:
        return codec.payload_table(self.state, ids)


def _write_control(state: R3State) -> bytes:
    table = codec.control_table(state)
    header = header_of(table) | {"settled_next": str(state.settled.next)}
    return write_tables(
        table.replace_schema_metadata(header),
        blocks_of(state.nodes).table(),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def _read_nodes(
    state: R3State, parts: Mapping[str, bytes], blocks: Blocks, empty: pa.Table
) -> None:
    none = codec.node_table(state, np.empty(0, np.int64))
    tables, payloads = [none], [empty]
    for nodes, _, payload in read_blocks(parts, blocks, _KIND):
        tables.append(nodes)
        payloads.append(payload)
    ids = np.concatenate([column_of(table, "node") for table in tables])
    rows = np.concatenate([codec.read_rows(table, state.members) for table in tables])
    payload = read_table(pa.concat_tables(payloads)) if len(empty.schema) else []
    state.nodes.restore(ids, rows, payload, 0)
    state.nodes.changed[blocks.number] = blocks.changed
    state.nodes.filled[blocks.number] = blocks.filled
