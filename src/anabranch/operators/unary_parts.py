"""The state of an operator of one input in parts: a save writes only what changed.

    control      always: the list of blocks, with the header; an empty payload
    nodes/K      of the groups with the numbers of block K how many events each has; the events
    payload/K    the payloads of that block; written only while it is filled

See `unary_numbers` for the numbers and `state_parts` for the rest.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.state_codec import column_of, matrix_of, to_table, write_tables
from anabranch.operators.state_parts import (
    BLOCK_BITS,
    CONTROL,
    EVERYTHING,
    Blocks,
    Saved,
    part_of,
    read_blocks,
    write_blocks,
)
from anabranch.operators.unary_codec import StateFormat, numbers_of
from anabranch.operators.unary_live import LiveEvents


def write_parts(
    form: StateFormat,
    live: LiveEvents,
    since: int | None,
    *,
    numbers: dict[str, int],
    schema: ElementSchema,
) -> Saved:
    """The parts that changed after the mark `since`, or all; `numbers` has the state's mark."""
    after = EVERYTHING if since is None else since
    groups, gone = write_blocks(_InBlocks(form, live), after)
    header = form.kind.header(time=schema.time.value, next=live.numbers.next, **numbers)
    control = write_tables(
        live.numbers.blocks.table().replace_schema_metadata(header),
        schema.payload.empty_table().replace_schema_metadata(None),
    )
    live.numbers.forget(after, numbers["mark"])
    deleted = () if since is None else tuple(gone)
    return Saved({CONTROL: control} | groups, deleted, numbers["mark"])


def read_parts(
    form: StateFormat, parts: Mapping[str, bytes], schema: ElementSchema, live: LiveEvents
) -> dict[str, int]:
    """Fill an empty `live` with what was saved last; returns the single numbers."""
    kind = replace(form.kind, reads=(form.kind.version,))
    streams = kind.open(part_of(parts, CONTROL, kind))
    table, header = streams.first()
    empty = streams.next()
    kind.require_payload(header, empty, schema)
    blocks = Blocks.read(table)
    none = to_table(dict.fromkeys(("node", "count", *form.columns), np.empty(0, np.int64)))
    groups, events = [none.select(["node", "count"])], [none.select(form.columns)]
    payloads = [empty]
    for some, more, payload in read_blocks(parts, blocks, kind):
        groups.append(some)
        events.append(more.next())
        payloads.append(payload)
    held, found = pa.concat_tables(groups), numbers_of(header)
    payload = pa.concat_tables(payloads) if len(empty.schema) else empty
    rows = matrix_of(pa.concat_tables(events), form.columns)
    live.restore(column_of(held, "count"), rows, payload)
    live.numbers.restore(column_of(held, "node").copy(), found.pop("next"), blocks)
    return found


@dataclass(frozen=True)
class _InBlocks:
    at_once: ClassVar[bool] = False

    form: StateFormat
    live: LiveEvents

    def blocks(self) -> Blocks:
        return self.live.numbers.blocks

    def ids(self, block: int) -> Ints:
        return self.live.in_block(block)[0]

    def tables(self, ids: Ints) -> tuple[pa.Table, ...]:
        group, rows = self.live.rows(self._groups(ids))
        count = np.diff(np.flatnonzero(np.diff(group, prepend=-1, append=-1)))
        events = {name: rows[:, i] for i, name in enumerate(self.form.columns)}
        return to_table({"node": ids, "count": count}), to_table(events)

    def payload(self, ids: Ints) -> pa.Table:
        return self.live.payload(self._groups(ids))

    def _groups(self, ids: Ints) -> Ints:
        return self.live.in_block(int(ids[0]) >> BLOCK_BITS)[1]
