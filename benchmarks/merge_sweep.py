"""Merge R3, one factor at a time: inputs, live events, stables, payload, disorder.

    make bench FIG=merge_sweep                    goes on where it stopped; about ten minutes
    python benchmarks/merge_sweep.py --fresh      from the beginning

Of each point the middle of a stream is measured: the state is first filled until about as many
events are alive as asked for, and the end of the stream is not played.  Beside the time, in
elements per CPU second, are the operations per element, which do not depend on the machine:
slots looked at, events visited by stables, pushes to and pops from heaps.  `to_first` is the
speed against the first point of the same factor.

It fails if a cost grows faster than it may: `LEAST` is how slow an element may become.
"""

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from merging.clock import RESULTS, best, machine, report
from merging.steps import Step, count, piece

from anabranch.batch.codec import decode
from anabranch.generator.workload import Workload
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.merge.state import MergeState

NAME = "merge_sweep"
RUN = 10_000
GAP = 10
"""Application time between two events, on average."""
MEASURED = 100_000
"""Events that arrive while the clock runs."""
BASE = Workload(replicas=3, payload_bytes=100, seed=7)
LIVE = 10_000

Point = tuple[Workload, int]

FACTORS: dict[str, tuple[list[float], Callable[[float], Point]]] = {
    "inputs": ([2, 3, 5, 10], lambda n: (replace(BASE, replicas=int(n)), LIVE)),
    "live_events": (
        [10_000, 100_000, 1_000_000, 5_000_000],
        lambda n: (replace(BASE, replicas=2, payload_bytes=16), int(n)),
    ),
    "stable_frequency": (
        [0.00001, 0.001, 0.01, 0.1],
        lambda share: (replace(BASE, stable_freq=share), LIVE),
    ),
    "payload_bytes": (
        [16, 100, 1_000],
        lambda size: (replace(BASE, payload_bytes=int(size)), LIVE),
    ),
    "disorder": ([0.0, 0.2, 0.5], lambda share: (replace(BASE, disorder=share), LIVE)),
}


LEAST = {
    "inputs": 0.5,
    "live_events": 0.2,
    "stable_frequency": 0.2,
    "payload_bytes": 0.1,
    "disorder": 0.5,
}
"""The least speed against the first point; only bytes may cost much more."""
MOST = {"probes": 4, "visits": 1.6, "heap_operations": 10}
"""Operations per element at any point; the queue moves entries by the bits of what is alive."""


def streams(workload: Workload) -> Iterator[Step]:
    """Steps of a workload, decoded piece by piece: five million events need the memory."""
    presented = [workload.present(number) for number in range(workload.replicas)]
    for at in range(0, max(map(len, presented)), RUN):
        arrivals = []
        for number, one in enumerate(presented):
            if at < len(one):
                table = workload.part(one, slice(at, at + RUN))
                batch = decode(table, workload.schema).batch
                arrivals.append(Arrival(f"r{number}", piece(batch, 0, RUN)))
        yield arrivals


def measure(workload: Workload, live: int) -> dict[str, Any]:
    workload = replace(
        workload, events=live * 5 // 4 + 2 * MEASURED, duration=live * GAP, max_gap=2 * GAP
    )
    state = MergeState.empty(workload.schema)
    source = streams(workload)
    for arrivals in source:
        state.step(Inputs(tuple(arrivals)))
        if state.live >= 0.85 * live:
            break
    each = round(MEASURED * 1.1 / RUN)
    some = [arrivals for _, arrivals in zip(range(each), source, strict=False)]
    before, elements = state.work, count(some)
    at_begin = state.live

    def turn() -> None:
        for arrivals in some:
            state.step(Inputs(tuple(arrivals)))

    seconds = best(turn, turns=1)
    after = state.work
    return {
        "elements": elements,
        "live": int(np.mean([at_begin, state.live])),
        "per_second": round(elements / seconds),
        "probes": round((after.probes - before.probes) / elements, 2),
        "visits": round((after.visits - before.visits) / elements, 2),
        "heap_operations": round(
            (after.heap_operations - before.heap_operations) / elements, 2
        ),
    }


def main() -> None:
    path = RESULTS / f"{NAME}.json"
    known = {} if "--fresh" in sys.argv or not path.exists() else json.loads(path.read_text())
    result: dict[str, Any] = {"machine": known.get("machine", machine())}
    measure(BASE, 1_000)  # compiles
    for factor, (values, point) in FACTORS.items():
        done = {one["value"]: one for one in known.get(factor, [])}
        points = result[factor] = []
        for value in values:
            points.append(done.get(value) or {"value": value, **measure(*point(value))})
            first = points[0]["per_second"]
            points[-1]["to_first"] = round(points[-1]["per_second"] / first, 2)
            report(NAME, {**known, **result})
    wrong = list(too_much(result))
    if wrong:
        raise SystemExit("\n".join(wrong))


def too_much(result: dict[str, Any]) -> Iterator[str]:
    """What costs more than it may."""
    for factor, least in LEAST.items():
        for point in result[factor]:
            what = f"{factor} {point['value']}"
            if point["to_first"] < least:
                yield f"{what}: {point['to_first']} of the first point's speed, not {least}"
            for name, most in MOST.items():
                if point[name] > most:
                    yield f"{what}: {point[name]} {name} per element, not at most {most}"


if __name__ == "__main__":
    main()
