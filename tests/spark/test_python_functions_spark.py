"""Python functions in where and select: Spark calls them on rows of their stream only."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import BooleanType, LongType
from test_queries_spark import events_of

import anabranch as ab
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark

COLUMNS = "k string, s bigint, e bigint, v bigint"
ROWS = [("a", 1, 9, 2), ("b", 2, 8, 3), ("a", 4, 6, 4), ("a", 4, 12, 5)]


@f.udf(BooleanType())
def is_even(v):  # type: ignore[no-untyped-def]
    return v % 2 == 0  # a null raises TypeError


@f.udf(LongType())
def more(v):  # type: ignore[no-untyped-def]
    return v + 1


def made(left: Any, right: Any) -> Query:
    """Two streams that Spark changes at one boundary, of which one calls Python functions."""
    a = ab.events(left, start="s", end="e", name="left")
    b = ab.events(right, start="s", end="e", name="right")
    kept = a.where(is_even("v")).select("k", more("v").alias("odd"))
    both = kept.union(b.where("k <> 'x'").select("k", (f.col("v") + 1).alias("odd")))
    return both.group_by("k").aggregate(n=ab.count(), most=ab.max("odd"))


WANTED = [
    "end 4 k a most 3 n 1 start 1",
    "end 6 k a most 5 n 3 start 4",
    "end 9 k a most 3 n 1 start 6",
]


def shown(rows: list) -> list[str]:
    return [" ".join(f"{name} {value}" for name, value in one) for one in events_of(rows)]


def test_functions_that_fail_on_null_see_rows_of_their_stream_only(spark: SparkSession) -> None:
    """Neither parcels without rows, nor rows of the stream beside it."""
    batch = spark.createDataFrame(ROWS, COLUMNS).coalesce(1)
    query = made(batch, batch.where("v = 4"))
    assert [one.calls_python for one in query.planned.natives(None)[0].streams] == [True, False]
    assert shown(query.changes().collect()) == WANTED


@pytest.mark.deep
def test_also_in_lanes_and_triggers_without_rows_and_with_parcels_in_files(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    for at in (0, 2):
        some = spark.createDataFrame(ROWS[at : at + 2], COLUMNS)
        some.coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
        running = made(stream, stream.where("v = 4")).start(
            tmp_path / "ck", changes=tmp_path / "out", once=True
        )
        assert running.wait(120)
    assert shown(spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()) == WANTED


def test_expressions_without_python_pass_beside_one_another(spark: SparkSession) -> None:
    rows = ab.events(spark.createDataFrame([], COLUMNS), start="s", end="e")
    query = rows.where("v > 0").union(rows.select("k", "v")).distinct()
    assert not any(one.calls_python for one in query.planned.natives(None)[0].streams)
    spark.udf.register("is_even_by_name", is_even)
    assert rows.where("is_even_by_name(v)").node.change.calls_python
