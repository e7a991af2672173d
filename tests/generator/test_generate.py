"""Laws of every generated workload: valid at every prefix, true in the end, the case asked."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.batch.codec import decode, to_elements
from anabranch.batch.schema import TimeType
from anabranch.errors import UsageError
from anabranch.generator.workload import Workload
from anabranch.model.element import Element, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase, cheapest, observe
from anabranch.model.time import FOREVER

R0, R1, R2, R3, R4 = MergeCase


def elements(workload: Workload, replica: int) -> list[Element]:
    decoded = decode(workload.replica(replica), workload.schema)
    assert len(decoded.refused) == 0
    return to_elements(decoded.batch)


def presented(workload: Workload, *, replica: int | None = None) -> History:
    table = workload.history(replica=replica)
    if workload.time is TimeType.TIMESTAMP:
        table = table.set_column(0, "start", table["start"].cast("int64"))
        table = table.set_column(1, "end", table["end"].cast("int64"))
    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return History.from_events(
        Event((value, data), start, FOREVER if end is None else end)
        for start, end, value, data in rows
    )


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    case = draw(st.sampled_from(MergeCase))
    loose = case in (R3, R4)
    shares = st.sampled_from([0.0, 0.2, 0.7, 1.0])
    disorder = draw(st.none() | shares) if loose else None
    revisions = draw(st.none() | shares) if loose else None
    if loose and disorder == 0 and revisions == 0:
        revisions = None
    max_gap = draw(st.integers(1, 30))
    return Workload(
        case=case,
        events=draw(st.integers(3, 40)),
        replicas=draw(st.integers(2, 4)),
        disorder=disorder,
        revisions=revisions,
        duplicates=draw(st.none() | shares) if case is R4 else None,
        stable_freq=draw(st.sampled_from([0.0, 0.01, 0.2, 0.5])),
        duration=draw(st.none() | st.integers(1, 200)),
        max_gap=max_gap,
        bound=draw(st.none() | st.integers(max_gap + 1, 300)),
        gap_rate=0.0 if case is R1 else draw(st.sampled_from([0.0, 0.3, 1.0])),
        payload_bytes=draw(st.sampled_from([0, 1, 5, 9])),
        open=draw(st.booleans()),
        time=draw(st.sampled_from(TimeType)),
        first=draw(st.sampled_from([-50, 0, 10**15])),
        seed=draw(st.integers(0, 2**32)),
    )


@settings(deadline=None, max_examples=150)
@given(workloads())
def test_each_replica_is_valid_and_has_the_true_history(workload: Workload) -> None:
    for replica in range(workload.replicas):
        stream = elements(workload, replica)
        # A violation stays one however the stream goes on: none in all is none in a prefix.
        replayed = replay(stream)
        assert replayed.violations == ()
        assert replayed.history == presented(workload, replica=replica)
        assert (replayed.frontier == FOREVER) == (not workload.open)
    assert presented(workload, replica=0) == presented(workload)


@settings(deadline=None, max_examples=150)
@given(workloads())
def test_the_cheapest_case_is_exactly_the_one_asked_for(workload: Workload) -> None:
    streams = [elements(workload, replica) for replica in range(workload.replicas)]
    assert cheapest(observe(streams)) is workload.case
    assert cheapest(workload.properties) is workload.case


@settings(deadline=None, max_examples=60)
@given(workloads())
def test_what_a_replica_declares_is_what_it_does(workload: Workload) -> None:
    streams = [elements(workload, replica) for replica in range(workload.replicas)]
    observed = observe(streams).to_dict()
    assert all(observed[name] for name, holds in workload.properties.to_dict().items() if holds)


@settings(deadline=None, max_examples=60)
@given(workloads())
def test_no_event_is_empty_and_there_are_as_many_as_asked(workload: Workload) -> None:
    events = presented(workload).events()
    assert len(events) == workload.events
    assert all(event.start < event.end for event in events)
    assert {0 <= event.payload[0] <= 400 for event in events} == {True}
    assert {len(event.payload[1]) for event in events} == {workload.payload_bytes}


@settings(deadline=None, max_examples=60)
@given(workloads())
def test_stables_advance_and_have_an_insert_between_them(workload: Workload) -> None:
    for replica in range(workload.replicas):
        inserts, frontier = 0, None
        for element in elements(workload, replica):
            if isinstance(element, Insert):
                inserts += 1
            elif isinstance(element, Stable):
                assert frontier is None or element.time > frontier
                assert inserts > 0 or element.time == FOREVER
                inserts, frontier = 0, element.time


def test_the_same_spec_gives_the_same_elements() -> None:
    first, second = Workload(events=500, seed=4), Workload(events=500, seed=4)
    for replica in range(3):
        assert first.replica(replica).equals(second.replica(replica))
    assert first.history().equals(second.history())
    assert not first.history().equals(Workload(events=500, seed=5).history())


def test_a_replica_does_not_depend_on_how_many_there_are() -> None:
    few, many = Workload(events=200, replicas=2), Workload(events=200, replicas=9)
    assert few.replica(1).equals(many.replica(1))


def test_parts_together_are_the_replica() -> None:
    workload = Workload(events=300)
    presentation = workload.present(1)
    parts = [workload.part(presentation, slice(at, at + 77)) for at in range(0, 999, 77)]
    rows = [row for part in parts for row in part.to_pylist()]
    assert rows == workload.replica(1).to_pylist()
    assert [row["seq"] for row in rows] == list(range(len(rows)))


def test_replicas_differ_in_order_in_ends_in_stables_and_in_phantoms() -> None:
    workload = Workload(events=2_000, revisions=0.2)
    first, second = (elements(workload, replica) for replica in (0, 1))
    for kind in (Insert, Stable):
        assert [e for e in first if isinstance(e, kind)] != [
            e for e in second if isinstance(e, kind)
        ]
    everything = {(e.payload, e.start) for e in first if isinstance(e, Insert)}
    others = {(e.payload, e.start) for e in second if isinstance(e, Insert)}
    assert everything - others
    assert others - everything
    assert everything & others


def test_revisions_lengthen_shorten_set_remove_and_insert_again() -> None:
    workload = Workload(events=3_000, revisions=0.3, payload_bytes=4)
    table = workload.replica(1)
    adjusts = [row for row in table.to_pylist() if row["kind"] == "adjust"]
    ends = [(row["old_end"] or np.inf, row["end"] or np.inf) for row in adjusts]
    assert any(old < new < np.inf for old, new in ends)
    assert any(new < old < np.inf for old, new in ends)
    assert any(new < old == np.inf for old, new in ends)
    assert any(old < new == np.inf for old, new in ends)
    assert any(row["end"] == row["start"] for row in adjusts)
    inserts = Counter(
        (row["start"], row["value"], row["data"])
        for row in table.to_pylist()
        if row["kind"] == "insert"
    )
    assert max(inserts.values()) == 2
    times = Counter((row["start"], row["value"], row["data"]) for row in adjusts)
    assert max(times.values()) >= 3
    assert None in workload.history()["end"].to_pylist()


def test_duplicates_of_an_identity_have_equal_and_different_ends() -> None:
    rows = Workload(case=R4, events=1_000).history().to_pylist()
    ends: dict[tuple[object, ...], list[object]] = {}
    for row in rows:
        ends.setdefault((row["start"], row["value"], row["data"]), []).append(row["end"])
    several = [group for group in ends.values() if len(group) > 1]
    assert any(len(set(group)) == 1 for group in several)
    assert any(len(set(group)) > 1 for group in several)


@pytest.mark.parametrize("case", MergeCase)
def test_the_smallest_workloads_of_each_case(case: MergeCase) -> None:
    fewest = {R0: 1, R1: 2, R2: 2, R3: 1, R4: 2}[case]
    replicas = 2 if case is R2 else 1
    for seed in range(20):
        workload = Workload(case=case, events=fewest, replicas=replicas, seed=seed)
        streams = [elements(workload, replica) for replica in range(replicas)]
        assert cheapest(observe(streams)) is case


def test_two_events_suffice_for_disorder_and_three_with_duplicates() -> None:
    for case, events in ((R3, 2), (R4, 3)):
        for seed in range(20):
            workload = Workload(case=case, events=events, disorder=1, revisions=0, seed=seed)
            for replica in range(3):
                assert cheapest(observe([elements(workload, replica)])) is case


def test_a_replica_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="no replica 3; this workload has 3"):
        Workload().replica(3)
