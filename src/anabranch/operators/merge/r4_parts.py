"""The state of merge R4 in parts, so that a save writes only what changed since the last one.

    control      always: the replicas with the header, the list of blocks, an empty payload
    nodes/K      the identities with the numbers of block K, and their ends
    payload/K    the payloads of that block; written only when an identity got a number in it
    settled/K    the names with the numbers of block K; never changed when full

The same names as those of R3, and payloads and settled names are the same parts: a merge that
goes on as R4 (`auto`) writes its nodes anew, and leaves those two as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge import r4_codec as codec
from anabranch.operators.merge.members_codec import read_members
from anabranch.operators.merge.r4_restore import Written, restore
from anabranch.operators.merge.r4_state import R4State
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


def write_parts(state: R4State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    nodes, no_nodes = write_blocks(_InBlocks(state), after)
    names, no_names = settled_parts(state.settled, after)
    written = {CONTROL: _write_control(state)} | nodes | names
    state.nodes.blocks.forget(after, state.mark)
    return Saved(written, () if since is None else (*no_nodes, *no_names), state.mark)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R4State:
    """The state that was saved last."""
    streams = _KIND.open(part_of(parts, CONTROL, _KIND))
    control, header = streams.first()
    blocks, empty = Blocks.read(streams.next()), streams.next()
    _KIND.require_payload(header, empty, schema)
    state = codec.new_state(schema, header, read_members(control, header))
    written = _read_nodes(state, parts, blocks, empty)
    blocks.hold(written.ids)
    restore(state, written, blocks)
    state.nodes.next_born = int(header["next_born"])
    end = int(header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, _KIND)
    return state


@dataclass(frozen=True)
class _InBlocks:
    state: R4State

    def blocks(self) -> Blocks:
        return self.state.nodes.blocks

    def ids(self, block: int) -> Ints:
        return self.state.nodes.ids_in(block)

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        return codec.node_table(self.state, ids), codec.end_table(self.state, ids)

    def payload(self, ids: Ints) -> pa.Table:
        return codec.payload_table(self.state, ids)


def _write_control(state: R4State) -> bytes:
    table = codec.control_table(state)
    header = header_of(table) | {"settled_next": str(state.settled.next)}
    return write_tables(
        table.replace_schema_metadata(header),
        state.nodes.blocks.table(),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def _read_nodes(
    state: R4State, parts: Mapping[str, bytes], blocks: Blocks, empty: pa.Table
) -> Written:
    none = np.empty(0, np.int64)
    tables, payloads = [codec.node_table(state, none)], [empty]
    ends, position = [state.ends(none)], 0
    for nodes, more, payload in read_blocks(parts, blocks, _KIND):
        rows = codec.read_ends(more.next(), state.members)
        rows[:, 0] += position
        position += nodes.num_rows
        tables.append(nodes)
        ends.append(rows)
        payloads.append(payload)
    nodes = pa.concat_tables(tables)
    payload = pa.concat_tables(payloads) if len(empty.schema) else empty
    return codec.read_nodes(column_of(nodes, "node"), nodes, np.concatenate(ends), payload)
