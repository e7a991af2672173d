"""The state of merge R3 in parts, so that a save writes only what changed since the last one.

The parts are those of `merge_parts`; the rows are the events that may still change.

What a save costs: control (about 100 bytes per block of 1,024 events) and the changed blocks.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.merge import r3_codec as codec
from anabranch.operators.merge.members_codec import read_members
from anabranch.operators.merge.merge_parts import Control, open_control, save
from anabranch.operators.merge.r3_nodes import Nodes
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.settled_codec import read_settled_parts
from anabranch.operators.state_codec import column_of
from anabranch.operators.state_parts import Blocks, Saved, read_blocks

_KIND: Final = replace(codec.KIND, reads=(2, 3))


def write_parts(state: R3State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    tables = partial(codec.node_table, state), partial(codec.payload_table, state)
    return save(state, NodesInBlocks(state.nodes, *tables), codec.control_table(state), since)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3State:
    """The state that was saved last."""
    control = open_control(parts, _KIND, schema)
    header = control.header
    state = codec.new_state(schema, header, read_members(control.replicas, header))
    _read_nodes(state, parts, control)
    end = int(header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, _KIND)
    return state.restored()


def blocks_of(nodes: Nodes) -> Blocks:
    """The blocks of the nodes; views."""
    return Blocks(np.arange(len(nodes.held)), nodes.changed, nodes.filled, nodes.held)


@dataclass(frozen=True)
class NodesInBlocks:
    """Nodes with the tables that are written of some of them: their rows and their payloads."""

    at_once: ClassVar[bool] = True

    nodes: Nodes
    row_table: Callable[[Ints], pa.Table]
    payload_table: Callable[[Ints], pa.Table]

    def blocks(self) -> Blocks:
        """Their blocks."""
        return blocks_of(self.nodes)

    def ids(self, block: int) -> Ints:
        """The nodes of a block."""
        return self.nodes.ids_in(block)

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        """These nodes."""
        return (self.row_table(ids),)

    def payload(self, ids: Ints) -> pa.Table:
        """Their payloads."""
        return self.payload_table(ids)


def _read_nodes(state: R3State, parts: Mapping[str, bytes], control: Control) -> None:
    members, none = state.members, codec.node_table(state, np.empty(0, np.int64))
    tables, payloads, all_rows = [none], [control.empty], [codec.read_nodes(none, members, [])]
    for nodes, _, payload in read_blocks(parts, control.blocks, _KIND):
        columns = read_table(payload) if payload.num_columns else []
        tables.append(nodes)
        payloads.append(payload)
        all_rows.append(codec.read_nodes(nodes, members, columns))
    ids = np.concatenate([column_of(table, "node") for table in tables])
    held = read_table(pa.concat_tables(payloads)) if len(control.empty.schema) else []
    state.nodes.restore(ids, np.concatenate(all_rows), held, 0)
    date_blocks(state.nodes, control.blocks)


def date_blocks(nodes: Nodes, blocks: Blocks) -> None:
    """Restored nodes changed when their blocks say."""
    nodes.changed[blocks.number] = blocks.changed
    nodes.filled[blocks.number] = blocks.filled
