"""The state of a clock in parts, as operators save theirs: only what changed is written.

    control      times of the clock, the bounds by name, and which parts belong to it
    promises     what is pending; changes with nearly every step that has rows
    learned      bounds that are learned, if they are
    units/K      the sources or groups K * 1024 and up: name, heartbeat, greatest, silence

Parts are Arrow streams with a header of kind, version and mark, no pickle.  A part of another
save, kind or version is refused by name.  Promises are dropped if the bounds are other ones
than those that made them; heartbeats stay.  If sources are named by another column, those of
before are forgotten; the stable stays.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.clocks.clock import Clock
from anabranch.clocks.clock_state import ClockState
from anabranch.clocks.forget import UNIT_COLUMNS
from anabranch.clocks.learn import Cell, Change, Learner, Reach
from anabranch.clocks.promises import Count, Counts, Promises
from anabranch.errors import StateError

KIND: Final = "anabranch clock"
VERSION: Final = 2
BLOCK: Final = 1024
_CELL: Final = (
    "delta", "greatest", "number", "began", "seen", "fresh", "window", "recent", "falls",
)  # fmt: skip
_CHANGE: Final = tuple(Change.__dataclass_fields__)


@dataclass(frozen=True, eq=False)
class SavedClock:
    """What changed in the state of a clock; the same fields as the save of an operator."""

    written: Mapping[str, bytes]
    deleted: tuple[str, ...]
    mark: int


def write_state(state: ClockState, *, since: int | None = None) -> SavedClock:
    """The state in parts: all of them, or those that changed after a mark."""
    after = -1 if since is None else since
    written, marks = {}, {}
    for block in range(0, len(state.names), BLOCK):
        rows = slice(block, block + BLOCK)
        name, mark = f"units/{block // BLOCK}", int(state.changed[rows].max())
        marks[name] = mark
        if mark > after:
            columns = {one: getattr(state, one)[rows] for one in UNIT_COLUMNS}
            written[name] = _write(columns, mark=mark, names=state.names[rows])
    written["promises"] = _write(
        {name: getattr(state.promises, name) for name in ("unit", "due", "value")},
        mark=state.mark,
        counts=[
            [unit, count.after, count.remaining, count.value, count.latency]
            for unit, counts in sorted(state.counts.by_unit.items())
            for count in counts
        ],
    )
    marks["promises"] = state.mark
    if state.learner is not None:
        marks["learned"] = state.mark
        written["learned"] = _write({}, mark=state.mark, **_learned(state.learner))
    written["control"] = _write(
        {},
        mark=state.mark,
        parts=marks,
        bounds=state.clock.digest,
        source=state.clock.source,
        **{name: int(getattr(state, name)) for name in ("now", "last", "overall")},
    )
    blocks = -(-len(state.names) // BLOCK)
    deleted = tuple(f"units/{block}" for block in range(blocks, state.blocks))
    state.blocks = blocks
    return SavedClock(written, deleted, state.mark)


def read_state(clock: Clock, parts: Mapping[str, bytes]) -> ClockState:
    """The state that was saved, for this clock; a state is refused if it is not one of ours."""
    control = _read(parts, "control", None)[1]
    state = ClockState(clock)
    state.now, state.last = control["now"], control["last"]
    state.overall, state.mark = control["overall"], control["mark"]
    state.blocks = sum(name.startswith("units/") for name in control["parts"])
    found = {name: _read(parts, name, mark) for name, mark in control["parts"].items()}
    if control["source"] != clock.source:
        return state
    _put_units(state, [both for name, both in found.items() if name.startswith("units/")])
    if state.learner is not None and "learned" in found:
        _learn_again(state.learner, found["learned"][1])
    if control["bounds"] == clock.digest:
        columns, header = found["promises"]
        state.promises = Promises(*(columns[one].copy() for one in ("unit", "due", "value")))
        state.counts = Counts()
        for unit, *count in header["counts"]:
            state.counts.add(unit, Count(*count))
    return state


def _learned(learner: Learner) -> dict[str, Any]:
    cells = []
    for (other, name, wait), cell in sorted(learner.cells.items()):
        fields = {one: getattr(cell, one) for one in _CELL}
        counts = [sorted(cell.old.items()), sorted(cell.young.items())]
        cells.append([other, name, wait, fields, *counts])
    return {
        "cells": cells,
        "reach": {name: [one.upto, one.greatest] for name, one in learner.reach.items()},
        "trail": [[getattr(one, field) for field in _CHANGE] for one in learner.trail],
        "changes": learner.changes,
    }


def _learn_again(learner: Learner, header: Mapping[str, Any]) -> None:
    for other, name, wait, fields, old, young in header["cells"]:
        if learner.has_cell(other, name, wait):
            found = Cell(learner.spec, **fields)
            found.old, found.young = dict(old), dict(young)
            learner.cells[other, name, wait] = found.as_asked()
    learner.reach = {name: Reach(*both) for name, both in header["reach"].items()}
    learner.trail = [Change(*one) for one in header["trail"]]
    learner.changes = header["changes"]


def _put_units(
    state: ClockState, blocks: Sequence[tuple[dict[str, Ints], dict[str, Any]]]
) -> None:
    """The units of all blocks; those that have no bounds any more are left out."""
    named = set(state.clock.rules.units())
    for columns, header in blocks:
        rows = [at for at, name in enumerate(header["names"]) if not named or name in named]
        names = [header["names"][at] for at in rows]
        state.add_units([name for name in names if not state.has_unit(name)])
        places = [state.place_of(name) for name in names]
        for one in UNIT_COLUMNS:
            getattr(state, one)[places] = columns[one][rows]


def _write(columns: Mapping[str, Ints], **header: Any) -> bytes:
    table = pa.table({name: to_arrow(column, pa.int64()) for name, column in columns.items()})
    text = json.dumps({"kind": KIND, "version": VERSION, **header}, sort_keys=True)
    table = table.replace_schema_metadata({"clock": text})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _read(
    parts: Mapping[str, bytes], name: str, mark: int | None
) -> tuple[dict[str, Ints], dict[str, Any]]:
    if name not in parts:
        message = (
            f"clock: the state has no part {name!r}; the checkpoint is incomplete; start with "
            "a new checkpoint and output folder"
        )
        raise StateError(message)
    try:
        with pa.ipc.open_stream(pa.BufferReader(parts[name])) as reader:
            table = reader.read_all()
        header: dict[str, Any] = json.loads((table.schema.metadata or {}).get(b"clock", b"{}"))
    except (pa.ArrowInvalid, OSError, ValueError) as error:
        message = (
            f"clock: part {name!r} is no part of a clock's state ({error}); the checkpoint is "
            "damaged or not ours; start with a new checkpoint and output folder"
        )
        raise StateError(message) from error
    kind, version = header.get("kind"), header.get("version")
    if (kind, version) != (KIND, VERSION):
        message = (
            f"clock: part {name!r} is {kind!r} version {version}, this program reads {KIND!r} "
            f"version {VERSION}; continue with the version that wrote it, or start a new run"
        )
        raise StateError(message)
    if mark is not None and header["mark"] != mark:
        message = (
            f"clock: part {name!r} is of change {header['mark']}, the control asks for {mark}; "
            "the parts are of different saves; start with a new checkpoint and output folder"
        )
        raise StateError(message)
    columns = {
        one: numbers(table.column(one), np.dtype(np.int64)) for one in table.schema.names
    }
    return columns, header
