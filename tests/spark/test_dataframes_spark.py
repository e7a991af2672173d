"""`ab.merge` on DataFrames: batch and streaming, every view, many sinks, types unchanged."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import StateError, UsageError
from anabranch.model import Adjust, Event, History, Insert, Stable
from anabranch.operators.merge.policy import Policy
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.query.asked import Asked
from anabranch.spark.query.merge import build
from anabranch.spark.query.merged import Merged
from anabranch.spark.run.prepare import prepare
from anabranch.testing.asserts import assert_valid

pytestmark = pytest.mark.spark

PLAIN = "kind string, start bigint, end bigint, old_end bigint, name string, seq bigint"
EAST = [
    ("insert", 1, 9, None, "a", 1),
    ("insert", 2, 8, None, "b", 2),
    ("stable", 2, None, None, None, 3),
    ("adjust", 2, 6, 8, "b", 4),
    ("insert", 3, 5, None, "c", 5),
    ("stable", None, None, None, None, 6),
]
WEST = [
    ("insert", 2, 6, None, "b", 1),
    ("insert", 1, 9, None, "a", 2),
    ("insert", 4, 7, None, "phantom", 3),
    ("adjust", 4, 4, 7, "phantom", 4),
    ("insert", 3, 5, None, "c", 5),
    ("stable", None, None, None, None, 6),
]
TRUTH = History.from_events([Event("a", 1, 9), Event("b", 2, 6), Event("c", 3, 5)])


def to_stream(rows: list[Any]) -> list[Any]:
    """Rows in the element format as elements, by seq."""
    forever = float("inf")
    made: list[Any] = []
    for row in sorted(rows, key=lambda row: row.seq):
        end = forever if row.end is None else row.end
        if row.kind == "stable":
            made.append(Stable(forever if row.start is None else row.start))
        elif row.kind == "insert":
            made.append(Insert(row.name, row.start, end))
        else:
            made.append(Adjust(row.name, row.start, row.old_end, end))
    return made


def history(rows: list[Any]) -> History:
    stream = to_stream(rows)
    assert_valid(stream)
    return History.of(stream)


@pytest.fixture
def batch(spark: Any) -> Merged:
    east, west = (spark.createDataFrame(rows, PLAIN) for rows in (EAST, WEST))
    return ab.merge(ab.elements(east, name="east"), ab.elements(west, name="west"), lanes=2)


def test_batches_merge_to_the_truth_in_every_view(spark: Any, batch: Merged) -> None:
    assert history(batch.elements().collect()) == TRUTH
    final = {(row.name, row.start, row.end) for row in batch.final().collect()}
    assert final == {("a", 1, 9), ("b", 2, 6), ("c", 3, 5)}
    assert batch.late().count() == 0
    changes = batch.changes().orderBy("seq", "_change_type").collect()
    assert {row._change_type for row in changes} <= {
        "insert",
        "delete",
        "update_preimage",
        "update_postimage",
    }
    table: dict[str, int] = {}
    for row in sorted(changes, key=lambda row: (row.seq, row._change_type != "delete")):
        if row._change_type in ("insert", "update_postimage"):
            table[row.name] = row.end
        elif row._change_type == "delete":
            del table[row.name]
    assert table == {"a": 9, "b": 6, "c": 5}


def files_source(spark: Any, folder: Path, schema: str) -> Any:
    folder.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder))


def pour(spark: Any, folder: Path, rows: list[Any], schema: str, cut: int) -> None:
    """Two files, the second later than the first."""
    for number, part in enumerate((rows[:cut], rows[cut:])):
        frame = spark.createDataFrame(part, schema).coalesce(1)
        frame.write.mode("append").parquet(str(folder / f"_{number}"))
        for file in (folder / f"_{number}").glob("*.parquet"):
            file.rename(folder / f"{number}.parquet")


def frames_of(spark: Any, root: Path) -> Iterator[Any]:
    for name, rows, cut in (("east", EAST, 3), ("west", WEST, 2)):
        pour(spark, root / name, rows, PLAIN, cut)
        yield ab.elements(files_source(spark, root / name, PLAIN), name=name)


def stream_of(spark: Any, root: Path, **options: Any) -> Merged:
    return ab.merge(*frames_of(spark, root), lanes=2, **options)


def test_streams_run_as_one_query_with_several_sinks(spark: Any, tmp_path: Path) -> None:
    merged = stream_of(spark, tmp_path)
    calls = tmp_path / "calls"
    calls.mkdir()

    def count(df: Any, trigger: int) -> None:  # on Spark Connect it runs in another process
        (calls / str(trigger)).write_text(str(df.count()))

    sinks = {"elements": tmp_path / "out", "final": tmp_path / "final", "changes": count}
    run = merged.start(tmp_path / "ck", once=True, **sinks)
    run.wait()
    assert run.totals.adds_up
    assert run.totals.rows == len(EAST) + len(WEST)
    assert run.totals.triggers == 2
    assert history(spark.read.parquet(f"{tmp_path}/out/*").collect()) == TRUTH
    final = spark.read.parquet(f"{tmp_path}/final/*").collect()
    assert sorted(row.name for row in final) == ["a", "b", "c"]
    assert sorted(path.name for path in calls.iterdir()) == ["0", "1"]
    assert all(int(path.read_text()) > 0 for path in calls.iterdir())


def test_a_plan_has_no_step_that_changes_nothing(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Spark plans each of them again in every trigger."""
    plain = spark.createDataFrame(EAST, PLAIN).select(
        "kind", "start", "end", "old_end", "seq", "name"
    )
    assert ab.elements(plain).df is plain
    run = stream_of(spark, tmp_path).start(tmp_path / "ck", once=True)
    run.wait()
    capsys.readouterr()
    run.query.explain()
    plan = capsys.readouterr().out
    assert "TransformWithState" in plan
    assert "Generate" not in plan  # nobody came or went


def test_parcels_wait_in_the_checkpoint_only_while_a_trigger_runs(
    spark: Any, tmp_path: Path
) -> None:
    merged, parcels, seen = stream_of(spark, tmp_path), tmp_path / "ck" / "parcels", tmp_path

    def look(df: Any, trigger: int) -> None:
        (seen / f"seen-{trigger}").write_text(" ".join(p.name for p in parcels.iterdir()))

    merged.start(tmp_path / "ck", once=True, changes=look).wait()
    names = [set((seen / f"seen-{trigger}").read_text().split()) for trigger in (0, 1)]
    assert all(names)
    assert not names[0] & names[1]
    assert not parcels.exists()


def test_a_folder_of_another_run_is_refused(spark: Any, tmp_path: Path) -> None:
    merged, out = stream_of(spark, tmp_path), tmp_path / "out"
    merged.start(tmp_path / "ck", once=True).wait()
    other = runs.Run("other", 2, "R3", "int", ("name: string",), ())
    runs.write(other, out)
    with pytest.raises(StateError, match="belongs to another run"):
        merged.start(tmp_path / "ck", elements=out)


def test_a_restart_with_other_lanes_is_refused_with_another_policy_not(
    spark: Any, tmp_path: Path
) -> None:
    merged = stream_of(spark, tmp_path)
    merged.start(tmp_path / "ck", once=True).wait()
    other = ab.merge(merged.copies.stream, lanes=3)
    with pytest.raises(StateError, match="lanes = 2, but this start has 3"):
        other.start(tmp_path / "ck", once=True)
    asked = replace(merged.asked, policy=Policy.parse("stable_lag=3,violations=detach"))
    other = replace(merged, asked=asked)
    query = other.start(tmp_path / "ck", once=True)
    query.wait()
    assert query.changed is not None
    found = runs.read(tmp_path / "ck")
    assert found is not None
    assert [policy for _, policy in found.settings] == ["default", "stable_lag=3"]
    assert found.policy == "stable_lag=3,violations=detach"


@pytest.mark.parametrize(
    ("first", "then", "names"),
    [
        (
            {"lifetime": "10 minutes"},
            {"lifetime": "1 hour"},
            r"lifetimes = east: 600000000 microseconds from start, .* 3600000000",
        ),
        ({"name": "east"}, {"name": "west"}, r"DataFrames east, now it has west; Spark finds"),
        ({}, {"order": "file"}, r"order = none: .* but this start has _metadata\.file_path, "),
    ],
    ids=["lifetime", "name", "order"],
)
def test_what_would_change_silently_is_compared(
    spark: Any, tmp_path: Path, first: dict[str, Any], then: dict[str, Any], names: str
) -> None:
    schema = "at timestamp, n bigint"
    source = files_source(spark, tmp_path / "in", schema)

    def merged(options: dict[str, Any]) -> Merged:
        usual = {"name": "east", "lifetime": "1 hour"}
        return build([ab.events(source, start="at", **{**usual, **options})], Asked())

    began = prepare(merged(first), str(tmp_path / "ck"), {})
    runs.write(began.run, tmp_path / "ck")
    assert not prepare(merged(first), str(tmp_path / "ck"), {}).is_new
    with pytest.raises(StateError, match=names):
        prepare(merged(then), str(tmp_path / "ck"), {})


def test_two_dataframes_that_change_places_are_refused(spark: Any, tmp_path: Path) -> None:
    """Spark knows its sources by their positions: each would go on where the other stopped."""
    one, other = frames_of(spark, tmp_path)
    began = prepare(build([one, other], Asked()), str(tmp_path / "ck"), {})
    runs.write(began.run, tmp_path / "ck")
    with pytest.raises(StateError, match=r"DataFrames east, west, now it has west, east;"):
        prepare(build([other, one], Asked()), str(tmp_path / "ck"), {})


def test_a_restart_on_another_number_of_processors_keeps_the_lanes(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lanes that nobody names are those of the run, not of the machine."""
    frames = list(frames_of(spark, tmp_path))

    def start(processors: int) -> None:
        monkeypatch.setattr("anabranch.spark.query.merge.cores", lambda: processors)
        merged = ab.merge(*frames)
        merged.start(tmp_path / "ck", elements=tmp_path / "out", once=True).wait()

    later = tmp_path / "west" / "1.parquet"
    later.rename(tmp_path / "held")
    start(2)
    (tmp_path / "held").rename(later)
    start(3)
    assert runs.read(tmp_path / "ck").lanes == 2  # type: ignore[union-attr]
    assert history(spark.read.parquet(f"{tmp_path}/out/*").collect()) == TRUTH


def test_a_checkpoint_that_forgot_a_trigger_is_refused(spark: Any, tmp_path: Path) -> None:
    """Spark would run the trigger again on a state that has seen it, and lose its rows."""
    merged = stream_of(spark, tmp_path)
    merged.start(tmp_path / "ck", once=True).wait()
    for log in ("offsets", "commits"):
        last = max(int(path.name) for path in (tmp_path / "ck" / log).glob("[0-9]*"))
        (tmp_path / "ck" / log / str(last)).unlink()
    with pytest.raises(StateError, match="entries of the checkpoint are lost"):
        merged.start(tmp_path / "ck", once=True)


def test_a_first_start_that_died_may_be_started_again(spark: Any, tmp_path: Path) -> None:
    merged, ck, out = stream_of(spark, tmp_path), tmp_path / "ck", tmp_path / "out"
    begun = runs.Run("died", 2, "R3", "int", ("name: string",), ())
    for place in (out, ck / "late"):
        runs.write(begun, place)
    merged.start(ck, once=True, elements=out).wait()
    assert history(spark.read.parquet(f"{out}/*").collect()) == TRUTH


def test_a_view_by_itself_keeps_what_it_does_not_show(spark: Any, tmp_path: Path) -> None:
    bad = [*EAST[:2], ("upsert", 1, 2, None, "x", 7), ("adjust", 5, 6, 7, "nobody", 8)]
    pour(spark, tmp_path / "in", bad, PLAIN, 2)
    source = ab.elements(files_source(spark, tmp_path / "in", PLAIN), name="east")
    merged = ab.merge(source, lanes=1, quarantine=tmp_path / "kept")
    query = (
        merged.elements()
        .writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "ck"))
        .trigger(availableNow=True)
        .start(str(tmp_path / "out"))
    )
    query.awaitTermination()
    assert spark.read.parquet(str(tmp_path / "out")).count() == 2
    kept = spark.read.parquet(str(tmp_path / "kept")).collect()
    assert sorted(row.reason[:12] for row in kept) == ["adjusts an e", "kind is 'ups"]


def test_copies_distinguished_by_a_column_come_and_go(spark: Any, tmp_path: Path) -> None:
    """A column of any name; a replica that appears later is joining until it is attached."""
    schema = PLAIN.replace("seq", "number") + ", copy string"
    rows = [(*row, "east") for row in EAST[:2]]
    pour(spark, tmp_path / "in", rows, schema, 1)
    feed = files_source(spark, tmp_path / "in", schema)

    def merged() -> Merged:
        return ab.merge(ab.elements(feed, replica="copy", seq="number"), lanes=2)

    run = merged().start(tmp_path / "ck", elements=tmp_path / "out", once=True)
    run.wait()
    late = [(*row, "west") for row in WEST]
    frame = spark.createDataFrame(late, schema).coalesce(1)
    frame.write.parquet(str(tmp_path / "_w"))
    next((tmp_path / "_w").glob("*.parquet")).rename(tmp_path / "in" / "w.parquet")
    run = merged().start(tmp_path / "ck", elements=tmp_path / "out", once=True)
    run.wait()
    assert run.totals.frontier is None
    assert not run.totals.replicas["west"].joined
    run.attach("west", guarantee=None)
    run.detach("east")
    run = merged().start(tmp_path / "ck", elements=tmp_path / "out", once=True)
    run.wait()
    assert run.totals.frontier == "forever"
    assert run.totals.adds_up
    assert history(spark.read.parquet(f"{tmp_path}/out/*").collect()) == TRUTH


TYPED = (
    "at timestamp, local timestamp_ntz, price decimal(12,3), day date, ok boolean, "
    "place struct<x: double, tags: array<string>, seen: timestamp, l: timestamp_ntz>, b binary"
)


@pytest.mark.parametrize("start", ["at", "local"])
def test_payloads_and_times_of_any_type_come_through(spark: Any, start: str) -> None:
    at = datetime(2026, 3, 29, 1, 30, 0, 5, tzinfo=UTC).replace(tzinfo=None)
    place = (float("nan"), ["ü", None], at, at)
    row = (at, at, Decimal("12.345"), date(2026, 2, 28), True, place, b"\x00\xff")
    rows = [row, (at, at, None, None, None, None, None)]
    df = spark.createDataFrame(rows, TYPED)
    other = "local" if start == "at" else "at"
    one = ab.events(df, start=start, lifetime="10 minutes")
    found = ab.merge(one, ab.events(df, start=start, lifetime="10 minutes"), lanes=2)
    back = found.final()
    assert back.schema["start"].dataType == df.schema[start].dataType
    for name in (other, "price", "day", "ok", "place", "b"):
        assert (
            back.schema[name].dataType.simpleString() == df.schema[name].dataType.simpleString()
        )
    expected = df.selectExpr(
        f"{start} as start",
        f"{start} + interval 10 minutes as end",
        other,
        "price",
        "day",
        "ok",
        "place",
        "b",
    )
    assert back.count() == 2
    assert back.select(*expected.columns).exceptAll(expected).count() == 0


def test_order_may_come_from_the_source(spark: Any, tmp_path: Path) -> None:
    """Without seq: by columns that the source has; files and rows, or any others."""
    plain = "kind string, start bigint, end bigint, old_end bigint, name string, offset bigint"
    rows = [(*row[:5], 10 - number) for number, row in enumerate(reversed(EAST))]
    df = spark.createDataFrame(rows, plain).repartition(3)
    merged = ab.merge(ab.elements(df, order=["offset"]), lanes=2)
    assert merged.late().count() == 0
    assert "offset" not in merged.elements().columns  # a position is no payload
    pour(spark, tmp_path / "in", EAST, PLAIN, 3)
    files = spark.read.schema(PLAIN).parquet(str(tmp_path / "in"))
    by_file = ab.merge(ab.elements(files.drop("seq"), order="file"), lanes=2)
    assert "_metadata.row_index" in by_file.explanation
    found = by_file.elements().collect()
    assert history(found) == TRUTH


def test_start_is_for_streams(batch: Merged, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="start\\(\\) is for streaming DataFrames"):
        batch.start(tmp_path / "ck")


def test_it_explains_itself(batch: Merged, capsys: pytest.CaptureFixture[str]) -> None:
    batch.explain()
    text = capsys.readouterr().out
    assert "case R4: replicas 'east', 'west' declare nothing" in text
    assert "lanes: 2, by start and payload" in text
    assert "order within a replica: seq" in text
