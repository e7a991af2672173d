"""`ab.inbox` as a source: alone and beside DataFrames, batch and streaming, one control log."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_dataframes_spark import EAST, PLAIN, TRUTH, WEST, history, pour

import anabranch as ab
from anabranch.errors import FileError, SchemaError, UsageError
from anabranch.spark.run.follow import require_shared_disk

TIMES = dict.fromkeys(("start", "end", "old_end"), pa.int64())
SCHEMA = pa.schema({"kind": pa.string(), **TIMES, "name": pa.string(), "seq": pa.int64()})
NORTH = WEST


def put(folder: Path, rows: list[Any], file: str = "1.parquet", schema: Any = SCHEMA) -> None:
    """Elements as one file of a replica's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    named = [dict(zip(schema.names, row, strict=False)) for row in rows]
    pq.write_table(pa.Table.from_pylist(named, schema=schema), folder / file)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    put(tmp_path / "in" / "east", EAST)
    put(tmp_path / "in" / "west", WEST)
    return tmp_path / "in"


def stream(spark: Any, folder: Path, rows: list[Any], **options: Any) -> Any:
    """The same rows as a streaming DataFrame, a file per trigger."""
    pour(spark, folder, rows, PLAIN, 3)
    source = spark.readStream.schema(PLAIN).option("maxFilesPerTrigger", 1)
    return ab.elements(source.parquet(str(folder)), **options)


@pytest.mark.spark
def test_views_of_an_inbox_alone_are_batches(spark: Any, inbox: Path) -> None:
    merged = ab.merge(ab.inbox(inbox), lanes=2)
    assert not merged.elements().isStreaming
    assert history(merged.elements().collect()) == TRUTH
    assert sorted(row.name for row in merged.final().collect()) == ["a", "b", "c"]
    assert "order within a replica: seq" in merged.explanation


@pytest.mark.spark
def test_files_keep_their_order_beside_a_frame_that_has_one(spark: Any, tmp_path: Path) -> None:
    """Without seq: an inbox by file and row, a DataFrame by the columns that it names."""
    without = pa.schema([field for field in SCHEMA if field.name != "seq"])
    for number, rows in enumerate((EAST[:3], EAST[3:])):
        put(tmp_path / "in" / "east", rows, f"{number}.parquet", without)
    rows = [(*row[:5], 10 - at) for at, row in enumerate(reversed(WEST))]
    shuffled = spark.createDataFrame(rows, PLAIN.replace("seq", "place")).repartition(3)
    north = ab.elements(shuffled, name="north", order=["place"])
    merged = ab.merge(north, ab.inbox(tmp_path / "in"), lanes=2)
    assert "order within a replica: place; file name and row (inbox)" in merged.explanation
    assert merged.late().count() == 0
    assert history(merged.elements().collect()) == TRUTH


@pytest.mark.spark
def test_an_inbox_beside_a_batch_is_read_as_one(spark: Any, inbox: Path) -> None:
    north = ab.elements(spark.createDataFrame(NORTH, PLAIN), name="north")
    merged = ab.merge(ab.inbox(inbox), north, lanes=2)
    assert history(merged.elements().collect()) == TRUTH
    with pytest.raises(UsageError, match=r"start\(\) is for streaming DataFrames"):
        merged.start(inbox.parent / "ck")


@pytest.mark.spark
def test_inboxes_and_a_stream_are_one_query_with_one_control_log(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    """New files, replicas that leave by hand and by a mark, and a restart."""
    put(tmp_path / "second" / "south", EAST[:3])
    inputs = [ab.inbox(inbox), stream(spark, tmp_path / "n", NORTH, name="north")]
    merged = ab.merge(*inputs, ab.inbox(tmp_path / "second"), lanes=2)
    run = merged.start(tmp_path / "ck", output=tmp_path / "out", once=True)
    run.wait()
    assert run.totals.adds_up
    assert set(run.totals.replicas) == {"east", "west", "north", "south"}
    assert run.totals.rows == 3 * len(EAST) + 3
    assert history(ab.read_output(spark, tmp_path / "out").collect()) == TRUTH
    run.detach("north")
    run.detach("east")
    (tmp_path / "second" / "south" / "_detached").touch()
    put(inbox / "west", [("stable", None, None, None, None, 7)], "2.parquet")
    seen: list[int] = []
    again = merged.start(
        tmp_path / "ck",
        output=tmp_path / "out",
        once=True,
        on_trigger=lambda totals: seen.append(totals.rows),
    )
    again.wait()
    assert again.run == run.run
    assert seen[-1] == again.totals.rows == run.totals.rows + 1
    standing = {name: one.standing for name, one in again.totals.replicas.items()}
    assert {name for name, one in standing.items() if one == "detached"} == {
        "east",
        "north",
        "south",
    }
    files = {file.name: file for file in (tmp_path / "ck").rglob("[0-9]*.json")}
    logs = [file.read_text() for _, file in sorted(files.items())]
    entries = [json.loads(line) for text in logs for line in text.splitlines()]
    numbers = sorted(entry["log"] for entry in entries)
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    compacted = json.loads((tmp_path / "ck" / "control.json").read_text())
    assert 0 < numbers[0] <= compacted["next"]
    assert {one["inbox"] for one in compacted["members"].values()} == {0, 1, None}


@pytest.mark.spark
def test_a_replica_of_an_inbox_is_attached_by_hand(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    (inbox / "west" / "1.parquet").rename(tmp_path / "held.parquet")
    (inbox / "west").rmdir()
    put(inbox / "east", EAST[:2])

    def start() -> Any:
        run = ab.merge(ab.inbox(inbox), lanes=1).start(
            tmp_path / "ck", output=tmp_path / "out", once=True
        )
        run.wait()
        return run

    run = start()
    with pytest.raises(UsageError, match="no replica 'west' to attach; the inboxes have east"):
        run.attach("west")
    (inbox / "west").mkdir()
    (tmp_path / "held.parquet").rename(inbox / "west" / "1.parquet")
    run = start()
    assert not run.totals.replicas["west"].joined
    assert run.silent("0 seconds") == ["east", "west"]
    run.attach("west")
    run.detach("east")
    run = start()
    assert run.totals.frontier == "forever"
    assert history(ab.read_output(spark, tmp_path / "out").collect()) == TRUTH


@pytest.mark.spark
def test_a_view_by_itself_of_an_inbox_beside_a_stream_needs_a_checkpoint(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    merged = ab.merge(ab.inbox(inbox), stream(spark, tmp_path / "n", NORTH, name="north"))
    with pytest.raises(UsageError, match=r"final\(\) .* merged.start\(CHECKPOINT, final="):
        merged.final()
    with pytest.raises(UsageError, match="is not a local path, but an inbox needs one"):
        merged.start("s3://bucket/ck")


@pytest.mark.spark
def test_what_differs_between_an_inbox_and_a_frame_is_named(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    whole = ab.inbox(inbox)
    for changed, words in (
        (
            PLAIN.replace("name string", "name int"),
            r"'name': string in inbox .*, int32 in replica '1'",
        ),
        (PLAIN + ", more int", r"replica '1' has a column 'more' and inbox .* has not"),
        (PLAIN.replace(", seq bigint", ""), r"order: seq in inbox .*, none.* replica '1'"),
        (
            PLAIN.replace("bigint", "timestamp_ntz").replace("seq timestamp_ntz", "seq bigint"),
            r"times: bigint in inbox .* timestamp_ntz in replica '1'",
        ),
        (PLAIN + ", replica string", "has its own column 'replica', with other inputs"),
    ):
        with pytest.raises(SchemaError, match=words):
            ab.merge(whole, spark.createDataFrame([], changed))


def test_names_of_replicas_are_unique(inbox: Path, tmp_path: Path) -> None:
    put(tmp_path / "other" / "west", WEST)
    with pytest.raises(UsageError, match="two replicas have one name: west"):
        ab.merge(ab.inbox(inbox), ab.inbox(tmp_path / "other"))


@pytest.mark.spark
def test_a_folder_with_a_name_that_is_taken_ends_the_query(
    spark: Any, inbox: Path, tmp_path: Path
) -> None:
    north = stream(spark, tmp_path / "n", NORTH, name="north")
    merged = ab.merge(ab.inbox(inbox), north, lanes=1)
    run = merged.start(tmp_path / "ck", interval="200 milliseconds")
    put(inbox / "north", EAST)
    with pytest.raises(FileError, match=r"in/north: the merge has a replica 'north' already"):
        run.wait(120)
    with pytest.raises(FileError, match="rename the folder"):
        merged.start(tmp_path / "ck", once=True)


def test_a_path_that_is_no_inbox_is_rejected(inbox: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="expected an inbox"):
        ab.inbox(inbox / "east")
    with pytest.raises(FileError, match="there is no such file or folder"):
        ab.inbox(tmp_path / "nowhere")


@pytest.mark.spark
def test_a_server_that_does_not_see_the_control_log_is_rejected(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=r"does not see .*control.* a disk that client and"):
        require_shared_disk(spark, tmp_path / "control")


@pytest.mark.spark
def test_a_backlog_is_taken_in_bounded_triggers(spark: Any, tmp_path: Path) -> None:
    """Files that come in pieces; a bad line is named by its row in the file."""
    rows = [("insert", at, at + 9, None, f"{at:05d}", at) for at in range(200)]
    names = ("kind", "start", "end", "old_end", "name", "seq")
    lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    last = json.dumps({"kind": "stable", "start": None, "seq": 200})
    for name, some in (("east", [*lines, last]), ("west", [*lines[:149], "bad", *lines[150:]])):
        (tmp_path / "inbox" / name).mkdir(parents=True)
        (tmp_path / "inbox" / name / "1.jsonl").write_text("\n".join(some) + "\n")
    taken: list[int] = []

    def start() -> Any:
        return ab.merge(ab.inbox(tmp_path / "inbox"), lanes=2).start(
            tmp_path / "ck",
            output=tmp_path / "out",
            once=True,
            max_bytes_per_trigger=4000,
            on_trigger=lambda totals: taken.append(totals.last.rows),
        )

    run = start()
    run.wait()
    assert len(taken) > 5
    assert sum(taken) == run.totals.rows == 401
    assert max(taken[:-1]) < 250
    bad = ab.read_output(spark, tmp_path / "out", what="violations").collect()
    assert [(row.replica, row.row) for row in bad] == [("west", 150)]
    assert ab.read_output(spark, tmp_path / "out", what="current").count() == 200
    start().wait()
    assert run.totals.adds_up
    with pytest.raises(UsageError, match=r"max_bytes_per_trigger 'much': expected a number"):
        ab.merge(ab.inbox(tmp_path / "inbox")).start("ck", max_bytes_per_trigger="much")


@pytest.mark.spark
def test_plain_rows_of_an_inbox_end_when_they_are_complete(spark: Any, tmp_path: Path) -> None:
    """A batch is complete; a run only if asked for, also in other lanes after an upgrade."""
    rows = pa.schema({"ts": pa.int64(), "name": pa.string()})
    put(tmp_path / "in" / "east", [(1, "a"), (5, "b")], "1.parquet", rows)
    put(tmp_path / "in" / "west", [(5, "b"), (9, "c")], "1.parquet", rows)
    merged = ab.merge(ab.inbox(tmp_path / "in", start="ts", lifetime=3), lanes=2)
    events = {("a", 1, 4), ("b", 5, 8), ("c", 9, 12)}
    assert {(row.name, row.start, row.end) for row in merged.final().collect()} == events
    place = {"checkpoint": tmp_path / "ck", "output": tmp_path / "out", "once": True}
    with pytest.warns(UserWarning, match="nothing becomes final"):
        run = merged.start(**place, max_bytes_per_trigger=1)
    run.wait()
    assert (run.totals.frontier, run.totals.live) == (None, 3)
    ab.upgrade(tmp_path / "ck", lanes=1, spark=spark)
    again = ab.merge(ab.inbox(tmp_path / "in", start="ts", lifetime=3))
    run = again.start(**place, complete=True)
    run.wait()
    assert run.totals.adds_up
    assert (run.totals.frontier, run.totals.live, run.totals.rows) == ("forever", 0, 6)
    found = ab.read_output(spark, tmp_path / "out").where("kind = 'insert'").collect()
    assert sorted((row.name, row.start, row.end) for row in found) == sorted(events)
