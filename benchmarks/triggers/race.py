"""Queries that take turns: each gets the same files, one by one, and is timed by Spark.

A turn is one trigger of one side.  All sides run in one session and stay warm between their
turns; while one works, the others wait for files.  The time of a trigger is what Spark's
progress reports (`triggerExecution`): finding the files, planning, the work, all commits.
"""

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from triggers.compilers import compiled_ms
from triggers.feed import deliver
from triggers.sides import Inbox, Side

_PATIENCE_SECONDS = 400

Turn = dict[str, Any]


def race(sides: Sequence[Side], *, turns: int) -> dict[str, list[Turn]]:
    """Every turn of every side, in turns; who begins changes."""
    found: dict[str, list[Turn]] = {side.name: [] for side in sides}
    for turn in range(turns):
        order = [*sides[turn % len(sides) :], *sides[: turn % len(sides)]]
        for side in order:
            found[side.name].append(take_turn(side, turn))
    return found


def take_turn(side: Side, turn: int) -> Turn:
    """Hand the files of a turn to a side, and wait until its trigger is committed."""
    last, compiled = side.last, compiled_ms()
    if not (isinstance(side, Inbox) and turn == 0):  # has them already
        _wait_for_phase(side.tick / 1000)
        deliver(side.made, side.inbox, turn)
    found = _next(side, last)
    while _rows(side, found) < side.feed.rows_until(turn):
        more = _next(side, found["id"])  # it saw the files one by one
        found["id"], found["ms"] = more["id"], _sum(found["ms"], more["ms"])
        found["rows"] += more["rows"]
    side.last = found["id"]
    side.rows += found["rows"]
    found["compiled_ms"] = compiled_ms() - compiled
    return found


def _rows(side: Side, found: Turn) -> int:
    """All rows that a side has taken; the rows of an inbox's query are files."""
    if isinstance(side, Inbox):
        return int(side.totals.rows)
    return side.rows + int(found["rows"])


def _sum(some: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {name: some.get(name, 0) + more.get(name, 0) for name in {*some, *more}}


def _next(side: Side, last: int) -> Turn:
    """The next trigger that did something."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if side.query.exception() is not None:
            raise side.query.exception()
        progress = side.query.lastProgress
        # A look that found nothing has no addBatch, and the id of the trigger to come.
        if (
            progress is not None
            and progress.batchId > last
            and "addBatch" in progress.durationMs
        ):
            return _turn(side, progress)
        time.sleep(0.05)
    message = f"{side.name}: no trigger ended in {_PATIENCE_SECONDS} s"
    raise TimeoutError(message)


def _wait_for_phase(tick: float) -> None:
    """Spark looks for files at multiples of its interval: not while we put them there."""
    left = tick - time.time() % tick
    if left < 0.1 or left > tick - 0.1:
        time.sleep(0.2)


def _turn(side: Side, progress: Any) -> Turn:
    operator = progress.stateOperators[0]
    return {
        "id": progress.batchId,
        "ms": dict(progress.durationMs),
        "rows": progress.numInputRows,
        "live": side.live[-1] if side.live else operator.numRowsTotal,
        "state": {
            "update_ms": operator.allUpdatesTimeMs,
            "remove_ms": operator.allRemovalsTimeMs,
            "commit_ms": operator.commitTimeMs,
            "bytes": operator.memoryUsedBytes,
        },
    }


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median and quartiles."""
    low, _, high = quantiles(values, n=4)
    return {"q1": round(low, 3), "median": round(median(values), 3), "q3": round(high, 3)}


def times(turns: Sequence[Turn], what: str = "triggerExecution") -> list[float]:
    return [float(turn["ms"].get(what, 0)) for turn in turns]


def ratios(over: Sequence[Turn], under: Sequence[Turn]) -> dict[str, float]:
    """How many times longer the first took, pair by pair."""
    pairs = zip(times(over), times(under), strict=True)
    return spread([one / other for one, other in pairs])


def compiling(found: dict[str, list[Turn]], every: int) -> list[int]:
    """Milliseconds that Java compiled in a turn of all sides: the median of the turns."""
    by_turn = zip(*found.values(), strict=True)
    turns = [sum(one["compiled_ms"] for one in sides) for sides in by_turn]
    return [round(median(turns[at : at + every])) for at in range(0, len(turns), every)]


def summary(turns: Sequence[Turn]) -> dict[str, Any]:
    """A side's measured turns."""
    parts = {name: round(median(times(turns, name))) for name in turns[-1]["ms"]}
    state = {
        name: round(median([t["state"][name] for t in turns])) for name in turns[-1]["state"]
    }
    return {
        "triggers": len(turns),
        "ms": spread(times(turns)),
        "parts_ms": parts,
        "state": state,
        "live": round(median([turn["live"] for turn in turns])),
    }
