"""Messages of Kafka as Spark's source gives them: merged in the order of their offsets.

No broker runs here: the DataFrames have exactly the columns of the source, and rows that come
in another order than that of the offsets, as after any shuffle.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from test_dataframes_spark import EAST, TRUTH, WEST, history

import anabranch as ab
from anabranch.errors import SchemaError
from anabranch.spark.query.merged import Merged

pytestmark = pytest.mark.spark

KAFKA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)
VALUE = "kind string, start bigint, end bigint, old_end bigint, name string"
FIELDS = ("kind", "start", "end", "old_end", "name")
PLACE = ("topic", "partition", "offset")
SHUFFLED = (3, 0, 5, 1, 4, 2)
"""Positions of the six elements of a copy, as they come; none may come so."""


def message(topic: str, partition: int, offset: int, element: Any) -> Any:
    """A message; an element is one in JSON, as a producer writes it, or any bytes."""
    given = {name: one for name, one in zip(FIELDS, element, strict=False) if one is not None}
    value = element if isinstance(element, bytes) else json.dumps(given).encode()
    at = datetime(2026, 1, 1, microsecond=offset)  # noqa: DTZ001  when the broker got it
    return (None, value, topic, partition, offset, at, 0)


def topic(name: str, elements: list[Any]) -> list[Any]:
    """The messages of a topic of one partition, shuffled."""
    return [message(name, 0, 100 + at, elements[at]) for at in SHUFFLED]


def parsed(raw: Any, *columns: str) -> Any:
    """What a user writes: the value as columns, beside some of the source."""
    from pyspark.sql import functions as F  # noqa: N812

    value = F.from_json(F.col("value").cast("string"), VALUE).alias("value")
    return raw.select(value, *columns).select("value.*", *columns)


def frame(spark: Any, rows: list[Any], parts: int) -> Any:
    return spark.createDataFrame(rows, KAFKA).repartition(parts)


def test_batches_are_merged_in_the_order_of_offsets(spark: Any) -> None:
    copies = []
    for name, elements in (("east", EAST), ("west", WEST)):
        df = parsed(frame(spark, topic(name, elements), 3), *PLACE)
        copies.append(ab.elements(df, order="kafka", name=name))
    merged = ab.merge(*copies, lanes=2)
    assert "order within a replica: topic, partition, offset" in merged.explanation
    assert history(merged.elements().collect()) == TRUTH
    assert merged.late().count() == 0
    assert merged.final().columns == ["start", "end", "name"]  # a position is no payload
    bare = parsed(frame(spark, topic("east", EAST), 1))
    assert ab.merge(bare, lanes=2).late().count() > 0  # so the order is what made it right


def test_one_subscription_of_several_topics_is_as_many_replicas(spark: Any) -> None:
    """A message that is not an element is kept, and its place is partition and offset."""
    rows = [message("east", 0, 106, b"{no json"), *topic("east", EAST), *topic("west", WEST)]
    feed = parsed(frame(spark, rows, 4), *PLACE)
    merged = ab.merge(ab.elements(feed, replica="topic", order="kafka"), lanes=2)
    assert history(merged.elements().collect()) == TRUTH
    (kept,) = merged.late().collect()
    assert (kept.bucket, kept.replica, kept.file, kept.row) == (
        "violation",
        "east",
        "east/0",
        106,
    )
    assert "kind" in kept.reason


def stream(spark: Any, root: Path) -> Merged:
    """A trigger takes a file of each topic, which is not in the order of offsets within."""
    feeds = []
    for name, elements in (("east", EAST), ("west", WEST)):
        for number, part in enumerate((elements[:3], elements[3:])):
            rows = [message(name, 0, 3 * number + at, part[at]) for at in (2, 0, 1)]
            made = root / name / f"_{number}"
            frame(spark, rows, 1).write.parquet(str(made))
            next(made.glob("*.parquet")).rename(root / name / f"{number}.parquet")
        source = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1)
        df = parsed(source.parquet(str(root / name)), *PLACE)
        feeds.append(ab.elements(df, order="kafka", name=name))
    return ab.merge(*feeds, lanes=1)


def test_streams_are_merged_in_the_order_of_offsets(quick: Any, tmp_path: Path) -> None:
    run = stream(quick, tmp_path).start(tmp_path / "ck", elements=tmp_path / "out", once=True)
    run.wait()
    assert run.totals.triggers == 2
    assert run.totals.bucket("violation") == run.totals.bucket("late") == 0
    assert history(quick.read.parquet(f"{tmp_path}/out/*").collect()) == TRUTH


def test_nothing_orders_one_partition_against_another(spark: Any) -> None:
    """A stable of the first partition is taken before what the second has; apart, all is well.

    The same with `seq` is no remedy: a partition that lags would be taken for redelivered.
    """
    rows = [message("east", 0, at, EAST[at]) for at in (1, 3, 5)]
    rows += [message("east", 1, at, EAST[at]) for at in (0, 4)]
    feed = parsed(frame(spark, rows, 2), *PLACE)
    merged = ab.merge(ab.elements(feed, order="kafka"), lanes=1)
    assert {row.name for row in merged.final().collect()} == {"b"}
    assert {(row.name, row.file) for row in merged.late().collect()} == {
        ("a", "east/1"),
        ("c", "east/1"),
    }
    second = ab.elements(feed.where("partition = 1"), order="kafka")
    assert {row.name for row in ab.merge(second, lanes=1).elements().collect()} == {"a", "c"}


def test_plain_rows_may_have_that_order_too(spark: Any) -> None:
    rows = topic("east", [("insert", at, at + 5, None, str(at)) for at in range(6)])
    df = parsed(frame(spark, rows, 3), *PLACE).drop("kind", "old_end")
    found = ab.merge(ab.events(df, start="start", end="end", order="kafka"), lanes=1)
    assert [row.name for row in found.elements().orderBy("seq").collect()[:-1]] == [
        str(at) for at in range(6)
    ]


def test_what_is_missing_is_an_error_and_what_is_too_much_is_warned_of(spark: Any) -> None:
    raw = frame(spark, topic("east", EAST), 1)
    with pytest.raises(SchemaError, match=r"no column 'topic'.* keep them where you parse"):
        ab.elements(parsed(raw), order="kafka")
    with pytest.raises(SchemaError, match=r"order: there is no column 'at'.* check the name"):
        ab.elements(parsed(raw), order=["at"])
    whole = parsed(raw, *PLACE, "timestamp", "timestampType")
    with pytest.warns(UserWarning, match="ab.elements: timestamp, timestampType of Kafka"):
        made = ab.elements(whole, replica="topic", order="kafka")
    assert made.schema.payload.names == ["name", "timestamp", "timestampType"]
