"""The machine shows what predict shows, however the stream is cut, and through any saving."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import InputError, StateError, UsageError
from anabranch.windows import (
    AGGREGATES,
    ENGINES,
    Arrival,
    Engine,
    Progress,
    Report,
    Stable,
    Start,
    engine,
    predict,
)
from anabranch.windows.machine.machine import Fed, Machine, Reported
from anabranch.windows.trace import Query

STARTS = st.one_of(
    st.builds(Start, st.just("first"), st.sampled_from(["forward", "backward"])),
    st.builds(
        Start,
        st.just("grid"),
        st.sampled_from(["forward", "backward"]),
        offset=st.integers(-3, 3),
        lead=st.booleans(),
    ),
    st.builds(Start, st.just("fixed"), offset=st.integers(-4, 12)),
)
REPORTS = st.builds(
    Report, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([None, 1, 2, 3])
)
ONE_AT_A_TIME = st.builds(
    Engine, st.just("any"), STARTS, REPORTS, st.sampled_from(["tuple", "time", "batch"])
)
PROGRESSES = st.builds(
    Progress,
    delay=st.sampled_from([None, 0, 1, 4]),
    known=st.sampled_from(["before", "after", "next"]),
    lateness=st.sampled_from([None, 0, 2, 5]),
    late_at_limit=st.booleans(),
    idle_batches=st.booleans(),
    keeps=st.sampled_from(["accumulating", "discarding"]),
    latest_first=st.booleans(),
)


@st.composite
def every_window(draw: st.DrawFn) -> Engine:
    progress = draw(PROGRESSES)
    ticks = ["batch"] if progress.known == "next" else ["tuple", "batch"]
    report = Report(draw(st.booleans()), draw(st.booleans()), non_empty=True)
    start = draw(
        st.one_of(
            st.builds(Start, st.just("grid"), earliest=st.sampled_from([None, 0])),
            st.builds(Start, st.just("fixed"), offset=st.integers(-4, 6)),
        )
    )
    return Engine("any", start, report, draw(st.sampled_from(ticks)), "every", progress)


VALUES = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.1, 0.2, -0.3, 1e16, 1.0, -1e16]),
)


@st.composite
def in_order(draw: st.DrawFn) -> list[Arrival | Stable]:
    """Tuples and stables in order; each batch has one time."""
    steps = draw(st.lists(st.integers(0, 9), min_size=1, max_size=14))
    time, batch = draw(st.integers(-5, 10)), 0
    items: list[Arrival | Stable] = []
    for step in steps:
        time += step
        if draw(st.integers(0, 6)) == 0:
            items.append(Stable(time))
            batch += 1
        else:
            batch += step > 0 or draw(st.booleans())
            items.append(Arrival(time, draw(VALUES), batch=batch))
    return items


@st.composite
def in_any_order(draw: st.DrawFn) -> list[Arrival | Stable]:
    times = draw(st.lists(st.integers(-4, 25), min_size=1, max_size=14))
    batch = 0
    items: list[Arrival | Stable] = []
    for time in times:
        if draw(st.integers(0, 6)) == 0:
            items.append(Stable(time))
        else:
            batch += draw(st.booleans())
            items.append(Arrival(time, draw(VALUES), batch=batch))
    return items


def cut(data: st.DataObject, items: Sequence[object]) -> list[tuple[int, int]]:
    places = data.draw(st.sets(st.integers(0, len(items)), max_size=5))
    return list(pairwise(sorted({0, len(items), *places})))


def fed(
    data: st.DataObject, system: Engine, query: Query, items: list[Arrival | Stable]
) -> Fed:
    """All that the machine gives, fed in some cuts, saved and loaded at some of them."""
    machine = Machine(system, query)
    parts: list[Fed] = []
    for start, stop in cut(data, items):
        parts.append(machine.feed(items[start:stop], more=True))
        if data.draw(st.booleans()):
            machine = Machine.from_bytes(machine.to_bytes(), system, query)
    parts.append(machine.feed([]))
    return Fed(
        tuple(one for part in parts for one in part.shown),
        tuple(one for part in parts for one in part.late),
    )


def predicted(system: Engine, query: Query, items: list[Arrival | Stable]) -> list[Reported]:
    results = predict(system, query.size, query.slide, items, query.agg).results
    return [
        Reported(
            one.value, one.start, one.end, one.instant, one.step, len(one.content), one.late
        )
        for one in results
    ]


QUERIES = st.builds(Query, st.integers(1, 7), st.integers(1, 9), st.sampled_from([*AGGREGATES]))


@given(ONE_AT_A_TIME, QUERIES, in_order(), st.data())
def test_one_window_at_a_time_in_any_cut_is_predict(
    system: Engine, query: Query, items: list[Arrival | Stable], data: st.DataObject
) -> None:
    assert list(fed(data, system, query, items).shown) == predicted(system, query, items)


@given(every_window(), QUERIES, in_any_order(), st.data())
def test_every_window_in_any_cut_is_predict(
    system: Engine, query: Query, items: list[Arrival | Stable], data: st.DataObject
) -> None:
    assert list(fed(data, system, query, items).shown) == predicted(system, query, items)


@pytest.mark.parametrize("name", ENGINES)
@given(QUERIES, in_order(), st.data())
def test_known_engines_in_any_cut_are_predict(
    name: str, query: Query, items: list[Arrival | Stable], data: st.DataObject
) -> None:
    system = engine(name)
    if query.slide > query.size and not system.gaps:
        query = replace(query, slide=query.size)
    assert list(fed(data, system, query, items).shown) == predicted(system, query, items)


@given(ONE_AT_A_TIME, QUERIES, in_any_order(), st.data())
def test_what_comes_out_of_order_is_kept_and_the_rest_is_as_if_it_had_not_come(
    system: Engine, query: Query, items: list[Arrival | Stable], data: st.DataObject
) -> None:
    if system.tick == "batch":
        items = [
            replace(one, batch=number) if isinstance(one, Arrival) else one
            for number, one in enumerate(items)
        ]
    greatest, taken, late = None, [], []
    for one in items:
        if greatest is None or one.time >= greatest:
            greatest = one.time
            taken.append(one)
        elif isinstance(one, Arrival):
            late.append((one.time, one.value))
    given_back = fed(data, system, query, items)
    assert list(given_back.shown) == predicted(system, query, taken)
    behind = [one for one in given_back.late if one.reason == "earlier than what was there"]
    assert [(one.time, one.value) for one in behind] == late


@given(every_window(), QUERIES, in_any_order(), st.data())
def test_each_tuple_is_in_each_of_its_windows_or_is_late(
    system: Engine, query: Query, items: list[Arrival | Stable], data: st.DataObject
) -> None:
    """With every window shown at the end, each tuple is shown or listed as late."""
    rows = [one for one in items if isinstance(one, Arrival)]
    if not rows:
        return
    system = replace(
        system,
        report=Report(window_close=True, non_empty=True),
        progress=replace(system.progress or Progress(), keeps="discarding"),
    )
    given_back = fed(data, system, query, [*items, Stable(1000)])
    t0 = system.start.t0(rows[0].time, query.size, query.slide)
    windows = [len(system.start.starts(row.time, query.size, query.slide, t0)) for row in rows]
    late = given_back.late
    assert sum(one.count for one in given_back.shown) + sum(
        one.start is not None for one in late
    ) == sum(windows)
    assert sum(one.start is None for one in late) == windows.count(0)


def test_the_state_stays_as_small_as_what_is_open() -> None:
    machine = Machine(engine("streambase"), Query(10, 1, "avg"))
    sizes = []
    for time in range(2000):
        machine.feed([Arrival(time, 0.5)])
        sizes.append(len(machine.to_bytes()))
    assert max(sizes) < 2 * sizes[20]


@pytest.mark.parametrize("name", ["streambase", "coral8", "flink"])
def test_work_follows_what_comes_not_the_size_of_the_window(name: str) -> None:
    """A value that counts how often it is looked at: no result starts over."""

    class Counted(int):
        looks = 0

        def __radd__(self, other: int) -> int:
            Counted.looks += 1
            return int(self) + other

        def __rmul__(self, other: int) -> int:
            Counted.looks += 1
            return int(self) * other

    machine = Machine(engine(name), Query(200, 50, "sum"))
    for time in range(1000):
        machine.feed([Arrival(time, Counted(1))])
    assert Counted.looks <= 1000 * 5


def test_a_state_of_another_query_or_version_is_refused() -> None:
    kept = Machine(engine("flink"), Query(5, 1)).to_bytes()
    with pytest.raises(StateError, match="count over 5 by 1"):
        Machine.from_bytes(kept, engine("flink"), Query(5, 2))
    with pytest.raises(StateError, match="new checkpoint"):
        Machine.from_bytes(kept, engine("flink", lateness=3), Query(5, 1))
    with pytest.raises(StateError, match="version 99"):
        Machine.from_bytes(
            kept.replace(b'"version":1', b'"version":99'), engine("flink"), Query(5, 1)
        )


def test_a_committed_state_of_version_1_is_still_read() -> None:
    kept = (
        b'{"version":1,"of":"sum over 5 by 5, Start(anchor=\'grid\', direction=\'forward\', '
        b"offset=0, lead=True, earliest=None), window close & non-empty & every 1, tuple, "
        b'None","steps":2,"batches":[2,null],"batch_time":3,"reached":3,"t0":-1,"last":[3,2],'
        b'"gone":0,"times":[1,3],"values":[10,20],"reported":[0,0]}'
    )
    system, query = engine("streambase"), Query(5, 5, "sum")
    machine = Machine(system, query)
    machine.feed([Arrival(1, 10), Arrival(3, 20)])
    assert machine.to_bytes() == kept
    machine = Machine.from_bytes(kept, system, query)
    assert machine.feed([Arrival(6, 40)]).shown == (Reported(30, 0, 5, 4, 3, 2),)


def test_bad_input_is_named() -> None:
    with pytest.raises(UsageError, match="windows of time"):
        Machine(engine("streambase"), Query(5, 5, by="rows"))
    with pytest.raises(UsageError, match="no slide above the size"):
        Machine(engine("spark-append"), Query(5, 6))
    machine = Machine(engine("coral8"), Query(5, 5, "sum"))
    with pytest.raises(InputError, match="needs numbers"):
        machine.feed([Arrival(1, "a")])
    with pytest.raises(InputError, match="NaN"):
        machine.feed([Arrival(1, float("nan"))])
    with pytest.raises(InputError, match="split_batches"):
        machine.feed([Arrival(1, 1, batch=1), Arrival(2, 1, batch=1)])
    with pytest.raises(InputError, match="must not go back"):
        machine.feed([Arrival(3, 1, batch=0)])
