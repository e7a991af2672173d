"""A run that changes its number of lanes at any cut: all laws of merge and union hold.

What changes lanes stands where the laws have a restart, so each of them is tried with states of
every case and policy, with replicas that join, leave and come back.
"""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_laws_on_engines import LAWS, cuts
from test_merge_complete import (
    test_the_output_is_the_union_of_the_copies as union_of_copies,
)
from test_merge_complete import (
    test_with_wait_the_shortfall_is_what_came_too_late as shortfall,
)

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Insert
from anabranch.model.history import History, replay
from anabranch.operators.abilities import Redistributes
from anabranch.operators.pipeline import PipelineStep
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.spark.lane.redistribute import require_redistributes
from anabranch.spark.lane.state import NO_COPIES, load
from anabranch.testing import engine, interleavings, replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
GAPS = [union_of_copies, shortfall]
POLICIES = st.sampled_from(["default", "stable_lag=2"])


def moving(data):
    """Makes engines in lanes; what restarts them gives them other lanes too."""

    def make(operator="merge", **options):
        made = engine("lanes", operator, lanes=data.draw(st.integers(1, 3)), **options)
        backend = made._backend
        backend.restart = lambda: backend.redistribute(data.draw(st.integers(1, 3)))
        return made

    return make


def heavy(laws):
    """The first of these laws, and the others in deep runs."""
    names = [law.__name__.removeprefix("test_") for law in laws]
    marks = [(), *[(pytest.mark.deep,)] * (len(laws) - 1)]
    found = zip(laws, names, marks, strict=True)
    return [pytest.param(law, id=name, marks=mark) for law, name, mark in found]


@pytest.mark.parametrize("law", heavy(LAWS))
@given(st.data())
def test_laws_of_merge(law, data):
    law(moving(data), data)


@pytest.mark.parametrize("law", heavy(GAPS))
@given(st.data())
def test_laws_of_copies_with_gaps(law, data):
    law.hypothesis.inner_test(moving(data), data)


@given(st.data())
def test_a_union_has_all_events_of_all_inputs(data):
    streams = data.draw(replicas(min_inputs=2, max_inputs=2))
    arrived = data.draw(interleavings(streams))
    with moving(data)("union") as union:
        for number in range(len(streams)):
            union.attach(f"r{number}")
        for start, stop in cuts(data, len(arrived)):
            for number, element in arrived[start:stop]:
                union.push(f"r{number}", [element])
            union.restart() if data.draw(st.booleans()) else union.cut()
            assert replay(union.output).violations == ()
        both = [event for stream in streams for event in History.of(stream).events()]
        assert union.history == History.from_events(both)


@given(st.data())
def test_what_was_counted_is_neither_lost_nor_doubled(data):
    """Pending inserts, events that are remembered, conflicts: sums over lanes stay."""
    streams = data.draw(replicas(min_inputs=2, max_inputs=3))
    with moving(data)("merge", case="r4", policy=data.draw(POLICIES)) as merge:
        merge.attach("r0", guarantee=data.draw(st.sampled_from([None, 3, FOREVER_UNITS])))
        for number, stream in enumerate(streams):
            merge.push(f"r{number}", stream[: data.draw(st.integers(0, len(stream)))])
        merge.cut()
        before = sums(merge)
        merge.restart()
        assert sums(merge) == before


def sums(merge):
    backend = merge._backend
    found = []
    for number, parts in enumerate(backend.stores):
        lane = load(parts, backend.spec.lane_id(number), NO_COPIES)
        state = lane.states["merge"]
        found.append((state.live, state.pending, state.conflicts, len(state.final_names)))
    return [sum(column) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("case", ["r1", "r2"])
@pytest.mark.parametrize("start", range(4))
def test_the_lane_of_the_current_start_knows_most_of_it(case, start):
    """All lanes have the events of the current start; one of them has seen more since."""
    with engine("lanes", "merge", case=case, lanes=1) as merge:
        merge.push("fast", [Insert("a", start, 9)])
        merge.cut()
        merge._backend.redistribute(3)
        merge.push("fast", [Insert("b", start, 9)])
        merge.cut()
        merge._backend.redistribute(2)
        merge.push("slow", [Insert("b", start, 9), Insert("a", start, 9)])
        merge.cut()
        assert merge.account["slow"]["absorbed"] == 2
        assert merge.output == (Insert("a", start, 9), Insert("b", start, 9))


def test_an_operator_that_cannot_is_refused_by_name():
    step = PipelineStep("tidy", NormaliseOperator(SCHEMA))
    assert not isinstance(step.operator, Redistributes)
    with pytest.raises(UsageError, match=r"the step 'tidy' \(normalise\) cannot change its"):
        require_redistributes((step,))
