"""Save and restore of the aggregate's state, in parts.

    control              always: received, windows of digits, lists of blocks
    nodes/K, payload/K   groups and their keys
    points/K             end points, in the chunks of block K
    events/K             events, and
    values/nodes/K ...   their values, where functions need values

Only blocks that changed since a mark are written.  Due times, counts of values and the order of
chunks are derived again.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns
from anabranch.batch.index import HIGH, LOW
from anabranch.batch.store import read_table
from anabranch.errors import StateError
from anabranch.operators.aggregate.chunks import Chunks
from anabranch.operators.contract import INPUT
from anabranch.operators.state.blocks import (
    EVERYTHING,
    Blocks,
    InBlocks,
    Saved,
    read_blocks,
    read_marked,
    with_mark,
    write_blocks,
)
from anabranch.operators.state.codec import StateKind, column_of, to_table
from anabranch.operators.state.events import FLAGS, LIVE, OWN, Events
from anabranch.operators.state.parts import open_control, save

if TYPE_CHECKING:
    from anabranch.operators.aggregate.state import AggregateState

KIND: Final = StateKind("anabranch aggregate", version=1)
_VALUES: Final = "values/"


def save_state(state: "AggregateState", since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all."""
    after = EVERYTHING if since is None else since
    header = state.kind.header(
        time=state.keys.time.value,
        mark=state.mark,
        received=state.received[INPUT],
        functions=state.described,
        windows=state.slots.describe(),
    )
    more = [state.points.blocks().table()]
    written, gone = _save_chunks("points", state.points, after)
    if state.bags is not None:
        held = _held(state.bags.values)
        more += [state.bags.events.blocks().table(), held.blocks.table()]
        some, emptied = _save_chunks("events", state.bags.events, after)
        parts, deleted = write_blocks(held, after)
        written |= some | {_VALUES + name: data for name, data in parts.items()}
        gone += emptied + [_VALUES + name for name in deleted]
    groups = _held(state.table, state.held())
    saved = save(to_table({}, header), groups, state.keys.payload, since, more=more)
    deleted_parts = saved.deleted + (() if since is None else tuple(gone))
    return Saved({**saved.written, **written}, deleted_parts, saved.mark)


def open_state(state: "AggregateState", parts: Mapping[str, bytes]) -> "AggregateState":
    """An empty state filled with what was saved last."""
    control = open_control(parts, state.kind, state.keys, more=1 if state.bags is None else 3)
    header = control.header
    if header["functions"] != state.described:
        message = (
            f"{state.operator.name}: the state has the aggregates {header['functions']}, the "
            f"query has {state.described}; those of a running query cannot change; start "
            "with a new checkpoint and output folder"
        )
        raise StateError(message)
    state.mark, state.received[INPUT] = int(header["mark"]), int(header["received"])
    state.slots = state.slots.described(header["windows"])
    state.points = state.no_points()
    _open_chunks("points", state.points, parts, Blocks.read(control.more[0]), state.kind)
    ids, payload, rows = _read_rows(parts, control.blocks, control.empty, state.kind)
    state.restore_groups(ids, payload, rows)
    state.table.date(control.blocks)
    if state.bags is not None:
        held = Blocks.read(control.more[1])
        _open_chunks("events", state.bags.events, parts, held, state.kind)
        begin = len(_VALUES)
        own = {name[begin:]: parts[name] for name in parts if name.startswith(_VALUES)}
        blocks = Blocks.read(control.more[2])
        none = state.bags.schema.payload.empty_table()
        ids, payload, _ = _read_rows(own, blocks, none, state.kind)
        state.bags.values.restore(ids, *rows_of(ids, payload, OWN + 1), 0)
        state.bags.values.date(blocks)
        state.bags.restored()
    return state


def _held(table: Events, more: Mapping[str, Ints] | None = None) -> InBlocks:
    """The rows of a table: their numbers, more numbers of each, and payloads."""

    def rows(ids: Ints) -> tuple[pa.Table]:
        own = {name: numbers[ids] for name, numbers in (more or {}).items()}
        return (to_table({"node": ids} | own),)

    return InBlocks(table.blocks(), table.ids_in, rows, table.payload)


def _read_rows(
    parts: Mapping[str, bytes], blocks: Blocks, empty: pa.Table, kind: StateKind
) -> tuple[Ints, pa.Table, list[pa.Table]]:
    """The numbers of all rows, their payloads, and the tables with more numbers of each."""
    ids, payloads, tables = [np.empty(0, np.int64)], [empty], []
    for rows, _, payload in read_blocks(parts, blocks, kind):
        ids.append(column_of(rows, "node"))
        payloads.append(payload)
        tables.append(rows)
    whole = pa.concat_tables(payloads) if len(empty.schema) else empty
    return np.concatenate(ids), whole, tables


def rows_of(ids: Ints, payload: pa.Table, width: int) -> tuple[Ints, list[Column]]:
    """Rows of a table of events, by their payloads; the operator's columns are 0."""
    columns = read_table(payload) if payload.num_columns else []
    hashes = hash_columns(columns, len(ids)).view(np.int64)
    rows = np.zeros((len(ids), width), np.int64)
    rows[:, LOW], rows[:, HIGH], rows[:, FLAGS] = hashes[:, 0], hashes[:, 1], LIVE
    return rows, columns


def _save_chunks(name: str, chunks: Chunks, since: int) -> tuple[dict[str, bytes], list[str]]:
    changed, emptied = chunks.blocks().after(since)
    written = {
        f"{name}/{one.number}": with_mark(one.changed, chunks.table(one.number))
        for one in changed
    }
    return written, [f"{name}/{number}" for number in emptied]


def _open_chunks(
    name: str, chunks: Chunks, parts: Mapping[str, bytes], blocks: Blocks, kind: StateKind
) -> None:
    tables = [
        read_marked(parts, f"{name}/{one.number}", one.changed, kind)[0]
        for one in blocks.named()
    ]
    chunks.restore([table.replace_schema_metadata(None) for table in tables], blocks)
