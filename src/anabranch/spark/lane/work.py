"""Runs one lane for one trigger on a worker: its state, its output rows and its files.

The rows that go from one stage to the next hold parcels, and what the writer is to get of the
stage before: a lane passes those on as they came.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from anabranch.sources.channels import PROGRESS
from anabranch.spark.lane.bundles import Parts
from anabranch.spark.lane.rows import PARCEL, LaneRow, parcel_rows
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.state import NO_COPIES, WARM, load, store
from anabranch.spark.lane.trigger import Made, make
from anabranch.spark.pack.due import leave
from anabranch.spark.pack.parcels import Parcel, from_row
from anabranch.spark.pack.placement import lane_keys
from anabranch.spark.pack.spill import spilling
from anabranch.spark.progress import LaneRecord

Wire = dict[str, Any]


def in_trigger(spec: LaneSpec, parts: Parts, rows: Sequence[Wire]) -> list[Wire]:
    """One trigger of one lane: all rows that leave it."""
    parcels, passed = opened(rows, spec)
    made = take(spec, parts, parcels)
    return [*passed, *wired(made, spec)]


def opened(rows: Sequence[Wire], spec: LaneSpec) -> tuple[list[Parcel], list[Wire]]:
    """A lane's parcels, and the rows of the stage before that are only passed on."""
    fetch = None if spec.depot is None else spec.depot.fetching()
    passed: list[Wire] = []
    if spec.before is not None:
        passed = [_with_key(row, spec) for row in rows if row["channel"] != PARCEL]
        rows = [_as_parcel(row) for row in rows if row["channel"] == PARCEL]
    return [from_row(row, spec.schema, fetch) for row in rows], passed


def _as_parcel(row: Wire) -> Wire:
    return {"head": row["record"], "parcel": row["parcel"], "places": row["origin"]}


def _with_key(row: Wire, spec: LaneSpec) -> Wire:
    """A row for the stage after this one: it stays with its lane, as far as there is one."""
    others = {name: value for name, value in row.items() if name != "key"}
    if spec.after is None:
        return others
    keys = lane_keys(spec.after.lanes)
    return {"key": keys[row["lane"] % spec.after.lanes], **others}


def wired(made: Made, spec: LaneSpec) -> list[Wire]:
    """What a lane made, as it crosses Spark: rows, and parcels for the stage after it."""
    rows = [_with_key(row.to_dict(), spec) for row in made.rows]
    if spec.after is None:
        return rows
    with spilling(spec.depot) as spill:
        return rows + parcel_rows(made.parcels, spec.after.lanes, spill)


def take(spec: LaneSpec, parts: Parts, parcels: Sequence[Parcel]) -> Made:
    """What a lane makes of its parcels; its state is stored, its files are staged."""
    number = parcels[0].lane
    which = spec.lane_id(number)
    copies = WARM if spec.warm else NO_COPIES
    hits = copies.hits
    lane = load(parts, which, copies)
    is_new, was_warm = lane is None, copies.hits > hits
    lane = lane or spec.first_lane(number)
    made = make(number, lane, parcels, spec)
    with ThreadPoolExecutor(1) as pool:  # while Spark takes the state, write the files
        direct = spec.direct
        files = None if direct is None else pool.submit(direct.write, made.rows)
        saved = store(parts, which, lane, copies)
        rows, staged = (made.rows, {}) if files is None else files.result()
    record = replace(
        made.record,
        warm=was_warm,
        cold=not (is_new or was_warm),
        saved=saved,
        state_bytes=lane.kept.stored,
    )
    if spec.notes is not None:
        leave(spec.notes, record.lane, record.live, record.clock)
    return replace(made, rows=[*rows, record_row(record, staged)])


def record_row(record: LaneRecord, files: Mapping[str, str]) -> LaneRow:
    """The one row with the lane's record, and the names of the files that it staged."""
    text = record.to_json()
    return LaneRow(PROGRESS, record.lane, record.steps - 1, record=text, files=files)
