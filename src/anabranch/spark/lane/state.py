"""The state of a lane: parts in Spark's state store, and a cached copy in the worker.

    header        JSON: format, run, stage, lane, lanes, the steps of the pipeline, how many
                  steps were taken, which inputs have left, how far the control log and (one
                  lane) Kafka's partitions were read, the clocks, marks, a nonce
    STEP-ID/NAME  the parts of one operator's state; a save writes those that changed
    clock/NAME/.. those of a clock that infers stables

Small parts lie together (`anabranch.spark.lane.bundles`).

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

from anabranch.clocks.saved import write_state
from anabranch.errors import StateError
from anabranch.operators.contract import State
from anabranch.operators.pipeline import Pipeline
from anabranch.spark.lane.bundles import Bundles, Parts
from anabranch.spark.lane.heartbeats import Clocks
from anabranch.spark.lane.state_cache import WarmCopies, private_folder
from anabranch.spark.pack.positions import Positions

FORMAT: Final = 6
HEADER: Final = "header"
_CLOCK: Final = "clock/"


@dataclass(frozen=True)
class LaneId:
    """Which lane of which stage of which run: what a stored state must agree with."""

    run: str
    stage: int
    lane: int
    lanes: int
    pipeline: Pipeline

    @property
    def key(self) -> tuple[str, int, int]:
        """What distinguishes a lane's warm copy from others."""
        return self.run, self.stage, self.lane

    @property
    def labels(self) -> list[str]:
        """The steps of the pipeline as the header records them."""
        return [one.label for one in self.pipeline]


@dataclass(eq=False)
class Lane:
    """What a lane remembers: the state of each step of its pipeline, by id.

    `steps` were taken so far; `gone` are inputs that have left, with their last attachment;
    `passed` are the frontiers that the streams of the stage before have reached; `log` is the
    last entry of the control log that was taken, `positions` how far Kafka's partitions were
    read; `clocks` infer stables; `marks` are what was saved last of each state, `kept` where
    each stored part lies.
    """

    states: dict[str, State]
    steps: int = 0
    gone: dict[str, int] = field(default_factory=dict)
    passed: dict[str, int] = field(default_factory=dict)
    log: int = -1
    positions: Positions = field(default_factory=Positions)
    clocks: Clocks = field(default_factory=Clocks)
    marks: dict[str, int] = field(default_factory=dict)
    kept: Bundles = field(default_factory=Bundles)


WARM: Final = WarmCopies(notes=private_folder())
"""The copies of this worker process."""

NO_COPIES: Final = WarmCopies(0)
"""Keeps none."""


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
    states = {
        one.id: one.operator.from_parts(_under(f"{one.id}/", found)) for one in which.pipeline
    }
    fields = {name: header[name] for name in ("steps", "gone", "passed", "log", "marks")}
    clocks = Clocks(
        saved={name: _under(f"{_CLOCK}{name}/", found) for name in header["clocks"]},
        times=tuple(header["times"]),
        looks=tuple(header["looks"]),
        idle=tuple(header["idle"]),
        silenced=header["silenced"],
        latest=header["latest"],
    )
    positions = Positions.from_list(header["positions"])
    return Lane(states, **fields, kept=kept, positions=positions, clocks=clocks)


def _under(prefix: str, found: dict[str, bytes]) -> dict[str, bytes]:
    return {
        name.removeprefix(prefix): data
        for name, data in found.items()
        if name.startswith(prefix)
    }


def store(parts: Parts, which: LaneId, lane: Lane, warm: WarmCopies = WARM) -> int:
    """Write what changed; the bytes written."""
    written: dict[str, bytes] = {}
    deleted: list[str] = []
    for step, state in lane.states.items():
        saved = state.parts(since=lane.marks.get(step))
        written |= {f"{step}/{name}": data for name, data in saved.written.items()}
        deleted += [f"{step}/{name}" for name in saved.deleted]
        lane.marks[step] = saved.mark
    changed, gone = _changed_clocks(lane)
    written |= changed
    deleted += gone
    size = lane.kept.save(parts, written, deleted)
    nonce = uuid.uuid4().hex
    parts.updateValue((HEADER,), (_header(which, lane, nonce),))
    warm.put(which.key, nonce, lane)
    return size


def _changed_clocks(lane: Lane) -> tuple[dict[str, bytes], list[str]]:
    """What changed in the clocks, and parts that are gone; unused ones are as they were."""
    written: dict[str, bytes] = {}
    deleted: list[str] = []
    for name, state in lane.clocks.states.items():
        mark = f"{_CLOCK}{name}"
        changed = write_state(state, since=lane.marks.get(mark))
        written |= {f"{mark}/{part}": data for part, data in changed.written.items()}
        deleted += [f"{mark}/{part}" for part in changed.deleted]
        lane.marks[mark] = changed.mark
    for name, parts in lane.clocks.saved.items():
        mark = f"{_CLOCK}{name}"
        if mark not in lane.marks:  # it was brought here by an upgrade
            written |= {f"{mark}/{part}": data for part, data in parts.items()}
            lane.marks[mark] = -1
    return written, deleted


def _header(which: LaneId, lane: Lane, nonce: str) -> bytes:
    header = {
        "format": FORMAT,
        "run": which.run,
        "stage": which.stage,
        "lane": which.lane,
        "lanes": which.lanes,
        "pipeline": which.labels,
        "steps": lane.steps,
        "gone": lane.gone,
        "passed": lane.passed,
        "log": lane.log,
        "positions": lane.positions.to_list(),
        "clocks": sorted([*lane.clocks.states, *lane.clocks.saved]),
        "times": lane.clocks.times,
        "looks": lane.clocks.looks,
        "idle": lane.clocks.idle,
        "silenced": lane.clocks.silenced,
        "latest": lane.clocks.latest,
        "marks": lane.marks,
        "nonce": nonce,
    }
    return json.dumps(header).encode()


def _require_same(header: dict[str, Any], which: LaneId) -> None:
    """Refuse a checkpoint that was begun with other lanes or another pipeline."""
    wanted = {
        "format": FORMAT,
        "stage": which.stage,
        "lanes": which.lanes,
        "lane": which.lane,
        "pipeline": which.labels,
    }
    for name, now in wanted.items():
        if header[name] != now:
            message = (
                f"lane {which.lane} of stage {which.stage}: this checkpoint was begun with "
                f"{name} = {_show(header[name])}, now it is asked to continue with "
                f"{_show(now)}; keep it as it was, or start a new run with a new checkpoint "
                "and output"
            )
            raise StateError(message)


def _show(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
