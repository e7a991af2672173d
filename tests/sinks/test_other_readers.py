"""An output read by pandas, Polars and DuckDB: each published row once, while a run writes."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.model import FOREVER, Adjust, Event, History, Insert, Stable
from anabranch.model.element import Element
from anabranch.model.properties import MergeCase
from anabranch.model.time import Time
from anabranch.sinks.folder import FolderSink, stage
from anabranch.sinks.published import committed_files, tail_of
from anabranch.testing.strategies import histories, presentations

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "running.md"
TRIGGERS = 40
ROWS = 5
COLUMNS = 'kind text, start bigint, "end" bigint, old_end bigint, name text, seq bigint'
Row = tuple[str, int | None, int | None, int | None, Any, int]

READERS: dict[str, Callable[[Path], list[int]]] = {
    "pandas": lambda folder: list(pd.read_parquet(folder)["seq"]),
    "polars": lambda folder: pl.read_parquet(folder / "*.parquet")["seq"].to_list(),
    "polars, the folder": lambda folder: pl.read_parquet(folder)["seq"].to_list(),
    "duckdb": lambda folder: [seq for (seq,) in query(f"select seq from '{folder}/*.parquet'")],
}


def query(text: str) -> list[Any]:
    with duckdb.connect() as connection:
        return connection.execute(text).fetchall()


def put(sink: FolderSink, trigger: int) -> None:
    """A trigger of two lanes, up to Spark's commit."""
    first = trigger * ROWS
    parts = [range(first, first + 2), range(first + 2, first + ROWS)]
    tables = [pa.table({"kind": ["insert"] * len(part), "seq": list(part)}) for part in parts]
    sink.write(trigger, None, {stage(sink.folder, [t]): n for n, t in enumerate(tables)})
    sink.commit(trigger)


def run(sink: FolderSink) -> None:
    """Triggers as a run has them; every third is repeated before Spark commits it."""
    sink.open("run")
    for trigger in range(1, TRIGGERS):
        put(sink, trigger)
        if trigger % 3 == 0:
            put(sink, trigger)
        sink.committed(trigger)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("roll", [0.0, 0.02])
def test_a_reader_beside_a_run_gets_each_published_row_once(
    tmp_path: Path, reader: str, roll: float
) -> None:
    place, read = tmp_path / "out" / "elements", READERS[reader]
    sink = FolderSink(str(place), "abc", str(tmp_path / "ledger.json"), roll)
    put(sink, 0)
    sink.committed(0)
    sink.publish()
    seen: list[list[int]] = []
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(run, sink)
        while not writing.done():
            seen.append(read(place))
        writing.result()
    sink.publish()
    seen.append(read(place))
    for before, after in zip([[], *seen], seen, strict=False):
        assert len(set(after)) == len(after), "a row is read twice"
        assert set(before) <= set(after), "a row is gone"
        assert sorted(after) == list(range(len(after))), (
            "a later trigger is there, not this one"
        )
    assert len(seen) > 2
    assert len(seen[-1]) == TRIGGERS * ROWS


@pytest.mark.parametrize("reader", READERS)
def test_what_waits_in_the_tail_is_not_read(tmp_path: Path, reader: str) -> None:
    place, read = tmp_path / "out" / "elements", READERS[reader]
    put(FolderSink(str(place), "abc"), 0)
    FolderSink(str(place), "abc").committed(0)
    slow = FolderSink(str(place), "abc", roll=3600)
    put(slow, 1)
    slow.committed(1)  # waits for its roll
    put(slow, 2)  # waits for Spark's commit
    assert {one.name[:9] for one in tail_of(place).iterdir()} >= {"committed", "trigger-0"}
    assert sorted(read(place)) == list(range(ROWS))
    assert len(committed_files(place)) == 1 + 2
    slow.publish()
    assert sorted(read(place)) == list(range(2 * ROWS))


def test_files_from_before_and_after_a_column_was_added(tmp_path: Path) -> None:
    """Read by the names of columns, as the guide has it."""
    place = tmp_path / "elements"
    sink = FolderSink(str(place), "abc")
    put(sink, 0)
    sink.committed(0)
    wider = pa.table({"kind": ["insert"], "seq": [ROWS], "site": ["A"]})
    sink.write(1, None, {stage(sink.folder, [wider]): 0})
    sink.commit(1)
    sink.committed(1)
    expected = [(seq, None) for seq in range(ROWS)] + [(ROWS, "A")]
    files = f"read_parquet('{place}/*.parquet', union_by_name=true)"
    assert query(f"select seq, site from {files} order by seq") == expected
    frames = [pl.read_parquet(file) for file in sorted(place.iterdir())]
    made = pl.concat(frames, how="diagonal").sort("seq")
    assert made.select("seq", "site").rows() == expected


def view() -> str:
    """The view of the guide, over a table `elements`."""
    return GUIDE.read_text().partition("```sql\n")[2].partition("```")[0]


def row_of(element: Element, seq: int) -> Row:
    match element:
        case Insert(payload, start, end):
            return ("insert", start, finite(end), None, payload, seq)
        case Adjust(payload, start, old_end, end):
            return ("adjust", start, finite(end), finite(old_end), payload, seq)
        case Stable(time):
            return ("stable", finite(time), None, None, None, seq)


def finite(time: Time) -> int | None:
    return None if time == FOREVER else int(time)


@given(history=histories(case=MergeCase.R4), data=st.data())
def test_the_view_in_sql_has_the_history_of_the_elements(
    history: History, data: st.DataObject
) -> None:
    """By DuckDB; with equal events, removals and ends that come back."""
    stream = data.draw(presentations(history, case=MergeCase.R4))
    with duckdb.connect() as connection:
        connection.execute(f"create table elements ({COLUMNS})")
        rows = [row_of(element, seq) for seq, element in enumerate(stream)]
        if rows:
            connection.executemany("insert into elements values (?, ?, ?, ?, ?, ?)", rows)
        connection.execute(view())
        found = connection.execute('select start, "end", name, events from current')
        events = [
            Event(name, start, FOREVER if end is None else end)
            for start, end, name, count in found.fetchall()
            for _ in range(count)
        ]
    assert History.from_events(events) == History.of(stream)
