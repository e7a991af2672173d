"""Hashes that travel with the elements, beside hashing twice: CPU of packers and lanes.

    make bench FIG=carried_hashes

Two lanes and three inputs; the packer routes, copies per lane and spills to a file, the lane
maps the file, puts the parcels into order and merges (R3).  One side sends the hash that routed
an element with it, the other sends none, so that the merge hashes the payload again.  They take
turns, trigger by trigger; a figure is hashed twice / carried, so above 1 carrying is faster: of
each trigger the best of all turns counts, since what disturbs only adds.
"""

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from merging.clock import machine, report, use_one_core
from merging.steps import steps

from anabranch.batch.batch import Batch
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.pipeline import PipelineStep
from anabranch.operators.route import BY_IDENTITY, Routing
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.trigger import make
from anabranch.spark.pack.parcels import Parcel, from_row, pieces, to_rows
from anabranch.spark.pack.spill import Depot, spilling

TURNS = 21
LANES = 2
EVENTS = {10: 100_000, 100: 100_000, 1_000: 20_000}
"""Events by bytes of payload."""


class Forgetful(Routing):
    """Routes as before, and keeps no hashes."""

    def hashed(self, batch: Batch) -> Batch:
        return batch


def packed(arrivals: Sequence[Arrival], number: int, routing: Routing, depot: Depot) -> Any:
    """The rows that one trigger's packers send, one packer per input."""
    rows: list[dict[str, Any]] = []
    for arrival in arrivals:
        base = Parcel(0, arrival.input, attachment=1, log=number, file="f")
        places = pa.table({"row": np.arange(len(arrival.batch))})
        with spilling(depot) as spill:
            sent = pieces(base, arrival.batch, places, LANES, routing)
            rows += zip(sent, to_rows(sent, LANES, spill).to_pylist(), strict=True)
    return rows


def triggers(
    spec: LaneSpec, some: Sequence[Sequence[Arrival]], routing: Routing
) -> Iterator[tuple[float, float]]:
    """Of each trigger the CPU seconds of the packers and of the lanes."""
    lanes = [spec.new_lane() for _ in range(LANES)]
    with tempfile.TemporaryDirectory() as folder:
        for number, arrivals in enumerate(some):
            depot = Depot(f"{folder}/parcels")
            begin = time.process_time()
            rows = packed(arrivals, number, routing, depot)
            middle = time.process_time()
            for at, lane in enumerate(lanes):
                fetch = depot.fetching()
                mine = [row for one, row in rows if one.lane == at]
                make(at, lane, [from_row(row, spec.schema, fetch) for row in mine], spec)
            end = time.process_time()
            depot.clear()
            yield middle - begin, end - middle


def measure(payload: int) -> dict[str, Any]:
    workload = Workload(events=EVENTS[payload], payload_bytes=payload, seed=3)
    operator = MergeOperator.of(workload.schema, choose({"r0": None}, asked=MergeCase.R3))
    pipeline = (PipelineStep("merge", operator, operator.label),)
    spec = LaneSpec("run", LANES, pipeline, Order(workload.schema))
    some = list(steps(workload, run=10_000))
    spent = []
    for number in range(TURNS + 1):
        sides: list[Routing] = [Forgetful(), BY_IDENTITY]
        order = (0, 1) if number % 2 else (1, 0)
        # They take turns trigger by trigger, so that a busy machine is fair to both.
        both = zip(*(triggers(spec, some, sides[at]) for at in order), strict=True)
        spent.append([[each[at] for at in order] for each in both])
    # Turns (without the first, which compiles), triggers, sides, packers and lanes.
    times = np.array(spent[1:])
    best = times.min(axis=0).sum(axis=0)
    whole = times.sum(axis=(1, 3))
    quartiles = statistics.quantiles((whole[:, 0] / whole[:, 1]).tolist())
    twice, carried = best
    return {
        "payload_bytes": payload,
        "packers and lanes": round(float(twice.sum() / carried.sum()), 3),
        "packers": round(float(twice[0] / carried[0]), 3),
        "lanes": round(float(twice[1] / carried[1]), 3),
        "quartiles of the turns": [round(q, 3) for q in quartiles],
    }


def main() -> None:
    use_one_core()
    facts = machine()
    points = [measure(payload) for payload in EVENTS]
    report("carried_hashes", {"machine": facts, "turns": TURNS, "points": points})


if __name__ == "__main__":
    main()
