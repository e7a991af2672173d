"""The merge of an inbox on Spark: whole, restarted, crashed: each time the same history."""

import json
import shutil
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merge_place import Place

from anabranch.batch.schema import TimeType
from anabranch.checker.compare import check
from anabranch.errors import FileError, SchemaError, StateError, UsageError, ViolationError
from anabranch.sinks.published import pieces_in, tail_of
from anabranch.spark.write.read_output import read_output

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.parametrize("case", ["r0", "r1", "r2", "r3", "r4"])
def test_generated_replicas_merge_to_the_truth(spark: Any, place: Place, case: str) -> None:
    place.generate(case)
    totals = place.merge(spark)
    assert place.check().ok
    assert totals.adds_up
    assert totals.rows == sum(
        pq.read_metadata(file).num_rows for file in place.inbox.glob("*/*.parquet")
    )
    assert totals.frontier == "forever"
    assert totals.live == 0
    assert totals.bucket("violation") == 0


def test_json_lines_with_timestamps_merge_to_the_truth(spark: Any, place: Place) -> None:
    place.generate(form="jsonl", time=TimeType.TIMESTAMP)
    place.merge(spark)
    assert place.check().ok


def test_an_open_stream_is_right_below_its_frontier(spark: Any, place: Place) -> None:
    place.generate(open=True)
    totals = place.merge(spark)
    assert totals.frontier != "forever"
    assert totals.live > 0
    assert place.check(until_frontier=True).ok


def hold_back(place: Place, share: float) -> list[tuple[Path, Path]]:
    """Move the last files of every replica aside; where from and where to."""
    held = []
    for replica in sorted(place.inbox.iterdir()):
        files = sorted(replica.glob("part-*"))
        for file in files[int(len(files) * share) :]:
            aside = place.root / "held" / replica.name / file.name
            aside.parent.mkdir(parents=True, exist_ok=True)
            file.rename(aside)
            held.append((file, aside))
    return held


def give_back(held: list[tuple[Path, Path]]) -> None:
    for file, aside in held:
        aside.rename(file)


def test_a_restart_goes_on_where_it_stopped(spark: Any, place: Place) -> None:
    place.generate()
    held = hold_back(place, 0.5)
    before = place.merge(spark)
    assert place.check(until_frontier=True).ok
    give_back(held)
    after = place.merge(spark)
    assert after.rows > before.rows
    assert after.adds_up
    assert place.check().ok
    seqs = [row.seq for row in read_output(spark, place.output).select("seq").collect()]
    assert len(set(seqs)) == len(seqs)


def test_a_crash_before_the_commit_doubles_nothing(spark: Any, place: Place) -> None:
    place.generate()
    held = hold_back(place, 0.5)
    place.merge(spark)
    give_back(held)
    before = place.merge(spark).to_dict()
    commits = sorted(place.checkpoint.glob("commits/[0-9]*"), key=lambda file: int(file.name))
    commits[-1].unlink()
    for checksum in place.checkpoint.glob(f"commits/.{commits[-1].name}.crc"):
        checksum.unlink()
    after = place.merge(spark).to_dict()
    assert after == before
    assert place.check().ok


def test_a_trigger_that_was_not_finished_does_not_count(spark: Any, place: Place) -> None:
    place.generate()
    held = hold_back(place, 0.5)
    place.merge(spark)
    whole = place.check(until_frontier=True)
    give_back(held)
    place.merge(spark)
    elements = place.output / "elements"
    last = pieces_in(elements)[-1]
    as_written = tail_of(elements) / f"trigger-{last.last:012d}"
    as_written.mkdir()
    (elements / last.name).rename(as_written / "lane-0.parquet")
    assert place.check(until_frontier=True) == whole


def test_nothing_new_changes_nothing(spark: Any, place: Place) -> None:
    place.generate()
    before = place.merge(spark).to_dict()
    assert place.merge(spark).to_dict() == before


def test_any_number_of_lanes_gives_the_same_history(spark: Any, place: Place) -> None:
    place.generate(events=200)
    place.merge(spark, lanes=3)
    assert place.check().ok


def write(file: Path, rows: list[dict[str, Any]], **types: pa.DataType) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    plain = {"kind": pa.string(), "start": pa.int64(), "end": pa.int64(), "old_end": pa.int64()}
    schema = pa.schema({**plain, **types})
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)


def test_rows_that_are_no_elements_are_kept_with_file_row_and_reason(
    spark: Any, place: Place
) -> None:
    good = {"kind": "insert", "start": 1, "end": 5, "name": "a"}
    bad = [
        {"kind": "upsert", "start": 1, "end": 2, "name": "b"},
        {"kind": "insert", "start": None, "end": 2, "name": "c"},
        {"kind": "insert", "start": 9, "end": 2, "name": "d"},
        {"kind": "adjust", "start": 7, "end": 8, "old_end": 9, "name": "nobody"},
    ]
    end = {"kind": "stable", "start": None}
    write(place.inbox / "x" / "1.parquet", [good, *bad, end], name=pa.string())
    totals = place.merge(spark)
    assert totals.bucket("violation") == 4
    assert totals.adds_up
    rows = read_output(spark, place.output, what="violations").orderBy("row").collect()
    assert [(row.file, row.row, row.replica) for row in rows] == [
        ("x/1.parquet", number, "x") for number in (2, 3, 4, 5)
    ]
    assert "upsert" in rows[0].reason
    assert "upsert" in rows[0].raw
    assert rows[3].kind == "adjust"
    assert rows[3].name == "nobody"
    elements = read_output(spark, place.output).orderBy("seq").collect()
    assert [(row.kind, row.name) for row in elements] == [("insert", "a"), ("stable", None)]


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "upsert", "start": 1, "end": 2, "name": "b"},
        {"kind": "adjust", "start": 7, "end": 8, "old_end": 9, "name": "nobody"},
    ],
)
def test_strict_stops_at_the_row(spark: Any, place: Place, bad: dict[str, Any]) -> None:
    write(place.inbox / "x" / "1.parquet", [bad], name=pa.string())
    with pytest.raises(ViolationError, match=r"x/1\.parquet: row 1: .*strict"):
        place.merge(spark, strict=True)
    assert not list(place.output.glob("*/*.parquet"))


TYPES = {
    "amount": pa.decimal128(12, 3),
    "day": pa.date32(),
    "at": pa.timestamp("us", tz="UTC"),
    "ratio": pa.float64(),
    "tags": pa.list_(pa.string()),
    "place": pa.struct({"x": pa.int32(), "names": pa.list_(pa.string())}),
    "raw": pa.binary(),
    "small": pa.uint8(),
    "word": pa.dictionary(pa.int32(), pa.string()),
}
PAYLOAD: dict[str, Any] = {
    "amount": Decimal("12.345"),
    "day": date(2026, 2, 28),
    "at": datetime(2026, 2, 28, 1, 2, 3, 4, tzinfo=UTC),
    "ratio": float("nan"),
    "tags": ["a\n\"'", None, "ü"],
    "place": {"x": None, "names": []},
    "raw": b"\x00\xff",
    "small": 255,
    "word": "w",
}


def test_payloads_of_many_types_come_through_unchanged(spark: Any, place: Place) -> None:
    rows = [
        {"kind": "insert", "start": 1, "end": 5, **PAYLOAD},
        {"kind": "insert", "start": 1, "end": 5, **dict.fromkeys(PAYLOAD)},
        {"kind": "stable", "start": None},
    ]
    for replica in ("x", "y"):
        write(place.inbox / replica / "1.parquet", rows, **TYPES)
    totals = place.merge(spark)
    assert totals.bucket("emitted") == 3
    assert check(place.output, place.inbox / "x" / "1.parquet").ok
    back = read_output(spark, place.output).where("amount is not null").collect()[0]
    assert back.amount == PAYLOAD["amount"]
    assert list(back.tags) == PAYLOAD["tags"]
    assert back.small == 255


def test_a_replica_that_appears_later_does_not_decide_until_it_is_complete(
    spark: Any, place: Place
) -> None:
    insert = {"kind": "insert", "start": 1, "end": 5, "name": "a"}
    write(
        place.inbox / "x" / "1.parquet",
        [insert, {"kind": "stable", "start": 2}],
        name=pa.string(),
    )
    place.merge(spark)
    end = {"kind": "stable", "start": None}
    write(place.inbox / "y" / "1.parquet", [end], name=pa.string())
    totals = place.merge(spark)
    assert totals.frontier == 2
    assert not totals.replicas["y"].joined
    write(place.inbox / "z" / "1.parquet", [insert, end], name=pa.string())
    assert place.merge(spark, assume_complete=True).frontier == "forever"


def test_a_case_that_replicas_do_not_permit_is_refused(place: Place) -> None:
    place.generate("r4")
    with pytest.raises(UsageError, match="case R2 was asked for"):
        place.prepare(case="r2")
    assert not place.output.exists()
    assert not place.checkpoint.exists()


def test_a_checkpoint_of_another_format_is_refused_by_name(spark: Any, place: Place) -> None:
    place.generate(events=50)
    place.merge(spark)
    for folder in (place.output, place.checkpoint):
        note = json.loads((folder / "_run.json").read_text())
        ours = note["format"]
        (folder / "_run.json").write_text(json.dumps({**note, "format": ours + 1}))
    wanted = rf"written in format {ours + 1}, .* reads format {ours};"
    with pytest.raises(StateError, match=wanted):
        place.prepare()


def test_output_and_checkpoint_must_belong_together(spark: Any, place: Place) -> None:
    place.generate(events=50)
    place.merge(spark)
    shutil.copytree(place.checkpoint, place.root / "other")
    note = json.loads((place.root / "other" / "_run.json").read_text())
    (place.root / "other" / "_run.json").write_text(json.dumps({**note, "run": "another"}))
    pairs = {
        "belongs to run": (place.output, place.root / "other"),
        "does not": (place.output, place.root / "new"),
        "belongs to a run, but": (place.root / "new", place.checkpoint),
        "belongs to no run of ours": (place.truth, place.root / "new"),
    }
    for words, (output, checkpoint) in pairs.items():
        with pytest.raises(StateError, match=words):
            place.prepare(output=output, checkpoint=checkpoint)


def test_another_number_of_lanes_is_refused(spark: Any, place: Place) -> None:
    place.generate(events=50)
    place.merge(spark, lanes=2)
    with pytest.raises(StateError, match="lanes = 2, but this start has 3"):
        place.prepare(lanes=3)


def test_a_file_that_was_read_may_not_change(spark: Any, place: Place) -> None:
    place.generate(events=50)
    place.merge(spark)
    file = sorted(place.inbox.glob("*/*.parquet"))[0]
    file.write_bytes(file.read_bytes())
    with pytest.raises(FileError, match=f"{file.name}: was read when it had"):
        place.prepare()


def test_a_file_with_other_columns_that_comes_later_fails_with_its_name(
    spark: Any, place: Place
) -> None:
    place.generate(events=50)
    prepared = place.prepare()
    write(place.inbox / "r0" / "part-99999.parquet", [], other=pa.string())
    with pytest.raises(SchemaError, match=r"part-99999\.parquet"):
        prepared.start(spark, once=True).wait()


@pytest.mark.parametrize("place_of", ["output", "checkpoint"])
def test_folders_in_one_another_are_refused(place: Place, place_of: str) -> None:
    place.generate(events=50)
    inside: dict[str, Any] = {place_of: place.inbox / "r0"}
    with pytest.raises(UsageError, match="is inside"):
        place.prepare(**inside)


def test_a_founder_that_speaks_late_is_known_from_the_beginning(
    spark: Any, place: Place
) -> None:
    place.generate(events=100)
    files = sorted((place.inbox / "r2").glob("part-*"))
    aside = place.root / "aside"
    aside.mkdir()
    for file in files:
        file.rename(aside / file.name)
    place.merge(spark)
    for file in files:
        (aside / file.name).rename(file)
    totals = place.merge(spark)
    assert totals.replicas["r2"].joined
    assert place.check().ok
    shown = totals.replicas["r2"].buckets
    assert shown["absorbed"] + shown["late"] == totals.replicas["r2"].rows
    assert (
        shown["absorbed"] > shown["late"]
    )  # only phantoms that the others never showed are late


def test_a_merge_leaves_the_session_as_it_was(spark: Any, place: Place) -> None:
    from anabranch.spark.session.start import session

    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    place.generate(events=50)
    place.merge(spark, lanes=3)
    assert spark.conf.get(name) == before
    assert session() is spark
