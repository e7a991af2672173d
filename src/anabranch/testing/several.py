"""An operator that runs several others side by side, each on inputs of its own.

It lets many small runs share one streaming query (`anabranch.testing.together`).  Input
`3:east` is the input `east` of the run 3.  The state has the states of all runs, saved under
their numbers; a step of the query is a step of each run that something came for.  Runs have
frontiers of their own, and a stream has one, so what a run emits is the payload of an insert:
`3 ["stable", 5]`.

A run has payload columns of its own, and ports of its own where its operator has some; in the
query all payloads are text (`anabranch.testing.element_lines`).  It has one lane.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import NEVER_UNITS, Batch, Codes
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema
from anabranch.model.element import Element, Insert
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import (
    Arrival,
    ControlEntry,
    Inputs,
    InputStatus,
    Operator,
    Route,
    State,
    StepResult,
    ports_of,
)
from anabranch.operators.state.blocks import Saved
from anabranch.testing.element_lines import crossed, crossing, element_of, line_of

_MARKS: Final = "marks"


def name_in(run: int, name: str) -> str:
    """What an input of a run is called in the query."""
    return f"{run}:{name}"


def run_of(name: str) -> tuple[int, str]:
    """The run of an input, and what the run calls it.

    >>> run_of(name_in(3, "east"))
    (3, 'east')
    """
    number, _, rest = name.partition(":")
    return int(number), rest


def emitted(rows: Sequence[Element]) -> list[tuple[int, Element]]:
    """What the runs emitted, by what the query did."""
    made: list[tuple[int, Element]] = []
    for row in rows:
        assert isinstance(row, Insert), f"a run's element crosses as an insert, not as {row}"
        number, _, line = str(row.payload).partition(" ")
        made.append((int(number), element_of(line)))
    return made


@dataclass(frozen=True)
class SeveralOperator:
    """The operators of the runs; those of `finals` show what becomes final."""

    schema: ElementSchema
    operators: tuple[Operator, ...]
    finals: frozenset[int] = frozenset()
    name: str = "several"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Inserts whose payload is text."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """None: its rows are the elements of other streams."""
        del inputs
        return StreamProperties()

    def empty(self) -> "SeveralState":
        """Nothing has happened to any run."""
        return SeveralState(self, [one.empty() for one in self.operators])

    def from_parts(self, parts: Mapping[str, bytes]) -> "SeveralState":
        """The states that were saved."""
        marks = json.loads(parts[_MARKS])
        by_run: list[dict[str, bytes]] = [{} for _ in self.operators]
        for name, data in parts.items():
            if name != _MARKS:
                number, _, rest = name.partition("/")
                by_run[int(number)][rest] = data
        states = [
            operator.from_parts(mine) if marks["runs"][number] is not None else operator.empty()
            for number, (operator, mine) in enumerate(zip(self.operators, by_run, strict=True))
        ]
        return SeveralState(self, states, marks["mark"], marks["runs"])


@dataclass(frozen=True)
class _Step:
    """What one run takes in a step; `places` are those of its arrivals among all."""

    arrivals: list[Arrival] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    control: list[ControlEntry] = field(default_factory=list)


class SeveralState:
    """The states of the runs; `saved` are their marks when they were saved last."""

    frontier: int = int(NEVER_UNITS)

    def __init__(
        self,
        operator: SeveralOperator,
        states: Sequence[State],
        mark: int = 0,
        saved: Sequence[int | None] = (),
    ) -> None:
        self.operator, self.states, self.mark = operator, list(states), mark
        self.saved: list[int | None] = [*saved] or [None] * len(self.states)
        self.touched: set[int] = set()

    @property
    def live(self) -> int:
        """The events of all runs that may still change."""
        return sum(one.live for one in self.states)

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The attached inputs of all runs, as the query calls them."""
        return tuple(
            replace(status, name=name_in(number, status.name))
            for number, state in enumerate(self.states)
            for status in state.inputs
        )

    @property
    def facts(self) -> Mapping[str, Any]:
        """How many runs there are."""
        return {"runs": len(self.states)}

    def step(self, inputs: Inputs) -> StepResult:
        """A step of every run that something came for."""
        self.mark += 1
        steps: dict[int, _Step] = {}
        for entry in inputs.control:
            number, name = run_of(entry.input)
            steps.setdefault(number, _Step()).control.append(replace(entry, input=name))
        for place, arrival in enumerate(inputs.arrivals):
            number, name = run_of(arrival.input)
            step = steps.setdefault(number, _Step())
            batch = _own(arrival.batch, self.operator.operators[number], name)
            step.arrivals.append(replace(arrival, input=name, batch=batch))
            step.places.append(place)
        self.touched |= steps.keys()
        results = {
            number: self.states[number].step(Inputs(tuple(one.arrivals), tuple(one.control)))
            for number, one in steps.items()
        }
        return self._together(len(inputs.arrivals), steps, results)

    def _together(
        self, count: int, steps: Mapping[int, _Step], results: Mapping[int, StepResult]
    ) -> StepResult:
        buckets: list[Codes] = [np.empty(0, np.int8)] * count
        reasons: list[Codes] = [np.empty(0, np.int8)] * count
        lines: list[str] = []
        for number, one in results.items():
            for at, place in enumerate(steps[number].places):
                buckets[place], reasons[place] = one.buckets[at], one.reasons[at]
            shown = one.final if number in self.operator.finals else one.output
            assert shown is not None, f"run {number} reports nothing that became final"
            lines += [f"{number} {line_of(element)}" for element in to_elements(shown)]
        rows = [Insert(line, self.mark, self.mark + 1) for line in lines]
        return StepResult(
            from_elements(rows, self.operator.output),
            tuple(buckets),
            tuple(reasons),
            self.frontier,
            resolved=tuple(
                replace(
                    held,
                    replica=name_in(number, held.replica),
                    batch=_everyone(held.batch, self.operator.schema),
                )
                for number, one in results.items()
                for held in one.resolved
            ),
            violators=tuple(
                name_in(number, name)
                for number, one in results.items()
                for name in one.violators
            ),
        )

    def parts(self, *, since: int | None = None) -> Saved:
        """What changed in any run since the last save, or all."""
        written: dict[str, bytes] = {}
        deleted: list[str] = []
        for number in range(len(self.states)) if since is None else sorted(self.touched):
            mark = None if since is None else self.saved[number]
            saved = self.states[number].parts(since=mark)
            written |= {f"{number}/{name}": data for name, data in saved.written.items()}
            deleted += [f"{number}/{name}" for name in saved.deleted]
            self.saved[number] = saved.mark
        self.touched.clear()
        marks = {"mark": self.mark, "runs": self.saved}
        return Saved(written | {_MARKS: json.dumps(marks).encode()}, tuple(deleted), self.mark)

    def check(self) -> None:
        """Assert the invariants of every run."""
        for one in self.states:
            one.check()


def _own(batch: Batch, operator: Operator, name: str) -> Batch:
    """Elements of the query with the columns of the port of this run that they are for."""
    ports = ports_of(operator)
    # Where inputs are alike, they have one port whatever their names.
    port = ports.get(name, next(iter(ports.values())))
    return from_elements([crossed(element) for element in to_elements(batch)], port.schema)


def _everyone(batch: Batch, schema: ElementSchema) -> Batch:
    """Elements of a run with the column of the query."""
    return from_elements([crossing(element) for element in to_elements(batch)], schema)
