"""Which expressions where and select take: one value for each row, of that row alone."""

import pytest
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import UsageError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> ab.Stream:
    rows = spark.createDataFrame([], "k string, s bigint, v double, user string")
    return ab.events(rows, start="s", lifetime=5)


def test_what_is_not_one_value_for_each_row_is_rejected(stream: ab.Stream) -> None:
    """A row that explode drops would be missed, and the error named the checkpoint."""
    ranked = f.row_number().over(Window.partitionBy("k").orderBy("v"))
    for given in (
        f.explode(f.array("v", "v")).alias("x"),
        "inline(array(struct(v)))",
        f.sum("v").alias("x"),
        ranked.alias("x"),
        f.explode(f.array(f.rand())).alias("x"),
    ):
        with pytest.raises(UsageError, match="is not one value for each row"):
            stream.select(given)


@pytest.mark.parametrize(
    ("condition", "called"),
    [
        ("timestamp_seconds(start) > current_timestamp", "current_timestamp"),
        ("curdate() > date'2020-01-01'", "curdate"),
        ("current_timezone() = 'UTC'", "current_timezone"),
        ("session_user = 'a'", "session_user"),
        ("to_timestamp('now') > timestamp'2020-01-01'", "the time 'now'"),
        ("timestamp_seconds(start) > ' Today '", "the time 'today'"),
        ("date'today' > date'2020-01-01'", "the time 'today'"),
        ("v > (select max(id) from range(3))", "a subquery"),
    ],
)
def test_functions_without_parentheses_and_times_in_texts_are_found(
    stream: ab.Stream, condition: str, called: str
) -> None:
    with pytest.raises(UsageError, match=f"calls {called}, which does not depend on the row"):
        stream.where(condition)


def test_texts_columns_and_aliases_that_only_look_like_them_are_taken(
    stream: ab.Stream,
) -> None:
    stream.where("k = 'now()' and user = 'rand(' and k <> 'today'")
    assert stream.select("v as now", "k as user", "struct(v, k) as both").select(
        "both.*", "user"
    ).columns == ["v", "k", "user"]
