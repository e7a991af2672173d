"""What a lane remembers, in parts, in Spark's state store; and a warm copy in the worker.

    header        JSON: format, run, lane, lanes, case, how many steps, who is gone, a nonce
    merge/NAME    the parts of the merge's state; a save writes those that changed
    final/NAME    likewise of the events that are not final yet, if final ones are asked for

Small parts lie together (`anabranch.spark.bundles`).

Spark's store is the only truth.  A worker process that serves the same lane again need not read
the parts: it keeps the state object that it saved last, together with the nonce that it wrote
into the header.  The copy is used if, and only if, the header that Spark shows now has the same
nonce.  Every save draws a new one, so that a copy of a save that Spark did not commit (a task
that failed later, a speculative twin, a lost executor) never fits, and neither does an older
one.  A copy is taken out before a step changes it and put back after the save: an error in
between leaves no copy.
"""

import json
import uuid
from dataclasses import dataclass, field
from typing import Any, Final

from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.operators.finalize import FinalizeState
from anabranch.operators.merge.start import Merge
from anabranch.operators.state_parts import Saved
from anabranch.spark.bundles import Bundles, Parts
from anabranch.spark.lane_case import LaneCase
from anabranch.spark.warm import WarmCopies, private_folder

FORMAT: Final = 4
_READS: Final = (2, 3, 4)
"""Formats that are read; 2 had no part pressed together, 2 and 3 had each part alone."""
HEADER: Final = "header"
_FINAL: Final = "final/"
_MERGE: Final = "merge/"


@dataclass(frozen=True)
class LaneId:
    """Which lane of which run: what a stored state must agree with."""

    run: str
    lane: int
    lanes: int
    case: LaneCase
    schema: ElementSchema
    final: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """What tells a lane's warm copy from others."""
        return self.run, self.lane


@dataclass(eq=False)
class Lane:
    """What a lane remembers; `gone` are detached replicas with their last attachment."""

    state: Merge
    steps: int = 0
    gone: dict[str, int] = field(default_factory=dict)
    mark: int | None = None
    final: FinalizeState | None = None
    final_mark: int | None = None
    kept: Bundles = field(default_factory=Bundles)
    """Where each stored part lies."""


WARM: Final = WarmCopies(notes=private_folder())
"""The copies of this worker process."""


def load(parts: Parts, which: LaneId, warm: WarmCopies = WARM) -> Lane | None:
    """What the lane remembers, or None at its first step."""
    first = parts.getValue((HEADER,))
    if first is None:
        return None
    header = json.loads(bytes(first[0]))
    _require_same(header, which)
    copy: Lane | None = warm.take(which.key, header["nonce"])
    if copy is not None:
        return copy
    stored = {key[0]: bytes(value[0]) for key, value in parts.iterator()}
    kept, found = Bundles.read({n: data for n, data in stored.items() if n != HEADER})
    state = which.case.from_parts(_under(_MERGE, found), which.schema)
    lane = Lane(state, header["steps"], header["gone"], header["mark"], kept=kept)
    if which.final:
        lane.final = FinalizeState.from_parts(_under(_FINAL, found), which.schema)
        lane.final_mark = lane.final.mark
    return lane


def _under(prefix: str, found: dict[str, bytes]) -> dict[str, bytes]:
    return {
        name.removeprefix(prefix): data
        for name, data in found.items()
        if name.startswith(prefix)
    }


def store(parts: Parts, which: LaneId, lane: Lane, warm: WarmCopies = WARM) -> int:
    """Write what changed; the bytes written."""
    saved = lane.state.parts(since=lane.mark)
    written, deleted = _named(_MERGE, saved)
    lane.mark = saved.mark
    if lane.final is not None:
        saved = lane.final.parts(since=lane.final_mark)
        more, gone = _named(_FINAL, saved)
        written, deleted = written | more, deleted + gone
        lane.final_mark = saved.mark
    size = lane.kept.save(parts, written, deleted)
    nonce = uuid.uuid4().hex
    parts.updateValue((HEADER,), (_header(which, lane, nonce),))
    warm.put(which.key, nonce, lane)
    return size


def _named(prefix: str, saved: Saved) -> tuple[dict[str, bytes], list[str]]:
    written = {prefix + name: data for name, data in saved.written.items()}
    return written, [prefix + name for name in saved.deleted]


def _header(which: LaneId, lane: Lane, nonce: str) -> bytes:
    header = {
        "format": FORMAT,
        "run": which.run,
        "lane": which.lane,
        "lanes": which.lanes,
        "case": which.case.name,
        "final": which.final,
        "steps": lane.steps,
        "gone": lane.gone,
        "mark": lane.mark,
        "nonce": nonce,
    }
    return json.dumps(header).encode()


def _require_same(header: dict[str, Any], which: LaneId) -> None:
    """Refuse a checkpoint that was begun with other lanes or another case."""
    known = header["format"] if header["format"] in _READS else FORMAT
    wanted: dict[str, Any] = {"format": known, "lanes": which.lanes, "lane": which.lane}
    wanted |= {"case": which.case.name, "final": which.final}
    for name, now in wanted.items():
        if header[name] != now:
            message = (
                f"merge: lane {which.lane}: this checkpoint was begun with {name} = "
                f"{header[name]}, now it is asked to go on with {now}; keep it as it was, or "
                "start anew with a new checkpoint and output"
            )
            raise StateError(message)
