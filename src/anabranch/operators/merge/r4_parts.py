"""The state of merge R4 in parts, so that a save writes only what changed since the last one.

The parts are those of `merge_parts`; the rows are identities, and their ends follow them.

Payloads and settled names are the same parts as those of R3: a merge that goes on as R4
(`auto`) writes its nodes anew, and leaves those two as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge import r4_codec as codec
from anabranch.operators.merge.members_codec import read_members
from anabranch.operators.merge.merge_parts import Control, open_control, save
from anabranch.operators.merge.r4_restore import Written, restore
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.settled_codec import read_settled_parts
from anabranch.operators.state_codec import column_of
from anabranch.operators.state_parts import EVERYTHING, Blocks, Saved, read_blocks

_KIND: Final = replace(codec.KIND, reads=(2,))


def write_parts(state: R4State, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    saved = save(state, _InBlocks(state), codec.control_table(state), since)
    state.nodes.blocks.forget(EVERYTHING if since is None else since, state.mark)
    return saved


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R4State:
    """The state that was saved last."""
    control = open_control(parts, _KIND, schema)
    header = control.header
    state = codec.new_state(schema, header, read_members(control.replicas, header))
    written = _read_nodes(state, parts, control)
    control.blocks.hold(written.ids)
    restore(state, written, control.blocks)
    state.nodes.next_born = int(header["next_born"])
    end = int(header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, _KIND)
    return state


@dataclass(frozen=True)
class _InBlocks:
    at_once: ClassVar[bool] = False

    state: R4State

    def blocks(self) -> Blocks:
        return self.state.nodes.blocks

    def ids(self, block: int) -> Ints:
        return self.state.nodes.ids_in(block)

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        return codec.node_table(self.state, ids), codec.end_table(self.state, ids)

    def payload(self, ids: Ints) -> pa.Table:
        return codec.payload_table(self.state, ids)


def _read_nodes(state: R4State, parts: Mapping[str, bytes], control: Control) -> Written:
    none, empty = np.empty(0, np.int64), control.empty
    tables, payloads = [codec.node_table(state, none)], [empty]
    ends, position = [state.ends(none)], 0
    for nodes, more, payload in read_blocks(parts, control.blocks, _KIND):
        rows = codec.read_ends(more.next(), state.members)
        rows[:, 0] += position
        position += nodes.num_rows
        tables.append(nodes)
        ends.append(rows)
        payloads.append(payload)
    nodes = pa.concat_tables(tables)
    payload = pa.concat_tables(payloads) if len(empty.schema) else empty
    return codec.read_nodes(column_of(nodes, "node"), nodes, np.concatenate(ends), payload)
