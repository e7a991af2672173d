"""A plan in one lane, without Spark: what a query emits and reports as final, step by step.

`source` is a stream that was validated; a `Kept` is a `where` that Python evaluates.  Every
element of a source is given as it is, so the streams must be valid.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from anabranch.batch.batch import Batch, concat
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Element, Event, Insert
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.route import BY_IDENTITY
from anabranch.plan.node import Native, Node, Source, Step, nodes
from anabranch.spark.query.query import Query
from anabranch.testing.strategies import replicas

PAYLOADS = st.tuples(st.sampled_from("aab"), st.integers(0, 1))


@st.composite
def triggers(draw, *names: str) -> list[dict[str, list[Element]]]:
    """Valid streams by name, each to its end, cut into a few triggers."""
    streams = {}
    for name in names:
        (streams[name],) = draw(
            replicas(case=MergeCase.R4, max_inputs=1, payloads=PAYLOADS, phantoms=1)
        )
    count = draw(st.integers(1, 4))
    cuts = {
        name: [0, *sorted(draw(at_most(len(one))) for _ in range(count - 1)), len(one)]
        for name, one in streams.items()
    }
    return [
        {name: one[cuts[name][at] : cuts[name][at + 1]] for name, one in streams.items()}
        for at in range(count)
    ]


@cache
def at_most(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count)


@dataclass(frozen=True)
class Kept:
    """A condition over columns of the payload and `start`, for `Native.change`."""

    condition: Callable[[dict[str, Any]], bool]

    def __call__(self, batch: Batch) -> Batch:
        rows = batch.payload.to_pylist()
        starts = batch.start.tolist()
        data = batch.is_data.tolist()
        keeps = [
            not is_data or self.condition({**row, "start": start})
            for row, start, is_data in zip(rows, starts, data, strict=True)
        ]
        return batch.take(np.array(keeps, np.bool_))


def source(
    name: str,
    time: TimeType = TimeType.BIGINT,
    *,
    final_at_start: bool = False,
    **columns: pa.DataType,
) -> Query:
    """A stream of events with these payload columns."""
    schema = ElementSchema(time, pa.schema(list(columns.items())))
    return Query(Source(name, None, schema, BY_IDENTITY, name, final_at_start=final_at_start))


def kept(query: Query, condition: Callable[[dict[str, Any]], bool], words: str = "") -> Query:
    """The query behind a `where`."""
    node = query.node
    change = Kept(condition)
    made = Native(
        "where", node, change, node.schema, words or "where", node.final_at_start,
        in_windows=node.in_windows, one_to_one=True,
    )  # fmt: skip
    return Query(made)


class Lane:
    """A query that runs; `output` and `final` are what it has emitted and reported."""

    def __init__(self, query: Query) -> None:
        self.query = query
        self.order = nodes(query.node)
        self.states = {
            id(one): one.operator.empty() for one in self.order if isinstance(one, Step)
        }
        last = query.node
        known = PipelineStep("last", last.operator) if isinstance(last, Step) else None
        assert isinstance(last, Step), "the last node of a tested query is a step"
        assert known is not None
        pipeline = with_final((known,), at_start=last.final_at_start)
        self.states[id(last)] = pipeline[0].operator.empty()
        self.reports = pipeline[1].operator.empty() if len(pipeline) > 1 else None
        self.output: list[Element] = []
        self.final: list[Element] = []

    def step(self, **given: Sequence[Element]) -> tuple[list[Element], list[Element]]:
        """One trigger: elements of sources by name; what it emits, and what became final."""
        made: dict[int, Batch] = {}
        for node in self.order:
            made[id(node)] = self._made(node, made, given)
        last = self.query.node
        output, final = made[id(last)], self._final
        if self.reports is not None:
            result = self.reports.step(Inputs((Arrival("input", output),)))
            final = result.final
        emitted = to_elements(output)
        became = [] if final is None else to_elements(final)
        self.output += emitted
        self.final += became
        return emitted, became

    def _made(self, node: Node, made: dict[int, Batch], given: dict[str, Any]) -> Batch:
        if isinstance(node, Source):
            return from_elements(list(given.get(node.id, ())), node.schema)
        if isinstance(node, Native):
            return node.change(made[id(node.of)])
        arrivals = tuple(Arrival(port, made[id(one)]) for port, one in node.reads)
        result = self.states[id(node)].step(Inputs(arrivals))
        self._final = result.final
        self.states[id(node)].check()
        return concat([result.output])

    @property
    def history(self) -> History:
        """The history of the output; it must keep its promises."""
        seen = replay(self.output)
        assert seen.violations == (), seen.violations
        return seen.history

    def final_events(self) -> Counter[Event]:
        """What was reported as final."""
        assert all(isinstance(one, Insert) for one in self.final)
        return Counter(one.event for one in self.final)


def require_final_stays(lane: Lane) -> None:
    """What was reported is in the history still, as often as it was reported."""
    gone = lane.final_events() - Counter(lane.history)
    assert not gone, f"reported as final, but not there any more: {sorted(map(str, gone))}"
