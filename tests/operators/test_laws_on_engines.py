"""Laws of merge, of every case and policy, on every engine, judged by the model at every cut.

On Spark they are tried with a few fixed seeds.
"""

from itertools import pairwise

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from anabranch.model.element import Insert
from anabranch.model.equivalence import compatible
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import NEVER
from anabranch.testing import (
    conflicting_arrivals,
    histories,
    interleavings,
    presentations,
    replicas,
)

KEYED = "adjusts=always inserts=leader inserts=half_frozen inserts=quorum(0.5) shrink_only=true"
KEYED_POLICIES = ["stable_lag=0", *KEYED.split(), "adjusts=follow_leader,inserts=most_free"]


@st.composite
def merges(draw):
    """The case of the streams, and what the merge is asked for: the same, or less sure."""
    case = draw(st.sampled_from(MergeCase))
    asked = {case.value, *(["auto", "r4"] if case in (MergeCase.R3, MergeCase.R4) else [])}
    return case, draw(st.sampled_from(sorted(asked)))


def cuts(data, count):
    """Where steps end, among this many elements."""
    inner = data.draw(st.lists(st.integers(0, count), max_size=5).map(sorted))
    return pairwise([0, *inner, count])


def any_cut_any_restart_same_history(engine, data):
    case, asked = data.draw(merges())
    streams, lag = data.draw(replicas(case=case)), data.draw(st.sampled_from([0, 0, 3]))
    arrived = data.draw(interleavings(streams))
    frontier = NEVER
    with engine(case=asked, policy=f"stable_lag={lag}") as merge:
        for start, stop in cuts(data, len(arrived)):
            for number, element in arrived[start:stop]:
                merge.push(f"r{number}", [element])
            merge.cut()
            seen = [
                replay([element for one, element in arrived[:stop] if one == number])
                for number in range(len(streams))
            ]
            out = replay(merge.output)
            assert out.violations == ()
            assert compatible(out, seen)
            frontier = max([frontier, *(one.frontier - lag for one in seen)])
            assert out.frontier == frontier
            if data.draw(st.booleans()):
                merge.restart()
        assert merge.history == History.of(streams[0])


def valid_and_accounted_whatever_comes(engine, data):
    case = data.draw(st.sampled_from([MergeCase.R3, MergeCase.R4]))
    keyed = case is MergeCase.R3
    asked = case.value if keyed else data.draw(st.sampled_from(["r4", "auto"]))
    policy = data.draw(st.sampled_from(KEYED_POLICIES)) if keyed else "default"
    arrived = data.draw(conflicting_arrivals(case=case))
    with engine(case=asked, policy=policy) as merge:
        for start, stop in cuts(data, len(arrived)):
            for number, element in arrived[start:stop]:
                merge.push(f"r{number}", [element])
            merge.restart() if data.draw(st.booleans()) else merge.cut()
            assert replay(merge.output).violations == ()
            counts = {name: sum(buckets.values()) for name, buckets in merge.account.items()}
            seen = [f"r{number}" for number, _ in arrived[:stop]]
            assert counts == {name: seen.count(name) for name in seen}
        emitted = sum(buckets["emitted"] for buckets in merge.account.values())
        if policy == "stable_lag=0":
            assert sum(isinstance(one, Insert) for one in merge.output) <= emitted


def a_replica_that_joins_late_never_makes_the_output_wrong(engine, data):
    """It is right about what ends at its guarantee or later, and omits some of the rest."""
    case, asked = data.draw(merges())
    truth = data.draw(histories(case=case))
    guarantee = data.draw(st.integers(0, 9))
    events = truth.events()
    omitted = data.draw(st.sets(st.integers(0, len(events))))
    known = [e for n, e in enumerate(events) if e.end >= guarantee or n not in omitted]
    first = data.draw(presentations(truth, case=case))
    late = data.draw(presentations(History.from_events(known), case=case))
    arrived = data.draw(interleavings([first, late]))
    with engine(case=asked) as merge:
        merge.attach("first")
        merge.attach("late", guarantee=guarantee)
        for start, stop in cuts(data, len(arrived)):
            for number, element in arrived[start:stop]:
                merge.push(("first", "late")[number], [element])
            merge.restart() if data.draw(st.booleans()) else merge.cut()
            assert replay(merge.output).violations == ()
        assert merge.history == truth


def replicas_may_leave_and_come_back_with_a_replay(engine, data):
    case, asked = data.draw(merges())
    streams = data.draw(replicas(case=case, min_inputs=2, max_inputs=2, phantoms=0))
    stays, leaves = streams
    left_at = data.draw(st.integers(0, len(leaves)))
    with engine(case=asked) as merge:
        merge.attach("stays")
        merge.attach("leaves")
        merge.push("leaves", leaves[:left_at])
        merge.detach("leaves")
        half = data.draw(st.integers(0, len(stays)))
        merge.push("stays", stays[:half])
        merge.attach("leaves")
        merge.push("leaves", leaves)
        merge.restart() if data.draw(st.booleans()) else merge.cut()
        merge.push("stays", stays[half:])
        merge.cut()
        assert replay(merge.output).violations == ()
        assert merge.history == History.of(stays)


LAWS = [
    any_cut_any_restart_same_history,
    valid_and_accounted_whatever_comes,
    a_replica_that_joins_late_never_makes_the_output_wrong,
    replicas_may_leave_and_come_back_with_a_replay,
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@given(st.data())
def test_laws(local_engine, law, data):
    law(local_engine, data)


@pytest.mark.spark
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.deep)])
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_on_spark(spark_engine, law, number):
    @seed(number)
    # The first example is the smallest, the second one is drawn.
    @settings(max_examples=2, phases=[Phase.generate], database=None, derandomize=False)
    @given(st.data())
    def tried(data):
        law(spark_engine, data)

    tried()
