"""The state of the merges R0, R1 and R2 in parts: small, but for what joining replicas brought.

    control      always: all but what is held (see `ordered_codec`), and the list of blocks
    nodes/K      the inserts that wait with the numbers of block K; `replica` is a serial
    payload/K    their payloads

Numbers are never given again, so a block is written while it fills and when inserts of it are
decided; a block of which all are decided is deleted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.ordered_codec import kind_of, read_tables, state_tables
from anabranch.operators.merge.ordered_held import Held
from anabranch.operators.merge.ordered_state import OrderedState
from anabranch.operators.state.blocks import (
    BLOCK_BITS,
    CONTROL,
    EVERYTHING,
    Blocks,
    Saved,
    part_of,
    read_blocks,
    write_blocks,
)
from anabranch.operators.state.codec import column_of, header_of, to_table, write_tables


def write_parts(state: OrderedState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    held, gone = write_blocks(_InBlocks(state), after)
    blocks = state.blocks.table().replace_schema_metadata({"next_held": str(state.next_held)})
    control = write_tables(*state_tables(state, np.arange(0)), blocks)
    state.blocks.forget(after, state.mark)
    return Saved({CONTROL: control} | held, () if since is None else tuple(gone), state.mark)


def read_parts(
    parts: Mapping[str, bytes], case: MergeCase, schema: ElementSchema
) -> OrderedState:
    """The state that was saved last."""
    kind = kind_of(case)
    streams = kind.open(part_of(parts, CONTROL, kind))
    state = read_tables(streams, case, schema)
    table = streams.next()
    state.blocks, state.next_held = Blocks.read(table), int(header_of(table)["next_held"])
    empty = np.empty(0, np.int64)
    names = ("node", "replica", "start", "end")
    tables, payloads = [to_table(dict.fromkeys(names, empty))], [state.held.payload]
    for rows, _, payload in read_blocks(parts, state.blocks, kind):
        tables.append(rows)
        payloads.append(payload)
    number, serial, start, end = (
        column_of(pa.concat_tables(tables), name).copy() for name in names
    )
    payload = pa.concat_tables(payloads) if len(schema.payload) else state.held.payload
    # Who came later has the greater serial, and stands behind.
    replica = np.searchsorted(state.members.serial, serial)
    state.held = Held(replica, start, end, np.arange(len(number)), number, payload)
    state.blocks.hold(number)
    return state


@dataclass(frozen=True)
class _InBlocks:
    at_once: ClassVar[bool] = True

    state: OrderedState

    def blocks(self) -> Blocks:
        return self.state.blocks

    def ids(self, block: int) -> Ints:
        number = self.state.held.number
        first, last = np.searchsorted(number, [block << BLOCK_BITS, (block + 1) << BLOCK_BITS])
        return number[first:last]

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        held = self.state.held
        rows = np.searchsorted(held.number, ids)
        columns = {
            "node": ids,
            "replica": self.state.members.serial[held.replica[rows]],
            "start": held.start[rows],
            "end": held.end[rows],
        }
        return (to_table(columns),)

    def payload(self, ids: Ints) -> pa.Table:
        held = self.state.held
        return take(held.payload, held.place[np.searchsorted(held.number, ids)])
