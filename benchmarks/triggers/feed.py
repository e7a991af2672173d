"""Three replicas of one stream as Parquet files, one file of each replica per turn.

The replicas have the same events in different orders, and two lag a tenth and a fifth of a turn
behind the first, so that some copies of an event come a trigger later.  Every file ends with a
stable: the time before which a replica is complete.  All is made before a clock runs.

An event starts a millisecond after the one before it and lives as long as `live` of them, so
that this many are alive; with `revisions`, that share of the elements are adjusts which shorten
an event that was inserted half a turn ago.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

NAMES = ("east", "north", "west")
UNIT = 1_000
"""Microseconds between the starts of two events."""

ORIGIN = 1_000_000_000
"""The start of the first event; at 0 Spark's first watermark would call it late."""

BLOCK = 10_000
"""Events whose texts are made at once."""

_INSERT, _ADJUST = 0, 1


def start_of(event: np.ndarray) -> np.ndarray:
    """When an event starts, by its number."""
    return ORIGIN + event * UNIT


@dataclass(frozen=True)
class Feed:
    """What comes: `rows` data elements per turn of each replica, for `turns` turns."""

    rows: int
    turns: int
    live: int
    payload: int = 0
    revisions: float = 0.0
    seed: int = 7

    @property
    def rows_per_trigger(self) -> int:
        return self.rows * len(NAMES)

    def rows_until(self, turn: int) -> int:
        """How many rows the three replicas have written after a turn, stables too."""
        lags = [number * self.rows // 10 for number in range(len(NAMES))]
        presented = sum((min(turn, self.turns - 1) + 1) * self.rows - lag for lag in lags)
        return presented + (turn + 1) * len(NAMES)

    def truth(self) -> pa.Table:
        """The events that all of it stands for."""
        kind, event = self._elements()
        count = int((kind == _INSERT).sum())
        end = self._end(np.arange(count))
        changed = event[kind == _ADJUST]
        end[changed] = self._shorter(changed)
        columns = {"start": start_of(np.arange(count)), "end": end}
        return _append(pa.table(columns), self._payload(0, count))

    def write(self, folder: Path) -> None:
        """All files, below `folder/NAME/`; payloads are made file by file."""
        kind, event = self._elements()
        inserts = int((kind == _INSERT).sum())
        for number, name in enumerate(NAMES):
            (folder / name).mkdir(parents=True)
            order = self._order(len(kind), number)
            start = start_of(event[order])
            # What is not written yet: the least start of all inserts that follow.
            coming = np.where(kind[order] == _INSERT, start, np.iinfo(np.int64).max)
            least = np.minimum.accumulate(coming[::-1])[::-1]
            lag = number * self.rows // 10
            for turn in range(self.turns):
                first = max(0, turn * self.rows - lag)
                after = (turn + 1) * self.rows - lag
                mine = order[first:after]
                stable = least[after] if after < len(least) else start_of(inserts)
                table = self._table(kind[mine], event[mine], int(stable), first)
                _write(table, folder / name / f"{turn:06d}.parquet")
            _write(_last(table.schema), folder / name / f"{self.turns:06d}.parquet")

    def _elements(self) -> tuple[np.ndarray, np.ndarray]:
        """Kind and event of the elements, in the order of the first replica's clock."""
        total = self.rows * self.turns
        inserts = total - round(total * self.revisions)
        events = np.arange(inserts)
        changed = events[: total - inserts]
        if len(changed):
            # As evenly as can be, and each so that its adjust still comes.
            room = inserts - round(self.rows * (1 - self.revisions))
            changed = np.linspace(0, room, total - inserts, endpoint=False).astype(np.int64)
            changed = np.unique(changed)
            events = np.arange(total - len(changed))
        later = changed + round(self.rows * (1 - self.revisions)) // 2 + 0.5
        key = np.concatenate([events.astype(float), later])
        order = np.argsort(key, kind="stable")
        kind = np.concatenate([np.full(len(events), _INSERT), np.full(len(changed), _ADJUST)])
        return kind[order], np.concatenate([events, changed])[order]

    def _order(self, total: int, number: int) -> np.ndarray:
        """Positions of the elements, shuffled within short runs."""
        run = max(2, self.rows // 50)
        chance = np.random.default_rng([self.seed, number])
        return np.argsort(np.arange(total) // run + chance.random(total), kind="stable")

    def _payload(self, first: int, after: int) -> pa.Table:
        """The payload columns of a range of events."""
        ids = np.arange(first, after)
        columns = {"id": pa.array(ids * 2_654_435_761), "value": pa.array(ids % 400)}
        if self.payload:
            blocks = [self._letters(b) for b in range(first // BLOCK, -(-after // BLOCK))]
            begin = first - first // BLOCK * BLOCK
            columns["data"] = pa.chunked_array(blocks).slice(begin, len(ids))
        return pa.table(columns)

    def _letters(self, block: int) -> pa.Array:
        """The texts of a block of events: the same in every file that has one of them."""
        chance = np.random.default_rng([self.seed, block])
        letters = (chance.integers(0, 256, BLOCK * self.payload, np.uint8) & 31) + ord("A")
        offsets = np.arange(BLOCK + 1, dtype=np.int32) * self.payload
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(letters)]
        return pa.Array.from_buffers(pa.string(), BLOCK, buffers)

    def _end(self, event: np.ndarray) -> np.ndarray:
        return start_of(event + self.live)

    def _shorter(self, event: np.ndarray) -> np.ndarray:
        return start_of(event + self.live - self.live // 4)

    def _table(self, kind: np.ndarray, event: np.ndarray, stable: int, first: int) -> pa.Table:
        adjust = kind == _ADJUST
        end = np.where(adjust, self._shorter(event), self._end(event))
        words = pa.array(["insert", "adjust"]).take(pa.array(kind))
        columns = {
            "kind": words,
            "start": pa.array(start_of(event)),
            "end": pa.array(end),
            "old_end": pa.array(self._end(event), mask=~adjust),
            "seq": pa.array(np.arange(first, first + len(kind)) * 2),
        }
        least = int(event.min())
        payload = self._payload(least, int(event.max()) + 1).combine_chunks()
        presented = _append(pa.table(columns), payload.take(pa.array(event - least)))
        return pa.concat_tables(
            [presented, _stable(presented.schema, stable, 2 * (first + len(kind)) - 1)]
        )


def _append(table: pa.Table, more: pa.Table) -> pa.Table:
    for name in more.column_names:
        table = table.append_column(name, more[name])
    return table


def _stable(schema: pa.Schema, time: int | None, seq: int) -> pa.Table:
    row = dict.fromkeys(schema.names) | {"kind": "stable", "start": time, "seq": seq}
    return pa.Table.from_pylist([row], schema=schema)


def _last(schema: pa.Schema) -> pa.Table:
    return _stable(schema, None, 2**62)


def _write(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=max(1, table.num_rows))


def deliver(made: Path, inbox: Path, turn: int) -> None:
    """The files of one turn appear in an inbox."""
    for name in NAMES:
        (inbox / name).mkdir(parents=True, exist_ok=True)
        os.link(made / name / f"{turn:06d}.parquet", inbox / name / f"{turn:06d}.parquet")
