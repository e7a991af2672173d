"""Save and restore of a state of events, in parts.

    control      always: a table of the operator with the header, the list of blocks, an empty
                 payload, and whatever else the operator always writes
    nodes/K      the rows with the numbers of block K, without their payloads
    payload/K    the payloads of that block; written only when a row got a number in it
    names/K      the final names with the numbers of block K, where a state has such names

A block without rows has no parts.  A part may hold more than is true (payloads of rows that
left, names that were forgotten): the control decides; see `operators.state.blocks`.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.operators.state.blocks import (
    CONTROL,
    EVERYTHING,
    Blocks,
    InBlocks,
    Saved,
    part_of,
    write_blocks,
)
from anabranch.operators.state.codec import StateKind, header_of, write_tables
from anabranch.operators.state.final_names import FinalNames, name_parts, read_name_parts

_NEXT: Final = "names_next"


class Control(NamedTuple):
    """The part that names the others: a table, its header, the blocks, no payload.

    `more` are tables of the operator that every save writes.
    """

    head: pa.Table
    header: dict[str, str]
    blocks: Blocks
    empty: pa.Table
    more: Sequence[pa.Table] = ()


def save(
    head: pa.Table,
    held: InBlocks,
    payload: pa.Schema,
    since: int | None,
    names: FinalNames | None = None,
    more: Sequence[pa.Table] = (),
) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone.

    The metadata of `head` is the header of the state, with its `mark`.
    """
    after, header = EVERYTHING if since is None else since, header_of(head)
    written, gone = write_blocks(held, after)
    if names is not None:
        some, forgotten = name_parts(names, after)
        written, gone = written | some, [*gone, *forgotten]
        header[_NEXT] = str(names.next)
    control = write_tables(
        head.replace_schema_metadata(header),
        held.blocks.table(),
        payload.empty_table().replace_schema_metadata(None),
        *more,
    )
    deleted = () if since is None else tuple(gone)
    return Saved({CONTROL: control} | written, deleted, int(header["mark"]))


def open_control(
    parts: Mapping[str, bytes], kind: StateKind, schema: ElementSchema, *, more: int = 0
) -> Control:
    """The control of what was saved last; StateError if it is not of this kind and payload."""
    streams = kind.open(part_of(parts, CONTROL, kind))
    head, header = streams.first()
    control = Control(head, header, Blocks.read(streams.next()), streams.next())
    kind.require_payload(header, control.empty, schema)
    return control._replace(more=[streams.next() for _ in range(more)])


def restore_names(
    names: FinalNames, parts: Mapping[str, bytes], control: Control, kind: StateKind
) -> None:
    """Fill empty names with those that were saved."""
    mark = int(control.header["mark"])
    read_name_parts(names, parts, int(control.header[_NEXT]), mark, kind)
