"""A run of rows with places in Kafka goes on in other lanes; a reader that lacks rows does not.

Files play the topics: a reader of them begins where the files do that it finds.  A real broker
is in `test_kafka_broker_deep.py`.
"""

import shutil
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
import pytest
from test_dataframes_spark import EAST, TRUTH, WEST, history
from test_kafka_spark import KAFKA, PLACE, frame, message, parsed

import anabranch as ab
from anabranch.errors import StateError, UsageError
from anabranch.spark.checkpoint import run_record as runs

pytestmark = pytest.mark.spark

TOPICS = {"east": EAST, "west": WEST}


def put(spark: Any, root: Path, number: int, first: int, last: int) -> None:
    """A file with some messages of each topic, and one that is no element."""
    for name, elements in TOPICS.items():
        rows = [message(name, 0, 10 + at, elements[at]) for at in range(first, last)]
        rows += [message(name, 1, number, b"no json")]
        made = root / name / f"_{number}"
        frame(spark, rows, 1).write.parquet(str(made))
        next(made.glob("*.parquet")).rename(root / name / f"{number}.parquet")
        shutil.rmtree(made)


def run(spark: Any, root: Path, **options: Any) -> Any:
    feeds = []
    for name in TOPICS:
        source = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1)
        df = parsed(source.parquet(str(root / name)), *PLACE)
        if "price" in options:
            df = df.withColumn("price", sf.lit(options["price"]).cast("double"))
        feeds.append(ab.elements(df, order=options.get("order", "kafka"), name=name))
    merged = ab.merge(*feeds, lanes=options.get("lanes"))
    query = merged.start(root / "ck", output=root / "out", once=True)
    query.wait()
    return query.totals


def test_rows_of_kafka_go_on_in_other_lanes(quick: Any, tmp_path: Path) -> None:
    put(quick, tmp_path, 0, 0, 2)
    put(quick, tmp_path, 1, 2, 3)
    before = run(quick, tmp_path, lanes=1)
    assert (before.triggers, before.rows, before.bucket("violation")) == (2, 10, 4)
    done = ab.upgrade(tmp_path / "ck", lanes=3, spark=quick)
    assert (done.was, done.lanes, done.triggers) == (1, 3, 2)
    assert ab.starting_offsets(tmp_path / "ck", "east") == "earliest"  # files have no offsets
    put(quick, tmp_path, 2, 3, 6)
    first = tmp_path / "west" / "1.parquet"
    hidden = first.rename(tmp_path / "hidden")
    (tmp_path / "west" / "0.parquet").rename(tmp_path / "gone")
    lost = (
        r"replica 'west': its reader begins at offset 1. of partition 0 of topic 'west', but "
        r"before the upgrade it was read to offset 12: .*ab.starting_offsets\(CHECKPOINT"
    )
    for _ in range(2):
        with pytest.raises(StateError, match=lost):
            run(quick, tmp_path)
    assert ab.read_output(quick, tmp_path / "out").count() == before.output["elements"]
    hidden.rename(first)
    after = run(quick, tmp_path)
    assert after.adds_up
    assert after.rows == 2 * (len(EAST) + 3), "rows before the upgrade are counted once"
    assert after.bucket("violation") == 6
    assert history(ab.read_output(quick, tmp_path / "out").collect()) == TRUTH
    more = {"price": "double"}
    done = ab.upgrade(tmp_path / "ck", lanes=2, add_columns=more, spark=quick)
    assert (done.lanes, done.added) == (2, ("price",))
    with pytest.raises(StateError, match=r"columns = .*price: double"):
        run(quick, tmp_path)
    assert run(quick, tmp_path, price=None).rows == after.rows
    put(quick, tmp_path, 3, 0, 1)  # a redelivery: known by its place, whatever it has now
    last = run(quick, tmp_path, price=2.5)
    assert (last.rows, last.live) == (after.rows + 2, after.live)


def test_what_only_spark_knows_cannot_be_upgraded(quick: Any, tmp_path: Path) -> None:
    put(quick, tmp_path, 0, 0, 3)
    run(quick, tmp_path, lanes=1, order=["partition", "offset"])
    with pytest.raises(
        UsageError,
        match=r"only inboxes, and rows of Kafka with order='kafka', can change lanes or",
    ):
        ab.upgrade(tmp_path / "ck", lanes=2, spark=quick)
    shutil.rmtree(tmp_path / "ck")
    shutil.rmtree(tmp_path / "out")
    run(quick, tmp_path, lanes=1)
    (tmp_path / "ck" / "offsets" / "1").touch()
    with pytest.raises(StateError, match=r"trigger 1 was begun and not committed.* once=True"):
        ab.upgrade(tmp_path / "ck", lanes=2, spark=quick)
    found = runs.read(tmp_path / "ck")
    assert found is not None
    assert (found.generation, found.lanes) == (0, 1)
