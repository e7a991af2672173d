"""The columnar replay races the model's, which is the judge."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, INSERT, NEVER_UNITS, STABLE
from anabranch.batch.history import (
    NO_IDENTITY,
    REASONS,
    Events,
    Replayed,
    collect,
    difference,
    replay,
)
from anabranch.model import history as model
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.time import FOREVER, NEVER

# Few payloads, starts and ends: identities repeat, and about half of the adjusts find an event.
times = st.integers(0, 6)
ends = st.one_of(times, st.just(FOREVER))
payloads = st.sampled_from("ab")
elements = st.one_of(
    st.builds(Insert, payloads, times, ends),
    st.builds(Adjust, payloads, times, ends, ends),
    st.builds(Stable, st.one_of(st.integers(0, 3), ends)),
)
streams = st.lists(elements, max_size=40)


def units(time: float) -> int:
    return {FOREVER: FOREVER_UNITS, NEVER: NEVER_UNITS}.get(time) or int(time)


def columns(stream: list[Element], known: dict[tuple[float, object], int]) -> Replayed:
    rows = []
    for element in stream:
        if isinstance(element, Stable):
            rows.append((NO_IDENTITY, STABLE, element.time, 0, 0))
            continue
        identity = known.setdefault((element.start, element.payload), len(known))
        if isinstance(element, Insert):
            rows.append((identity, INSERT, element.start, element.end, 0))
        else:
            rows.append((identity, ADJUST, element.start, element.end, element.old_end))
    cells = [[units(cell) for cell in row] for row in rows]
    table = np.array(cells, dtype=np.int64).reshape(-1, 5)
    ids, kind, start, end, old_end = table.T
    return replay(ids, kind.astype(np.int8), start, end, old_end)


def as_model(events: Events, known: dict[tuple[float, object], int]) -> model.History:
    events.check()
    identities = list(known)
    rows = zip(events.id.tolist(), events.end.tolist(), events.count.tolist(), strict=True)
    return model.History.from_events(
        Event(identities[i][1], identities[i][0], FOREVER if end == FOREVER_UNITS else end)
        for i, end, count in rows
        for _ in range(count)
    )


@given(streams)
@settings(max_examples=400)
def test_replay_agrees_with_the_model(stream):
    known: dict[tuple[float, object], int] = {}
    ours, judge = columns(stream, known), model.replay(stream)
    assert as_model(ours.events, known) == judge.history
    assert ours.frontier == units(judge.frontier)
    found = [
        (position, REASONS[code])
        for position, code in zip(ours.positions.tolist(), ours.reasons.tolist(), strict=True)
    ]
    assert found == [(v.position, v.reason) for v in judge.violations]
    data = [e for e in stream if not isinstance(e, Stable)]
    assert ours.absorbed == sum(e.changes_nothing and e.end >= e.start for e in data)


@given(streams, streams)
def test_difference_agrees_with_the_model(left, right):
    known: dict[tuple[float, object], int] = {}
    a, b = columns(left, known).events, columns(right, known).events
    found = difference(a, b)
    more = np.maximum(found.count_a - found.count_b, 0)
    less = np.maximum(found.count_b - found.count_a, 0)
    judge_a, judge_b = model.History.of(left), model.History.of(right)
    only_a = Events(found.id[more > 0], found.end[more > 0], more[more > 0])
    only_b = Events(found.id[less > 0], found.end[less > 0], less[less > 0])
    assert as_model(only_a, known) == judge_a.minus(judge_b)
    assert as_model(only_b, known) == judge_b.minus(judge_a)
    assert (len(found) == 0) == (judge_a == judge_b)


@given(streams, times)
def test_below_keeps_what_the_frontier_has_fixed(stream, frontier):
    known: dict[tuple[float, object], int] = {}
    events = columns(stream, known).events
    start = np.array([int(s) for s, _ in known], dtype=np.int64)
    expected = model.History.from_events(
        Event(e.payload, e.start, min(e.end, frontier))
        for e in model.History.of(stream).events()
        if e.start < frontier
    )
    assert as_model(events.below(frontier, start), known) == expected


@given(streams, ends)
def test_open_events_are_those_not_frozen(stream, frontier):
    events = columns(stream, {}).events
    judged = model.History.of(stream).events()
    expected = 0 if frontier == FOREVER else sum(e.end >= frontier for e in judged)
    assert events.open_at(units(frontier)) == expected


def test_an_adjust_that_comes_before_its_event_breaks_only_its_own_identity():
    stream = [
        Adjust("late", 1, 5, 4),
        Insert("late", 1, 5),
        Insert("fine", 1, 5),
        Adjust("fine", 1, 5, 4),
    ]
    known: dict[tuple[float, object], int] = {}
    ours = columns(stream, known)
    assert ours.positions.tolist() == [0]
    assert as_model(ours.events, known).events() == [Event("fine", 1, 4), Event("late", 1, 5)]


def test_an_empty_stream_has_promised_nothing():
    ours = columns([], {})
    assert (ours.frontier, len(ours.events), ours.positions.tolist()) == (NEVER_UNITS, 0, [])


def test_counts_that_come_to_nothing_are_left_out():
    events = collect(np.array([1, 0, 1]), np.array([5, 4, 5]), np.array([2, 1, -2]))
    events.check()
    assert (events.id.tolist(), events.end.tolist(), events.count.tolist()) == ([0], [4], [1])


def test_an_identity_in_doubt_is_replayed_with_all_its_adjusts():
    stream = [
        Adjust("a", 1, 8, 9),  # names nothing, so the identity is replayed one by one
        Insert("a", 1, 5),
        Insert("a", 1, 6),
        Adjust("a", 1, 5, 7),
        Adjust("a", 1, 6, 1),
    ]
    known: dict[tuple[float, object], int] = {}
    ours = columns(stream, known)
    assert ours.positions.tolist() == [0]
    assert as_model(ours.events, known).events() == [Event("a", 1, 7)]
