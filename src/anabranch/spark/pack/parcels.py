"""The rows of the shuffle: parcels of elements for one lane each, and their one Arrow form.

Data goes to the lane that the operator's route decides, stables go to every lane, so that every
lane knows the same frontier.  Every lane gets a parcel of every input that has something in the
trigger and of every change of membership, if only an empty one: lanes agree on who takes part.

`places` is a table beside the elements: row i is where element i came from, so that what is
quarantined later can be named, and so that a lane can put elements into order.

The Arrow form has four columns.  Spark re-plans the stateful stage every trigger and resolves
every column, so all metadata crosses as one JSON text, `head`.  Elements and places cross
as two binary values, or wait in a file of which the head has the address
(`anabranch.spark.pack.spill`).
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.buffers import take
from anabranch.batch.parcel import pack, unpack
from anabranch.batch.schema import ElementSchema
from anabranch.operators.route import EVERY_LANE, Routing
from anabranch.spark.pack.placement import lane_keys
from anabranch.spark.pack.positions import Span

PARCELS: Final = pa.schema(
    [
        ("key", pa.int32()),
        ("head", pa.string()),
        ("parcel", pa.binary()),
        ("places", pa.binary()),
    ]
)
"""The Arrow form of parcels; Spark shuffles by `key`."""

PARCEL_ROWS: Final = 1 << 16
"""The most rows of a parcel: a value that crosses Spark must stay far below two gigabytes."""

COUNTING_LANE: Final = 0
"""The lane that counts what every lane sees: stables, files and refused rows."""

CURRENT: Final = 0
"""The attachment of elements whose source declares none: the input's latest."""

DATA: Final = "data"
ATTACH: Final = "attach"
DETACH: Final = "detach"
COMPLETE: Final = "complete"
PASS: Final = "pass"
NOTE: Final = "note"
CHANGE: Final = "change"
BEAT: Final = "beat"
"""Lines of a clock, which no step of an operator takes."""
UNROUTED: Final = "unrouted"
"""Elements that Spark changes before they are routed."""
LEVEL: Final = "level"
"""Another level of consistency, for all steps that wait or forget."""
CLOCK: Final = "clock"
"""Clocks are to be read, also without rows; or a replica is paused or blocked."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is not an element: where it is, why, and its text."""

    replica: str
    file: str | None
    row: int | None
    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What a packer read of one input; counted once, by one lane.

    `size` are the bytes of rows that came from a DataFrame, whose source decides how many;
    `spans` are their offsets, if it is Kafka's.
    """

    rows: int
    refused: tuple[Refused, ...] = ()
    size: int = 0
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Parcel:
    """Elements of one input for one lane, or one entry of the control log.

    `log`, `file` and `part` are the order of parcels within an input and attachment.
    `guarantee` None: the input is complete.  `settings` are those of a change, which names no
    input, or what a clock is to know of its replica.  `frontier` is that of the lane which sent
    the parcel, where a stage before this one did.  `least`: elements of the latest attachment
    come under this number, if not under a greater one.  `at` is the time of the trigger,
    `look` that up to which all files of inboxes were found, and `lines` are what clocks need of
    the rows of a partition; `latest` is the greatest time at which one of these starts or ends.
    `greatest` is the greatest start of the rows of a partition, or of a trigger where a stage
    sent the parcel.
    """

    lane: int
    input: str
    attachment: int = CURRENT
    log: int = 0
    file: str | None = None
    part: int = 0
    entry: str = DATA
    guarantee: int | None = None
    settings: str | None = None
    frontier: int | None = None
    least: int | None = None
    facts: Facts | None = None
    batch: Batch | None = None
    places: pa.Table | None = None
    at: int | None = None
    look: int | None = None
    lines: pa.Table | None = None
    greatest: int | None = None
    latest: int | None = None


_HEAD: Final = (
    "lane", "input", "attachment", "log", "file", "part", "entry", "guarantee", "settings",
    "frontier", "least", "at", "look", "greatest", "latest",
)  # fmt: skip
ADDRESS: Final = "address"
_FACTS: Final = "facts"


class Spill(Protocol):
    """Keeps elements and places in a file; the text that it returns is their address."""

    def __call__(self, batch: Batch, places: pa.Table) -> str:
        """Where they are now."""


class Fetch(Protocol):
    """The two values that were left under an address."""

    def __call__(self, address: str) -> tuple[pa.Buffer, pa.Buffer]:
        """Elements, then places."""


def pieces(
    base: Parcel, batch: Batch, places: pa.Table, lanes: int, routing: Routing
) -> list[Parcel]:
    """One parcel per lane with that lane's elements of a batch.

    Hashes that decide the lane go with the elements, so that the lane does not hash again.
    With one lane the batch is passed on as it is: nothing is hashed and nothing copied.
    """
    if lanes == 1:
        return [replace(base, lane=0, batch=batch, places=places)]
    batch = routing.hashed(batch)
    lane_of = routing.lanes_of(batch, lanes)
    rows = [
        np.flatnonzero((lane_of == lane) | (lane_of == EVERY_LANE)) for lane in range(lanes)
    ]
    return [
        replace(base, lane=lane, batch=batch.take(mine), places=take(places, mine))
        for lane, mine in enumerate(rows)
    ]


def in_every_lane(base: Parcel, lanes: int, facts: Facts | None = None) -> list[Parcel]:
    """A parcel without elements for each lane; what is to be counted once goes to one."""
    return [
        replace(base, lane=lane, facts=facts if lane == COUNTING_LANE else None)
        for lane in range(lanes)
    ]


def to_rows(
    parcels: Sequence[Parcel], lanes: int, spill: Spill | None = None
) -> pa.RecordBatch:
    """Parcels as Spark takes them."""
    keys = lane_keys(lanes)
    rows = [{"key": keys[one.lane], **_crossing(one, spill)} for one in parcels]
    return pa.RecordBatch.from_pylist(rows, schema=PARCELS)


def _crossing(one: Parcel, spill: Spill | None) -> dict[str, Any]:
    head = {name: value for name in _HEAD if (value := getattr(one, name)) is not None}
    if one.facts is not None:
        head[_FACTS] = asdict(one.facts)
    row: dict[str, Any] = {"parcel": None, "places": None}
    if one.lines is not None:
        row["places"] = to_ipc(one.lines)
    if one.batch is not None and one.places is not None:
        if spill is None:
            row = {"parcel": pack(one.batch), "places": to_ipc(one.places)}
        else:
            head[ADDRESS] = spill(one.batch, one.places)
    return {"head": json.dumps(head), **row}


def from_row(
    row: Mapping[str, Any], schema: Callable[[str], ElementSchema], fetch: Fetch | None
) -> Parcel:
    """A parcel that crossed Spark; its payload is a view of what came.

    `schema` has the columns of an input.
    """
    head = json.loads(row["head"])
    address, facts = head.pop(ADDRESS, None), head.pop(_FACTS, None)
    parcel, places = row["parcel"], row["places"]
    if address is not None:
        assert fetch is not None, f"an address, and no place to fetch it from: {address}"
        parcel, places = fetch(address)
    table = None if places is None else from_ipc(places)
    is_beat = head.get("entry") == BEAT
    return Parcel(
        **head,
        facts=None if facts is None else _facts(**facts),
        batch=None if parcel is None else unpack(parcel, schema(head["input"])),
        places=None if is_beat else table,
        lines=table if is_beat else None,
    )


def _facts(
    rows: int,
    refused: Sequence[Mapping[str, Any]],
    size: int,
    spans: Sequence[Mapping[str, Any]],
) -> Facts:
    found = tuple(Span(**one) for one in spans)
    return Facts(rows, tuple(Refused(**one) for one in refused), size, found)


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
