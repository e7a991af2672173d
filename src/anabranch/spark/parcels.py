"""What crosses the shuffle: parcels of elements, one row per lane.

Data goes to the one lane of its identity, stables go to every lane, so that every lane knows
the same frontier.  Every lane hears of every replica that speaks and of every change of
membership in the same trigger, if only by an empty parcel: lanes agree on who takes part.

`places` is an Arrow table beside the parcel: row i says where element i came from, so that
what is quarantined later can be named, and so that a lane can put elements into order.

    lane, replica, attachment    whose parcel it is, and for which lane
    log, file, part              the order of parcels within a replica and attachment
    entry                        data, or attach and detach with their guarantee
    guarantee                    a number as text
    address                      where parcel and places wait instead, on one machine
                                 (`anabranch.spark.depot`)
    note                         JSON for lane 0 alone: what was read, and which rows are no
                                 elements

Spark plans its stateful step anew in every trigger, column by column; so all but the two values
cross it as one text, `head`.
"""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import count
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.buffers import take
from anabranch.batch.parcel import pack
from anabranch.operators.merge.route import route

PARCELS: Final = pa.schema(
    [
        ("key", pa.int32()),
        ("head", pa.string()),
        ("parcel", pa.binary()),
        ("places", pa.binary()),
    ]
)
"""Spark shuffles by `key`."""

_VALUES: Final = ("parcel", "places")
_WHOSE: Final = ("lane", "replica", "attachment")
_ORDER: Final = ("log", "file", "part")
_HEAD: Final = (*_WHOSE, *_ORDER, "entry", "guarantee", "address", "note")

PARCEL_ROWS: Final = 1 << 16
"""The most rows of a parcel: a value that crosses Spark must stay far below two gigabytes."""

COUNTING_LANE: Final = 0
"""The lane that counts what every lane sees: stables, files and refused rows."""

DATA: Final = "data"
ATTACH: Final = "attach"
DETACH: Final = "detach"

Row = dict[str, Any]


def pieces(
    base: Row, batch: Batch, places: pa.Table, lanes: int, *, by_start: bool
) -> list[Row]:
    """One row per lane with that lane's elements of a batch, not packed yet."""
    lane_of, data = route(batch, lanes, by_start=by_start), batch.is_data
    rows = []
    for lane in range(lanes):
        mine = np.flatnonzero(~data | (lane_of == lane))
        row = {**base, "lane": lane, "entry": DATA, "parcel": batch.take(mine)}
        rows.append({**row, "places": take(places, mine)})
    return rows


def in_every_lane(base: Row, lanes: int, facts: Row | None = None) -> list[Row]:
    """A row without elements for each lane; what is to be counted once goes to one."""
    note = None if facts is None else json.dumps(facts)
    return [
        {**base, "lane": lane, "note": note if lane == COUNTING_LANE else None}
        for lane in range(lanes)
    ]


def to_batch(rows: Sequence[Row], lanes: int) -> pa.RecordBatch:
    """Rows as Spark takes them; what they still have with them is packed."""
    keys = lane_keys(lanes)
    keyed = [{"key": keys[row["lane"]], **_crossing(packed(row))} for row in rows]
    return pa.RecordBatch.from_pylist(keyed, schema=PARCELS)


def _crossing(row: Row) -> Row:
    values = {name: row.get(name) for name in _VALUES}
    told = {n: v for n, v in row.items() if n not in _VALUES and v is not None}
    return {"head": json.dumps(told), **values}


def delivered(row: Row) -> Row:
    """A row that crossed Spark, as it was."""
    head: Row = dict.fromkeys(_HEAD) | json.loads(row["head"])
    return head | {name: row[name] for name in _VALUES}


def packed(row: Row) -> Row:
    """A row as it crosses Spark."""
    if row.get("parcel") is None:
        return row
    return row | {"parcel": pack(row["parcel"]), "places": to_ipc(row["places"])}


@cache
def lane_keys(lanes: int) -> tuple[int, ...]:
    """A key for each lane, such that Spark shuffles lane i into partition i of as many.

    >>> [spark_hash(key) % 4 for key in lane_keys(4)]
    [0, 1, 2, 3]
    """
    found: dict[int, int] = {}
    for key in count():
        if len(found) == lanes:
            break
        found.setdefault(spark_hash(key) % lanes, key)
    return tuple(found[lane] for lane in range(lanes))


def spark_hash(key: int) -> int:
    """Spark's hash of an int column, by which it shuffles (Murmur3, 32 bits, seed 42)."""
    mixed = _turn(key * 0xCC9E2D51, 15) * 0x1B873593
    mixed = _turn(42 ^ (mixed & _WORD), 13) * 5 + 0xE6546B64 & _WORD
    mixed ^= 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & _WORD
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & _WORD
    mixed ^= mixed >> 16
    return mixed - (1 << 32) if mixed >> 31 else mixed


def _turn(word: int, bits: int) -> int:
    word &= _WORD
    return (word << bits | word >> (32 - bits)) & _WORD


_WORD: Final = (1 << 32) - 1


def to_ipc(table: pa.Table) -> bytes:
    """A small table as one value."""
    sink = pa.BufferOutputStream()
    write_ipc(table, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_ipc(table: pa.Table, sink: pa.NativeFile) -> None:
    """Write the same to where it is to be."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def from_ipc(data: bytes | pa.Buffer) -> pa.Table:
    """The table of such a value."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def cut(total: int) -> Iterator[tuple[int, int]]:
    """From and to of pieces that are no longer than a parcel may be."""
    for first in range(0, total, PARCEL_ROWS):
        yield first, min(first + PARCEL_ROWS, total)
