"""Why rows of a source without stables are late: source, distance and bound of each.

The reason of a late row has how far it is behind the output's frontier, and behind what the
clock inferred of its source, with the bound that this follows from.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from anabranch.batch.batch import NEVER_UNITS, Batch
from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, show_time
from anabranch.clocks.clock_state import ClockState
from anabranch.clocks.pairs import Pair
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.state import Lane
from anabranch.spark.pack.sources import columns_of, sources_of

_UNKNOWN: Final = "not known"
"""The source of a row that was held, if a column outside the payload names it."""


def explained(
    lane: Lane, spec: LaneSpec, name: str, rows: Batch, places: pa.Table, texts: Sequence[str]
) -> list[str]:
    """The reasons of late rows of an input, with what its clock inferred of their sources.

    Without `places` these are rows that were held, of which only the payload is kept.
    """
    clock = next(one for one in spec.clocks if one.serves(name))
    entry = spec.entry(name)
    frontier, time = int(lane.states[entry.step].frontier), entry.order.schema.time
    state = lane.clocks.open(clock.key(name), clock.clock)
    found = zip(_sources(clock, name, rows, places), rows.start.tolist(), texts, strict=True)
    return [
        f"{text}; {_why(clock, state, (source, start), frontier, time)}"
        for source, start, text in found
    ]


def _sources(clock: LaneClock, name: str, rows: Batch, places: pa.Table) -> list[str]:
    if not clock.by:
        return [name] * len(rows)
    if not {*clock.by} <= {*rows.payload.column_names, *places.column_names}:
        return [_UNKNOWN] * len(rows)
    found: list[str] = sources_of(columns_of(rows, places, clock.by)).to_pylist()
    return found


def _why(
    clock: LaneClock, state: ClockState, row: tuple[str, int], frontier: int, time: TimeType
) -> str:
    source, at = row
    unit = clock.unit_of(source)
    beat = int(NEVER_UNITS)
    if unit is not None and state.has_unit(unit):
        beat = int(state.heartbeat[state.place_of(unit)])
    parts = [f"source {source}"]
    if at < frontier:
        shown = show_time(frontier, time)
        parts.append(f"{span(frontier - at, time)} behind the frontier {shown}")
    if beat != NEVER_UNITS and at <= beat:
        shown = show_time(beat, time)
        parts.append(f"{span(beat - at + 1, time)} behind its heartbeat {shown}")
    return ", ".join([*parts, f"bound: {_bound(clock, state, unit, time)}"])


def _bound(clock: LaneClock, state: ClockState, unit: str | None, time: TimeType) -> str:
    """The bound of a source; one that was learned, or is in a file, in numbers too."""
    if unit is None:
        return "none for this source"
    if clock.is_simple:
        return clock.words
    found = [_pair(pair, time) for pair in state.bounds_of(unit)]
    return f"{clock.words}: {', '.join(found) or 'none yet'}"


def _pair(pair: Pair, time: TimeType) -> str:
    wait = f"{pair.wait} rows" if pair.rows else show_span(pair.wait)
    return f"less than {span(pair.distance, time)} behind" + f" after {wait}" * bool(pair.wait)


def span(units: int, time: TimeType) -> str:
    """A distance between two times, as people read it."""
    return show_span(units) if time is TimeType.TIMESTAMP else str(units)
