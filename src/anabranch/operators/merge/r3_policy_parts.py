"""The state of merge R3 with a policy in parts: a save writes only what changed.

The parts are those of `r3_parts`, with the columns of `r3_policy_codec`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge import r3_policy_codec as codec
from anabranch.operators.merge.r3_nodes import BLOCK, BLOCK_BITS, FLAGS, LIVE
from anabranch.operators.merge.r3_parts import blocks_of
from anabranch.operators.merge.r3_policy_codec import KIND
from anabranch.operators.merge.r3_policy_state import R3PolicyState
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


def write_parts(state: R3PolicyState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    nodes, no_nodes = write_blocks(_InBlocks(state), after)
    names, no_names = settled_parts(state.settled, after)
    written = {CONTROL: _write_control(state)} | nodes | names
    return Saved(written, () if since is None else (*no_nodes, *no_names), state.mark)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3PolicyState:
    """The state that was saved last."""
    streams = KIND.open(part_of(parts, CONTROL, KIND))
    control, header = streams.first()
    blocks, empty = Blocks.read(streams.next()), streams.next()
    KIND.require_payload(header, empty, schema)
    state = codec.new_state(schema, header, control)
    _read_nodes(state, parts, blocks, empty)
    end = int(header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, KIND)
    return state.restored()


@dataclass(frozen=True)
class _InBlocks:
    state: R3PolicyState

    def blocks(self) -> Blocks:
        return blocks_of(self.state.nodes)

    def ids(self, block: int) -> Ints:
        first, nodes = block << BLOCK_BITS, self.state.nodes
        flags = nodes.rows[first : min(first + BLOCK, nodes.used), FLAGS]
        return first + np.flatnonzero(flags & LIVE)

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        return (codec.events_table(self.state, ids),)

    def payload(self, ids: Ints) -> pa.Table:
        return codec.payload_of(self.state, ids)


def _write_control(state: R3PolicyState) -> bytes:
    table = codec.control_table(state)
    header = header_of(table) | {"settled_next": str(state.settled.next)}
    return write_tables(
        table.replace_schema_metadata(header),
        blocks_of(state.nodes).table(),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def _read_nodes(
    state: R3PolicyState, parts: Mapping[str, bytes], blocks: Blocks, empty: pa.Table
) -> None:
    tables, payloads = [codec.events_table(state, np.empty(0, np.int64))], [empty]
    for nodes, _, payload in read_blocks(parts, blocks, KIND):
        tables.append(nodes)
        payloads.append(payload)
    ids = np.concatenate([column_of(table, "node") for table in tables])
    read = [codec.read_events(state, table) for table in tables]
    rows, book = (np.concatenate(some) for some in zip(*read, strict=True))
    codec.restore(state, ids, (rows, book), pa.concat_tables(payloads), 0)
    state.nodes.changed[blocks.number] = blocks.changed
    state.nodes.filled[blocks.number] = blocks.filled
