"""A window query as an operator: any cut and any restart show what one machine per group shows.

`windows.Machine` is the judge; it is itself held to `windows.predict`.
"""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from anabranch.batch.batch import FOREVER_UNITS, Batch
from anabranch.errors import StateError, ViolationError
from anabranch.operators import windows
from anabranch.operators.contract import Arrival, Inputs, Route
from anabranch.operators.route import Routing
from anabranch.operators.windows import OUT, WindowsOperator, WindowsState
from anabranch.windows.machine import Arrival as Tuple
from anabranch.windows.machine import Machine
from anabranch.windows.profiles import engine
from anabranch.windows.trace import Query

QUERY = Query(4, 2, "sum")
COLUMNS = pa.schema(
    [
        ("key_0", pa.string()), ("value", pa.int64()), ("absent", pa.bool_()),
        ("order", pa.int64()), ("batch", pa.int64()), ("flaw", pa.string()),
    ]
)  # fmt: skip
TYPES = {"reported": pa.bool_(), "late": pa.bool_(), "reason": pa.string()}
MADE = pa.schema([("key_0", pa.string()), *((n, TYPES.get(n, pa.int64())) for n in OUT)])
LIKE = st.sampled_from(["streambase", "anabranch"])

Rows = list[tuple[str, int, int]]


def operator(like: str = "anabranch", **options: Any) -> WindowsOperator:
    given = {"keys": 1, "ordered": False, "late": "keep"} | options
    return WindowsOperator(engine(like), QUERY, COLUMNS, MADE, **given)


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
    payload = pa.table(columns, schema=COLUMNS)
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
    assert set(first.written) == {"head", "groups/0", "groups/1", "groups/2"}
    step(state, [("c", 2, 1)])
    assert set(state.parts(since=first.mark).written) == {"head", "groups/1"}


def test_groups_are_routed_by_their_columns() -> None:
    made = operator()
    assert (made.route, made.route_columns) == (Route.KEY, ("key_0",))
    lanes = Routing.of(made).lanes_of(batch([("a", 1, 1), ("b", 2, 1), ("a", 9, 7)], made), 8)
    assert lanes[0] == lanes[2]


def test_another_version_and_late_rows_are_refused_by_name() -> None:
    state = operator().empty()
    step(state, [("a", 9, 1)])
    parts = dict(state.parts().written)
    with pytest.raises(StateError, match="has version 7, this program reads version 1"):
        operator().from_parts(parts | {"head": b'{"version": 7}'})
    strict = operator("streambase", late="raise").empty()
    step(strict, [("a", 9, 1)])
    with pytest.raises(ViolationError, match=r"a row of time 1.* of group \('a',\)"):
        step(strict, [("a", 1, 1)])
