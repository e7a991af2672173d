"""What the states of R3, R3 with a policy and R4 have in common when they are saved in parts.

    control      always: the replicas with the header, the list of blocks, an empty payload
    nodes/K      the rows with the numbers of block K, without their payloads
    payload/K    the payloads of that block; written only when a row got a number in it
    settled/K    the names with the numbers of block K; never changed when full

A block without rows has no parts.  A part may hold more than is true (payloads of rows that
left, names that were forgotten): the control decides; see `state_parts`.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.settled import Settled
from anabranch.operators.merge.settled_codec import settled_parts
from anabranch.operators.state_codec import StateKind, header_of, write_tables
from anabranch.operators.state_parts import (
    CONTROL,
    EVERYTHING,
    Blocks,
    InBlocks,
    Saved,
    part_of,
    write_blocks,
)


class Savable(Protocol):
    """A state with settled names and a mark."""

    schema: ElementSchema
    settled: Settled
    mark: int


class Control(NamedTuple):
    """The part that names the others: the replicas, its header, the blocks, no payload."""

    replicas: pa.Table
    header: dict[str, str]
    blocks: Blocks
    empty: pa.Table


def save(state: Savable, held: InBlocks, replicas: pa.Table, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    nodes, no_nodes = write_blocks(held, after)
    names, no_names = settled_parts(state.settled, after)
    header = header_of(replicas) | {"settled_next": str(state.settled.next)}
    control = write_tables(
        replicas.replace_schema_metadata(header),
        held.blocks().table(),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )
    gone = () if since is None else (*no_nodes, *no_names)
    return Saved({CONTROL: control} | nodes | names, gone, state.mark)


def open_control(parts: Mapping[str, bytes], kind: StateKind, schema: ElementSchema) -> Control:
    """The control of what was saved last; StateError if it is not of this kind and payload."""
    streams = kind.open(part_of(parts, CONTROL, kind))
    replicas, header = streams.first()
    control = Control(replicas, header, Blocks.read(streams.next()), streams.next())
    kind.require_payload(header, control.empty, schema)
    return control
