"""What a lane remembers, in parts, in Spark's state store; and a warm copy in the worker.

    header        JSON: format, run, lane, lanes, case, how many steps, who is gone, a nonce
    merge/NAME    the parts of the merge's state; a save writes those that changed
    final/NAME    likewise of the events that are not final yet, if final ones are asked for

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
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from anabranch.batch.schema import ElementSchema
from anabranch.errors import StateError
from anabranch.operators.finalize import FinalizeState
from anabranch.operators.merge.start import Merge
from anabranch.operators.state_parts import Saved
from anabranch.spark.lane_case import LaneCase

FORMAT: Final = 2
HEADER: Final = "header"
_FINAL: Final = "final/"
_MERGE: Final = "merge/"

WARM_COPIES: Final = 2
"""So many lanes are kept warm by one worker; a copy takes as much memory as the state."""


class Parts(Protocol):
    """Spark's map state, as far as it is used: names of parts to bytes."""

    def getValue(self, key: tuple[str]) -> tuple[Any, ...] | None:  # noqa: N802
        """The part of this name."""

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        """Write a part."""

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802
        """Remove a part; one that is not there is no error."""

    def iterator(self) -> Iterator[tuple[tuple[str], tuple[Any, ...]]]:
        """All parts."""


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
    sizes: dict[str, int] = field(default_factory=dict)
    """How many bytes each stored part has."""


class WarmCopies:
    """State objects of lanes that this process saved, each with the nonce of its save."""

    def __init__(self, room: int = WARM_COPIES) -> None:
        self._room = room
        self._copies: OrderedDict[tuple[str, int], tuple[str, Lane]] = OrderedDict()
        self.hits = self.misses = 0

    def take(self, key: tuple[str, int], nonce: str) -> Lane | None:
        """The copy of this very save, or None; either way the lane has no copy afterwards."""
        kept, lane = self._copies.pop(key, ("", None))
        if lane is None or kept != nonce:
            self.misses += 1
            return None
        self.hits += 1
        return lane

    def put(self, key: tuple[str, int], nonce: str, lane: Lane) -> None:
        """Remember what was just saved; the copy that was not used for longest goes."""
        self._copies[key] = (nonce, lane)
        self._copies.move_to_end(key)
        while len(self._copies) > self._room:
            self._copies.popitem(last=False)


WARM: Final = WarmCopies()
"""The copies of this worker process."""


def load(parts: Parts, which: LaneId, warm: WarmCopies = WARM) -> Lane | None:
    """What the lane remembers, or None at its first step."""
    kept = parts.getValue((HEADER,))
    if kept is None:
        return None
    header = json.loads(bytes(kept[0]))
    _require_same(header, which)
    copy = warm.take(which.key, header["nonce"])
    if copy is not None:
        return copy
    found = {key[0]: bytes(value[0]) for key, value in parts.iterator()}
    state = which.case.from_parts(_under(_MERGE, found), which.schema)
    lane = Lane(state, header["steps"], header["gone"], header["mark"])
    lane.sizes = {name: len(data) for name, data in found.items() if name != HEADER}
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
    written = _apply(parts, _MERGE, saved, lane.sizes)
    lane.mark = saved.mark
    if lane.final is not None:
        saved = lane.final.parts(since=lane.final_mark)
        written += _apply(parts, _FINAL, saved, lane.sizes)
        lane.final_mark = saved.mark
    nonce = uuid.uuid4().hex
    parts.updateValue((HEADER,), (_header(which, lane, nonce),))
    warm.put(which.key, nonce, lane)
    return written


def _apply(parts: Parts, prefix: str, saved: Saved, sizes: dict[str, int]) -> int:
    for name in saved.deleted:
        parts.removeKey((prefix + name,))
        sizes.pop(prefix + name, None)
    for name, data in saved.written.items():
        parts.updateValue((prefix + name,), (data,))
        sizes[prefix + name] = len(data)
    return sum(map(len, saved.written.values()))


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
    wanted: dict[str, Any] = {"format": FORMAT, "lanes": which.lanes, "lane": which.lane}
    wanted |= {"case": which.case.name, "final": which.final}
    for name, now in wanted.items():
        if header[name] != now:
            message = (
                f"merge: lane {which.lane}: this checkpoint was begun with {name} = "
                f"{header[name]}, now it is asked to go on with {now}; keep it as it was, or "
                "start anew with a new checkpoint and output"
            )
            raise StateError(message)
