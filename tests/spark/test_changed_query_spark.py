"""A query that changed is another query: what a run records of steps, and refuses."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> ab.Stream:
    rows = spark.createDataFrame([], "k string, s bigint, e bigint, v double")
    # With a key rows may be quarantined, so that a filter may not change.
    return ab.events(rows, start="s", end="e", key="k", name="trades")


def steps(query: Query) -> tuple[str, ...]:
    return query.planned.steps


def test_the_expressions_and_types_of_a_select_are_recorded(stream: ab.Stream) -> None:
    first = stream.select("k", "v * 2 as w")
    assert steps(first) == steps(stream.select("k", "v * 2 as w"))
    for other in (
        stream.select("k", "v * 3 as w"),
        stream.select("k", (f.col("v") * 3).alias("w")),
        stream.select("k", "cast(v as int) as w"),
        stream.select("k", f.col("v").cast("float").alias("w")),
    ):
        assert steps(other) != steps(first)
