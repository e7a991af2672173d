"""Memory and state per million live events, for the sizing of executors.

    make bench FIG=merge_sizing

For payloads of 10, 100 and 1000 bytes and 3 inputs, and of 100 bytes and 10 inputs: what a lane
holds in its Python worker (payloads and all beside them; arrays may keep as much again as room
to grow), and what it writes into Spark's state store.  Measured with 200,000 events, counted up
to a million.
"""

from typing import Any

from merging.clock import machine, report
from merging.steps import steps

from anabranch.generator.workload import Workload
from anabranch.operators.contract import Inputs
from anabranch.operators.merge.state import MergeState

LIVE = 200_000
MB = 1_000_000
POINTS = [(10, 3), (100, 3), (1_000, 3), (100, 10)]


def measure(payload: int, inputs: int) -> dict[str, Any]:
    # Nothing ends while we look: all events are alive at the end.
    workload = Workload(
        events=LIVE, replicas=inputs, payload_bytes=payload, duration=100 * LIVE, revisions=0
    )
    state = MergeState.empty(workload.schema)
    for arrivals in steps(workload, run=5_000):
        if state.live >= 0.9 * LIVE:
            break
        state.step(Inputs(tuple(arrivals)))
    held = sum(c.data.nbytes + c.offsets.nbytes for c in state.nodes.columns()) + state.nbytes
    saved = sum(map(len, state.parts().written.values()))

    def per_million(size: int) -> int:
        return round(size / state.live * 1_000_000 / MB)

    return {
        "payload_bytes": payload,
        "inputs": inputs,
        "live": state.live,
        "held_mb_per_million": per_million(held),
        "state_store_mb_per_million": per_million(saved),
    }


def main() -> None:
    facts = machine()
    points = [measure(payload, inputs) for payload, inputs in POINTS]
    report("merge_sizing", {"machine": facts, "points": points})


if __name__ == "__main__":
    main()
