"""A window query as an operator: any cut and any restart show what one machine per group shows.

`windows.Machine` is the judge; it is itself held to `windows.predict`.
"""

from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from contract_entries import GROUPED, MADE
from hypothesis import given

from anabranch.batch.batch import FOREVER_UNITS, Batch
from anabranch.errors import StateError, ViolationError
from anabranch.operators import windows
from anabranch.operators.contract import Arrival, Inputs, Route
from anabranch.operators.route import Routing
from anabranch.operators.state.codec import to_table, write_tables
from anabranch.operators.windows import WindowsOperator, WindowsState
from anabranch.windows.machine.machine import Arrival as Tuple
from anabranch.windows.machine.machine import Machine
from anabranch.windows.profiles.known import engine
from anabranch.windows.trace import Query

QUERY = Query(4, 2, "sum")
LIKE = st.sampled_from(["streambase", "anabranch"])

Rows = list[tuple[Any, int, int]]
EARLY: Rows = [("a", 1, 1), ("a", 2, 1)]


def operator(like: str = "anabranch", **options: Any) -> WindowsOperator:
    given = {"keys": 1, "ordered": False, "late": "keep"} | options
    return WindowsOperator(engine(like), QUERY, GROUPED, MADE, **given)


def batch(rows: Rows, made: WindowsOperator) -> Batch:
    """Rows of (group, time, value) as elements."""
    count, none = len(rows), np.zeros(len(rows), np.int64)
    columns = {
        "key_0": [key for key, _, _ in rows],
        "value": [value for _, _, value in rows],
        "absent": [False] * count,
        "order": list(range(count)),
        "batch": [0] * count,
        "flaw": [""] * count,
    }
    times = np.array([time for _, time, _ in rows], np.int64)
    payload = pa.table(columns, schema=made.columns)
    end = np.full(count, FOREVER_UNITS)
    return Batch(made.schema, np.zeros(count, np.int8), times, end, none, payload)


def step(state: WindowsState, rows: Rows) -> list[dict[str, Any]]:
    result = state.step(Inputs((Arrival("rows", batch(rows, state.operator)),)))
    assert result.rows is not None
    assert len(result.buckets[0]) == len(rows)
    state.check()
    return list(result.rows.to_pylist())


def judged(like: str, cuts: list[Rows]) -> dict[str, list[tuple[Any, ...]]]:
    """What a machine per group shows when each cut is one batch of it."""
    machines: dict[str, Machine] = {}
    shown: dict[str, list[tuple[Any, ...]]] = {}
    for rows in cuts:
        for key in dict.fromkeys(key for key, _, _ in rows):
            machine = machines.setdefault(key, Machine(engine(like), QUERY))
            mine = sorted((r for r in rows if r[0] == key), key=lambda row: row[1])
            number = (machine.last_batch or 0) + 1
            tuples = []
            for at, (_, time, value) in enumerate(mine):
                number += like == "streambase" and at > 0 and time != mine[at - 1][1]
                tuples.append(Tuple(time, value, batch=number))
            for one in machine.feed(tuples).shown:
                shown.setdefault(key, []).append((one.start, one.end, one.value, one.count))
    return shown


ROWS = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(-5, 5)), max_size=12
)


@given(like=LIKE, cuts=st.lists(ROWS, max_size=6), restarts=st.sets(st.integers(0, 5)))
def test_any_cut_and_any_restart_show_what_a_machine_shows(
    like: str, cuts: list[Rows], restarts: set[int]
) -> None:
    state, saved, mark = operator(like).empty(), dict[str, bytes](), None
    made: list[dict[str, Any]] = []
    for at, rows in enumerate(cuts):
        made += step(state, rows)
        parts = state.parts(since=mark)
        saved, mark = saved | parts.written, parts.mark
        if at in restarts:
            state = operator(like).from_parts(saved)
    shown: dict[str, list[tuple[Any, ...]]] = {}
    for row in made:
        if row["reported"]:
            facts = (row["start"], row["end"], row["value"], row["count"])
            shown.setdefault(row["key_0"], []).append(facts)
    assert shown == judged(like, cuts)
    for key in shown:
        seq = [row["seq"] for row in made if row["key_0"] == key]
        assert seq == list(range(len(seq)))


def test_a_save_writes_only_blocks_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "_BLOCK", 2)
    state = operator().empty()
    step(state, [(key, 1, 1) for key in "abcde"])
    first = state.parts()
    assert set(first.written) == {"control", "groups/0", "groups/1", "groups/2"}
    step(state, [("c", 2, 1)])
    assert set(state.parts(since=first.mark).written) == {"control", "groups/1"}


def test_groups_are_routed_by_their_columns() -> None:
    made = operator()
    assert (made.route, made.route_columns) == (Route.KEY, ("key_0",))
    lanes = Routing.of(made).lanes_of(batch([("a", 1, 1), ("b", 2, 1), ("a", 9, 7)], made), 8)
    assert lanes[0] == lanes[2]


def test_another_version_and_late_rows_are_refused_by_name() -> None:
    with pytest.raises(StateError, match=r"is 'unknown' version unknown, this .* version 1"):
        operator().from_parts({"control": write_tables(to_table({}))})
    strict = operator("streambase", late="raise").empty()
    step(strict, [("a", 9, 1)])
    with pytest.raises(ViolationError, match=r"a row of time 1.* of group \('a',\)"):
        step(strict, [("a", 1, 1)])


def test_the_parcels_of_a_trigger_are_one_batch_of_their_group() -> None:
    """Two arrivals were two batches: a window was shown twice, or a row came too late."""
    made = operator("streambase")
    state, whole = made.empty(), made.empty()
    parcels = (Arrival("rows", batch([("a", 9, 1)], made)), Arrival("rows", batch(EARLY, made)))
    result = state.step(Inputs(parcels))
    assert result.rows is not None
    assert result.rows.to_pylist() == step(whole, [("a", 9, 1), *EARLY])
    assert all(row["reported"] for row in result.rows.to_pylist())


def test_rows_whose_group_is_no_number_are_one_group() -> None:
    """Each was a group of its own: two floats that are NaN are not equal."""
    columns = GROUPED.set(0, pa.field("key_0", pa.float64()))
    made = replace(operator(), columns=columns, made=MADE.set(0, columns.field(0)))
    nan = float("nan")
    state = made.empty()
    for _ in range(2):
        step(state, [(nan, 1, 1), (float("nan"), 2, 1)])
        state = made.from_parts(state.parts().written)
    assert state.live == 1
