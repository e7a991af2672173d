"""Runs of a plan with heartbeats, row by row: what waits where, and how far each step is.

As in section 7 of the paper: a step has an input manager in front of it, and takes from it the
rows that its heartbeat has passed, in order.  Its heartbeat is the least of its label's streams
and of the output heartbeats below it (erratum H24).  A row carries a weight, and a step
multiplies it by its selectivity, so that a mean is exact; or a step has a rule for each row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from anabranch.plan.labels import Label
from anabranch.plan.node import Node, Source, nodes, reads_of

Rule = Callable[[int, float], float]
"""What becomes of the weight of a row with this timestamp."""


@dataclass
class PlanRun:
    """A plan with labels while it runs; steps that are `silent` do not forward heartbeats."""

    last: Node
    labels: Mapping[str, Label]
    selectivity: Mapping[str, float] = field(default_factory=dict)
    rules: Mapping[str, Rule] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self.steps = [one for one in nodes(self.last) if not isinstance(one, Source)]
        self.streams: dict[str, int] = {
            one.id: 0 for one in nodes(self.last) if isinstance(one, Source)
        }
        self.heartbeat = dict.fromkeys((one.id for one in self.steps), 0)
        self.queues: dict[tuple[str, str], list[tuple[int, float]]] = {
            (one.id, read.id): [] for one in self.steps for read in reads_of(one)
        }
        self.output: list[tuple[int, float]] = []

    def take(self, stream: str, *times: int, heartbeat: int | None = None) -> None:
        """Rows of a stream, and its heartbeat: by default its greatest timestamp."""
        for (_, read), queue in self.queues.items():
            if read == stream:
                queue.extend((time, 1.0) for time in times)
        reached = max(times, default=0) if heartbeat is None else heartbeat
        self.streams[stream] = max(self.streams[stream], reached)
        self._run()

    def _run(self) -> None:
        """Let each step take what its heartbeat has passed; those below come first."""
        sent = dict(self.streams)
        for one in self.steps:
            below = [sent[read.id] for read in reads_of(one)]
            upper = [self.streams[name] for name in self.labels[one.id].sources]
            self.heartbeat[one.id] = max(self.heartbeat[one.id], min(below + upper))
            made = []
            for read in reads_of(one):
                queue = self.queues[one.id, read.id]
                made += [row for row in queue if row[0] <= self.heartbeat[one.id]]
                queue[:] = [row for row in queue if row[0] > self.heartbeat[one.id]]
            rows = [(time, self._weight(one.id, time, w)) for time, w in sorted(made)]
            self._send(one, [row for row in rows if row[1]])
            sent[one.id] = 0 if one.id in self.silent else self.heartbeat[one.id]

    def _weight(self, step: str, time: int, weight: float) -> float:
        if step in self.rules:
            return self.rules[step](time, weight)
        return weight * self.selectivity.get(step, 1.0)

    def _send(self, one: Node, rows: list[tuple[int, float]]) -> None:
        if one is self.last:
            self.output += rows
        for (_, read), queue in self.queues.items():
            if read == one.id:
                queue.extend(rows)

    @property
    def memory(self) -> float:
        """The rows that wait in front of some step."""
        return sum(weight for queue in self.queues.values() for _, weight in queue)
