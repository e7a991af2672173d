"""Operations per element of every merge case in steady state, beside the paper's Table IV.

`PAPER` is that table; `per_element` counts what our kernels do: slots of hash tables looked at
(`probes`), events or elements looked at (`visits`), entries of queues that were added, taken or
moved (`queue`).  The counts do not depend on the machine.
"""

from collections.abc import Iterator

import numpy as np

from anabranch.batch.batch import Batch
from anabranch.batch.codec import decode
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.merge import open_merge
from anabranch.operators.merge.ordered_state import OrderedState
from merging import separate

PAPER = {
    "R0": {"insert": "O(1)", "adjust": "n/a", "stable": "O(1)"},
    "R1": {"insert": "O(s)", "adjust": "n/a", "stable": "O(1)"},
    "R2": {"insert": "O(s)", "adjust": "n/a", "stable": "O(1)"},
    "R3": {"insert": "O(lg w)", "adjust": "O(lg w)", "stable": "O(c lg w + h)"},
    "R4": {
        "insert": "O(lg w + lg d)",
        "adjust": "O(lg w + lg d)",
        "stable": "O(c lg w + h d)",
    },
    "R3-": {"insert": "not in the table", "adjust": "not in the table", "stable": "-"},
}
"""LMerge Table IV: s inputs, w live identities, h of them half frozen, c frozen by the stable,
d events of an identity."""

Counts = dict[str, float]


class Counted:
    """A merge of one case, and what its steps have cost so far."""

    def __init__(self, name: str, workload: Workload) -> None:
        self.name = name
        self._sums = {"probes": 0, "visits": 0, "queue": 0}
        if name in ("R3", "R4"):
            self.merge = open_merge(MergeCase[name], workload.schema)
        elif name == "R3-":
            self.take = separate.step
            self.state = separate.SeparateState.empty(workload.schema)
        else:
            self.state = OrderedState.empty(MergeCase[name], workload.schema)

    def step(self, arrivals: list[Arrival]) -> None:
        if self.name in ("R3", "R4"):
            self.merge.step(arrivals)
        elif self.name == "R3-":
            self.take(self.state, arrivals)
        else:
            for count, more in self.state.step(arrivals).counts.items():
                if count in self._sums:
                    self._sums[count] += more

    def counts(self) -> dict[str, int]:
        if self.name in ("R3", "R4"):
            work = self.merge.work
            return {
                "probes": work.probes,
                "visits": work.visits,
                "queue": work.heap_operations,
            }
        if self.name == "R3-":
            return self._sums | {"visits": self.state.visits}
        return self._sums


def per_element(
    name: str, *, live: int, inputs: int = 2, run: int = 200, measured: int = 4_000
) -> Counts:
    """Operations per element while about this many events are alive."""
    workload = Workload(
        case=MergeCase[name.rstrip("-")],
        events=live + live // 2 + measured,
        replicas=inputs,
        payload_bytes=8,
        duration=live * 10,
    )
    merge, elements = Counted(name, workload), 0
    before = merge.counts()
    presented = list(steps(workload, run))
    warm = max(0, len(presented) - measured // run)
    for number, arrivals in enumerate(presented[:-1]):
        if number == warm:
            before, elements = dict(merge.counts()), 0
        merge.step(arrivals)
        elements += sum(len(arrival.batch) for arrival in arrivals)
    after = merge.counts()
    return {count: round((after[count] - before[count]) / elements, 2) for count in after}


def steps(workload: Workload, run: int) -> Iterator[list[Arrival]]:
    """Every replica gives its next `run` elements in each step."""
    batches: list[Batch] = [
        decode(workload.replica(number), workload.schema).batch
        for number in range(workload.replicas)
    ]
    for at in range(0, min(map(len, batches)), run):
        yield [
            Arrival(f"r{number}", batch.take(np.arange(at, min(at + run, len(batch)))))
            for number, batch in enumerate(batches)
        ]
