"""Bytes per live event: merge R3 stores a payload once, R3- once per input.

    make bench FIG=merge_memory

100,000 live events with payloads of 1000 bytes, for 2 and for 10 inputs.  Counted are the
payloads and all arrays beside them; then all memory, with the room that arrays keep for growth
(up to twice what they hold, so not a smooth number); and what saves write: the whole, and after
one more step only what changed.
"""

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any

from merging import separate
from merging.clock import machine, report
from merging.separate import SeparateState
from merging.steps import Step, steps

from anabranch.generator.workload import Workload
from anabranch.operators.contract import Inputs
from anabranch.operators.merge.state import MergeState

LIVE = 100_000
PAYLOAD = 1_000


def held(make: Callable[[], Any], take: Callable[[Any, Step], object], source: list[Step]):
    """The state after these steps, and the bytes that it holds."""
    gc.collect()
    tracemalloc.start()
    state = make()
    for arrivals in source:
        take(state, arrivals)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return state, size


def take(state: MergeState, arrivals: Step) -> object:
    return state.step(Inputs(tuple(arrivals)))


def measure(inputs: int) -> dict[str, Any]:
    # Nothing ends while we look: all events are alive at the end.
    workload = Workload(
        events=LIVE, replicas=inputs, payload_bytes=PAYLOAD, duration=100 * LIVE, revisions=0
    )
    source = list(steps(workload, run=5_000))[:-1]
    last = source.pop()
    state, size = held(lambda: MergeState.empty(workload.schema), take, source)
    payload = sum(c.data.nbytes + c.offsets.nbytes for c in state.nodes.columns())
    whole, live, beside = state.parts(), state.live, state.nbytes
    mark = state.mark
    take(state, last)
    some = state.parts(since=mark)
    baseline, other = held(lambda: SeparateState.empty(workload.schema), separate.step, source)
    del baseline
    return {
        "inputs": inputs,
        "live": live,
        "r3_bytes_per_event": round((payload + beside) / live),
        "r3_beside_payload": round(beside / live),
        "r3_with_room_to_grow": round(size / live),
        "r3_separate_with_room_to_grow": round(other / live),
        "saved_bytes_per_event": round(sum(map(len, whole.written.values())) / live),
        "elements_of_a_step": sum(len(arrival.batch) for arrival in last),
        "share_written_after_it": round(
            sum(map(len, some.written.values())) / sum(map(len, whole.written.values())), 3
        ),
    }


def main() -> None:
    facts = machine()
    few, many = measure(2), measure(10)
    report(
        "merge_memory",
        {
            "machine": facts,
            "points": [few, many],
            "r3_ten_inputs_to_two": round(
                many["r3_bytes_per_event"] / few["r3_bytes_per_event"], 2
            ),
            "r3_separate_ten_inputs_to_two": round(
                many["r3_separate_with_room_to_grow"] / few["r3_separate_with_room_to_grow"], 2
            ),
        },
    )


if __name__ == "__main__":
    main()
