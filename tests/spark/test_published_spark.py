"""What other readers see of an output: committed rows, each once, and nothing that was lost."""

import shutil
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow.parquet as pq
import pytest
from test_dataframes_spark import PLAIN, TRUTH, history, stream_of

import anabranch as ab
from anabranch.errors import RunError, StateError
from anabranch.model import FOREVER, Event, History
from anabranch.sinks.published import pieces_in, tail_of
from anabranch.spark.write.read_output import current

pytestmark = pytest.mark.spark


def downstream(spark: Any, root: Path) -> None:
    """A streaming query of a user takes what is new in the output."""
    source = spark.readStream.schema(PLAIN).parquet(str(root / "out" / "elements"))
    query = (
        source.writeStream.format("parquet")
        .option("checkpointLocation", str(root / "seen-ck"))
        .trigger(availableNow=True)
        .start(str(root / "seen"))
    )
    query.awaitTermination()


def test_a_downstream_stream_reads_each_row_once_though_a_trigger_is_repeated(
    spark: Any, tmp_path: Path
) -> None:
    """The driver fails when the rows of a trigger are written and Spark has not committed."""
    merged, failed = stream_of(spark, tmp_path), tmp_path / "failed"

    def fail_once(df: Any, trigger: int) -> None:
        if trigger == 1 and not failed.exists():
            failed.touch()
            message = "the driver dies"
            raise RuntimeError(message)

    def start() -> None:
        sinks = {"elements": tmp_path / "out" / "elements", "late": fail_last(fail_once)}
        merged.start(tmp_path / "ck", once=True, **sinks).wait()

    with pytest.raises(RunError, match="in foreach batch sink"):
        start()
    elements = tmp_path / "out" / "elements"
    assert [piece.last for piece in pieces_in(elements)] == [0]
    downstream(spark, tmp_path)
    before = spark.read.parquet(str(tmp_path / "seen")).count()
    assert pl.read_parquet(elements / "*.parquet").height == before  # not what waits
    assert len(rows_in_duckdb(elements)) == before
    start()
    downstream(spark, tmp_path)
    seen = spark.read.parquet(str(tmp_path / "seen")).collect()
    assert len(seen) > before
    assert len({row.seq for row in seen}) == len(seen)
    assert history(seen) == TRUTH
    for read in (
        spark.read.parquet(str(elements)).toPandas(),
        ab.read_output(spark, tmp_path / "out").toPandas(),
        pd.read_parquet(elements),
        pq.read_table(elements).to_pandas(),
        pl.read_parquet(elements / "*.parquet"),
        rows_in_duckdb(elements),
    ):
        assert sorted(read["seq"]) == sorted(row.seq for row in seen)
    assert {file.suffix for file in elements.iterdir()} == {".parquet"}
    now = ab.read_output(spark, tmp_path / "out", what="current").collect()
    assert History.from_events(map(event, now)) == TRUTH
    assert current_in_duckdb(f"from '{elements}/*.parquet'") == TRUTH


def rows_in_duckdb(elements: Path) -> pd.DataFrame:
    with duckdb.connect() as connection:
        return connection.execute(f"from '{elements}/*.parquet'").df()


def view() -> str:
    """The view of current events as the guide has it."""
    guide = Path(__file__).parents[2] / "docs" / "guide" / "running.md"
    return guide.read_text().partition("```sql\n")[2].partition("```")[0]


def current_in_duckdb(elements: str) -> History:
    with duckdb.connect() as connection:
        connection.execute(f"create view elements as {elements}")
        connection.execute(view())
        rows = connection.execute('select name, start, "end", events from current').fetchall()
    return History.from_events(
        Event(name, start, FOREVER if end is None else end)
        for name, start, end, events in rows
        for _ in range(events)
    )


def fail_last(function: Any) -> Any:
    """A sink whose commit is the last of all: every folder has its rows by then."""

    class Last:
        folder = None

        def open(self, run: str) -> None:
            """Nothing to prepare."""

        def write(self, trigger: int, rows: Any, files: Any) -> None:
            """Nothing is written."""

        def commit(self, trigger: int) -> None:
            function(None, trigger)

        def committed(self, trigger: int) -> None:
            """Nothing is kept."""

    return Last()


def test_an_output_that_lost_rows_is_refused_by_name(spark: Any, tmp_path: Path) -> None:
    merged = stream_of(spark, tmp_path)

    def start(final: str = "final") -> Any:
        places = {"output": tmp_path / "out", "final": tmp_path / final}
        return merged.start(tmp_path / "ck", once=True, **places)

    start().wait()
    elements, final = tmp_path / "out" / "elements", tmp_path / "final"
    file = elements / pieces_in(elements)[0].name
    file.rename(tmp_path / "held")
    with pytest.raises(StateError, match=r"out/elements: files that .*triggers 0 to 0"):
        start()
    (tmp_path / "held").rename(file)
    with pytest.raises(StateError, match=r"other: files that .*are not there"):
        start("other")
    shutil.rmtree(final)
    with pytest.raises(StateError, match=r"final: files that .*are not there"):
        start()
    shutil.rmtree(tail_of(final))
    with pytest.raises(StateError, match=r"final: files that .*are not there"):
        start()
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(StateError, match=r"belongs to a run, but .*out does not"):
        start()


BAGS = [
    ("insert", 1, 5, None, "a"),
    ("insert", 1, 5, None, "a"),
    ("insert", 1, 9, None, "a"),
    ("adjust", 1, 7, 5, "a"),
    ("insert", 2, 6, None, "b"),
    ("adjust", 2, 2, 6, "b"),
    ("insert", 3, None, None, "c"),
    ("insert", 4, None, None, "d"),
    ("adjust", 4, 8, None, "d"),
    ("stable", 4, None, None, None),
]


def event(row: Any) -> Event:
    return Event(row.name, row.start, FOREVER if row.end is None else row.end)


def test_current_has_each_event_of_the_output_once(spark: Any, tmp_path: Path) -> None:
    """Equal events too (R4); in SQL as the guide has it, by Spark and by DuckDB."""
    elements = spark.createDataFrame([(*row, seq) for seq, row in enumerate(BAGS)], PLAIN)
    truth = History.from_events(
        [
            Event("a", 1, 5),
            Event("a", 1, 7),
            Event("a", 1, 9),
            Event("c", 3, FOREVER),
            Event("d", 4, 8),
        ]
    )
    made = current(elements)
    assert made.columns == ["start", "end", "name"]
    assert History.from_events(map(event, made.collect())) == truth
    twice = current(elements.where("kind = 'insert' and name = 'a'")).collect()
    assert [row.end for row in twice].count(5) == 2
    elements.createOrReplaceTempView("elements")
    in_spark = view().replace('"', "`")
    spark.sql(in_spark.replace("create view", "create or replace temporary view"))
    rows = spark.table("current").collect()
    assert History.from_events(event(row) for row in rows for _ in range(row.events)) == truth
    elements.write.parquet(str(tmp_path / "elements"))
    assert current_in_duckdb(f"from '{tmp_path}/elements/*.parquet'") == truth
