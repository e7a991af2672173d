"""The verdict: the model's on random streams, and each kind of corruption found and named."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.batch.codec import encode, from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.checker.compare import DIFFERENT_END, MORE_IN_A, ONLY_IN_A, ONLY_IN_B, check
from anabranch.model import history as model
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.testing.strategies import histories, replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.string()}))
STREAM = [
    Insert("x", 1, 9),
    Insert("y", 2, FOREVER),
    Adjust("x", 1, 9, 7),
    Stable(3),
    Insert("z", 4, 6),
    Adjust("y", 2, FOREVER, 8),
    Insert("w", 5, 7),
    Adjust("w", 5, 7, 5),
    Stable(FOREVER),
]


def table(elements: Sequence[Element], schema: ElementSchema = SCHEMA) -> pa.Table:
    return encode(from_elements(elements, schema))


def write(folder: Path, rows: pa.Table | Sequence[Element], name: str = "part-0") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    found = rows if isinstance(rows, pa.Table) else table(rows)
    pq.write_table(found, folder / f"{name}.parquet")
    return folder


def write_truth(folder: Path, history: model.History) -> Path:
    events = history.events()
    ends = [None if event.end == FOREVER else event.end for event in events]
    columns = {
        "start": pa.array([event.start for event in events], pa.int64()),
        "end": pa.array(ends, pa.int64()),
        "a": pa.array([event.payload for event in events], pa.string()),
    }
    return write(folder, pa.table(columns))


def fixed(history: model.History, frontier: float) -> model.History:
    """What a frontier has fixed: the meaning of --until-frontier."""
    return model.History.from_events(
        event._replace(end=min(event.end, frontier))
        for event in history.events()
        if event.start < frontier
    )


TIMES = st.integers(0, 5)
BROKEN = st.lists(
    st.one_of(
        st.builds(Insert, st.sampled_from("ab"), TIMES, st.integers(5, 9)),
        st.builds(Adjust, st.sampled_from("ab"), TIMES, st.integers(5, 9), st.integers(5, 9)),
        st.builds(Stable, TIMES),
    ),
    max_size=12,
)
PAIRS = st.one_of(
    replicas(case=MergeCase.R4, min_inputs=2, max_inputs=2, gaps=True, truncated=True),
    replicas(case=MergeCase.R3, min_inputs=2, max_inputs=2),
    st.tuples(BROKEN, BROKEN).map(list),
)


@given(PAIRS, st.booleans())
@settings(max_examples=40)
def test_the_verdict_is_the_models(pair, below):
    left, right = map(model.replay, pair)
    with tempfile.TemporaryDirectory() as name:
        folders = [
            write(Path(name) / side, rows) for side, rows in zip("ab", pair, strict=True)
        ]
        verdict = check(*folders, until_frontier=below)
    histories = (left.history, right.history)
    if below:
        frontier = min(left.frontier, right.frontier)
        histories = tuple(fixed(one, frontier) for one in histories)
    found = verdict.comparisons[0]
    assert found.equal == (histories[0] == histories[1])
    more = [len(histories[0].minus(histories[1])), len(histories[1].minus(histories[0]))]
    assert [
        found.only_in_a + found.different_end,
        found.only_in_b + found.different_end,
    ] == more
    for side, judged in ((verdict.a, left), (verdict.b, right)):
        assert side.streams[0].violations == len(judged.violations)
        assert side.streams[0].events == len(judged.history)


@given(histories(case=MergeCase.R4))
@settings(max_examples=20)
def test_a_reference_is_its_own_history(history):
    with tempfile.TemporaryDirectory() as name:
        truth = write_truth(Path(name) / "truth", history)
        verdict = check(truth, truth)
    assert verdict.ok
    assert verdict.a.streams[0].events == len(history)


@pytest.fixture
def truth(tmp_path):
    return write_truth(tmp_path / "truth", model.History.of(STREAM))


def test_a_good_stream_is_reported_in_numbers(tmp_path, truth):
    verdict = check(write(tmp_path / "in", STREAM), truth)
    assert verdict.ok
    (stream,) = verdict.a.streams
    assert (stream.elements, stream.inserts, stream.adjusts, stream.stables) == (9, 4, 3, 2)
    assert (stream.events, stream.open_events, stream.frontier) == (3, 0, "forever")
    assert verdict.b.layout == "reference"


def change_end(rows: pa.Table) -> pa.Table:
    ends = rows.column("end").to_pylist()
    return rows.set_column(2, "end", pa.array([*ends[:4], 5, *ends[5:]], pa.int64()))


def change_payload(rows: pa.Table) -> pa.Table:
    payloads = ["ž" if text == "z" else text for text in rows.column("a").to_pylist()]
    return rows.set_column(4, "a", pa.array(payloads, pa.string()))


def drop_row(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 4), rows.slice(5)])


def double_row(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(0, 5), rows.slice(4)])


def move_behind_stable(rows: pa.Table) -> pa.Table:
    return rows.take(pa.array([1, 2, 3, 0, 4, 5, 6, 7, 8]))


CORRUPTED: list[tuple[Callable[[pa.Table], pa.Table], list[str]]] = [
    (change_end, [DIFFERENT_END]),
    (change_payload, [ONLY_IN_B, ONLY_IN_A]),
    (drop_row, [ONLY_IN_B]),
    (double_row, [MORE_IN_A]),
    (move_behind_stable, [ONLY_IN_B]),
]


@pytest.mark.parametrize(
    ("corrupt", "whats"), CORRUPTED, ids=lambda x: getattr(x, "__name__", "")
)
def test_a_corrupted_copy_is_found(tmp_path, truth, corrupt, whats):
    verdict = check(write(tmp_path / "in", corrupt(table(STREAM))), truth)
    assert not verdict.ok
    assert [line.what for line in verdict.comparisons[0].first_lines] == whats


def test_an_element_behind_a_stable_is_shown_where_it_stands(tmp_path):
    verdict = check(write(tmp_path / "in", move_behind_stable(table(STREAM))))
    (stream,) = verdict.a.streams
    adjust, insert = stream.first_violations
    assert (stream.violations, insert.row, insert.kind, insert.payload) == (
        2,
        4,
        "insert",
        {"a": "x"},
    )
    assert insert.reason == model.Reason.BEHIND_STABLE.value
    assert (adjust.reason, adjust.old_end) == (model.Reason.NO_SUCH_EVENT.value, 9)
    assert insert.file.endswith("in/part-0.parquet")


def test_a_changed_end_reads_as_one_line_and_the_rest_is_counted(tmp_path):
    a = parse("insert p 1..5; insert p 1..5; insert q 2..3; insert r 3..4; insert r 3..4")
    b = parse("insert p 1..5; insert p 1..6; insert q 2..9; insert r 3..4")
    verdict = check(write(tmp_path / "a", a), write(tmp_path / "b", b), limit=2)
    (found,) = verdict.comparisons
    assert (found.only_in_a, found.only_in_b, found.different_end) == (1, 0, 2)
    lines = [(n.what, n.payload["a"], n.start, n.end_a, n.end_b) for n in found.first_lines]
    assert lines == [(DIFFERENT_END, "p", 1, 5, 6), (DIFFERENT_END, "q", 2, 3, 9)]


def test_below_the_frontier_open_ends_are_not_distinguished(tmp_path):
    a = parse("insert p 1..9; insert q 2..3; insert s 7..8; stable 5")
    b = parse("insert p 1..7; insert q 2..4; stable 6")
    folders = write(tmp_path / "a", a), write(tmp_path / "b", b)
    (found,) = check(*folders, until_frontier=True).comparisons
    assert (found.below, found.different_end, found.only_in_a) == (5, 1, 0)
    (line,) = found.first_lines
    assert (line.payload, line.end_a, line.end_b) == ({"a": "q"}, 3, 4)
    assert check(*folders).comparisons[0].only_in_a == 1


def test_an_open_end_is_shown_as_open(tmp_path):
    folders = [
        write(tmp_path / text[-1], parse(f"insert p 1..{text}; stable 5"))
        for text in ("4", "9")
    ]
    (line,) = check(*folders, until_frontier=True).comparisons[0].first_lines
    assert (line.end_a, line.end_b) == (4, ">= 5")
