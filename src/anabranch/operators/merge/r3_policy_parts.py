"""The state of merge R3 with a policy in parts: a save writes only what changed.

The parts are those of `r3_parts`, with the columns of `r3_policy_codec`.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge import r3_policy_codec as codec
from anabranch.operators.merge.merge_parts import Control, open_control, save
from anabranch.operators.merge.r3_parts import NodesInBlocks, date_blocks
from anabranch.operators.merge.r3_policy_codec import KIND
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.settled_codec import read_settled_parts
from anabranch.operators.state_codec import column_of
from anabranch.operators.state_parts import Saved, read_blocks


def write_parts(state: R3PolicyState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    tables = partial(codec.events_table, state), partial(codec.payload_of, state)
    return save(state, NodesInBlocks(state.nodes, *tables), codec.control_table(state), since)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> R3PolicyState:
    """The state that was saved last."""
    control = open_control(parts, KIND, schema)
    state = codec.new_state(schema, control.header, control.replicas)
    _read_nodes(state, parts, control)
    end = int(control.header["settled_next"])
    read_settled_parts(state.settled, parts, end, state.mark, KIND)
    return state.restored()


def _read_nodes(state: R3PolicyState, parts: Mapping[str, bytes], control: Control) -> None:
    tables = [codec.events_table(state, np.empty(0, np.int64))]
    payloads = [control.empty]
    for nodes, _, payload in read_blocks(parts, control.blocks, KIND):
        tables.append(nodes)
        payloads.append(payload)
    ids = np.concatenate([column_of(table, "node") for table in tables])
    read = [codec.read_events(state, table) for table in tables]
    rows, book = (np.concatenate(some) for some in zip(*read, strict=True))
    codec.restore(state, ids, (rows, book), pa.concat_tables(payloads), 0)
    date_blocks(state.nodes, control.blocks)
