"""Duplicates inside one copy of plain rows: counted and named, or removed by a key."""

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.spark.duplicates import kept_text
from anabranch.spark.query.merged import Merged

pytestmark = pytest.mark.spark

COLUMNS = "id bigint, ts bigint, note string"
ORDERS = [(n, n // 2, "first") for n in range(100)]
AGAIN = ORDERS[::10]
SENT_AGAIN = [(n, ts + 1, "second") for n, ts, _ in ORDERS[::10]]


def merged(spark: Any, more: list[Any], **options: Any) -> Merged:
    """100 orders in two copies, `more` rows in one of them."""
    copies = {"east": [*ORDERS, *more], "west": ORDERS}
    return ab.merge(
        *(
            ab.events(
                spark.createDataFrame(rows, COLUMNS),
                start="ts",
                lifetime=10,
                name=name,
                **options,
            )
            for name, rows in copies.items()
        ),
        lanes=2,
    )


def test_without_a_key_duplicates_are_kept_counted_and_named(
    spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain = merged(spark, AGAIN)
    assert "kept and counted; ab.events(..., key=[COLUMNS]" in plain.explanation
    totals = plain.totals()
    assert totals.duplicates_by_replica == {"east": 10}
    assert totals.adds_up
    [found] = caplog.messages
    assert found == kept_text({"east": 10})
    assert found.startswith(
        "10 rows repeat an event that their copy has already (10 in 'east')"
    )
    assert plain.elements().where("kind = 'insert'").count() == 110


@pytest.mark.parametrize("more", [AGAIN, SENT_AGAIN], ids=["the same", "another time"])
def test_with_a_key_a_second_event_is_dropped_and_counted(spark: Any, more: list[Any]) -> None:
    dropped = merged(spark, more, key="id", duplicates="drop")
    rows = dropped.final().collect()
    assert len(rows) == 100
    assert {row.note for row in rows} == {"first"}
    totals = dropped.totals()
    assert totals.duplicates_by_replica == {"east": 10}
    assert (totals.replicas["east"].rows, totals.bucket("violation")) == (111, 0)
    assert totals.adds_up


def test_with_a_key_a_second_event_is_a_violation(spark: Any) -> None:
    keyed = merged(spark, SENT_AGAIN, key=["id"])
    assert "a second event of a key in one copy is a violation" in keyed.explanation
    late = keyed.late().collect()
    assert len(late) == 10
    assert {(row.bucket, row.replica, row.note) for row in late} == {
        ("violation", "east", "second")
    }
    assert "has an event with this key already" in late[0].reason
    by_both = merged(spark, SENT_AGAIN, key=["id", "ts"])
    assert by_both.totals().bucket("violation") == 0


def test_a_stream_warns_and_a_key_belongs_to_its_run(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for number, rows in enumerate(([*ORDERS[:50], *AGAIN[:2]], [*ORDERS[50:], *SENT_AGAIN])):
        frame = spark.createDataFrame(rows, COLUMNS).coalesce(1)
        frame.write.mode("append").parquet(str(tmp_path / "in"))
        source = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))

        def run(name: str, source: Any = source, **options: Any) -> Any:
            events = ab.events(source, start="ts", lifetime=10, name="east", **options)
            with pytest.warns(UserWarning, match="no stables"):
                query = ab.merge(events, lanes=1)
            place = {"elements": tmp_path / f"{name}-out", "max_bytes_per_trigger": "6k"}
            query = query.start(tmp_path / name, once=True, **place)
            query.wait()
            return query

        query = run("keyed", key="id")
        assert query.totals.duplicates == (2, 12)[number]
        assert query.totals.bucket("violation") == (2, 12)[number]
    assert not any("repeat an event" in one for one in caplog.messages)
    with pytest.raises(StateError, match=r"with key = id, but this start has id, start"):
        run("keyed", key=["id", "ts"])
    held = sorted((tmp_path / "keyed").rglob("*"))
    for change in ({"lanes": 2}, {"drop_columns": ["id"]}):
        with pytest.raises(UsageError, match=r"this run has key=\['id'\], so .* start a new"):
            ab.upgrade(tmp_path / "keyed", spark=spark, **change)
    assert sorted((tmp_path / "keyed").rglob("*")) == held
    assert not any("maxFilesPerTrigger" in one for one in caplog.messages)
    assert run("plain").totals.duplicates == 2
    [found] = [one for one in caplog.messages if "maxFilesPerTrigger" in one]
    assert "trigger 0 took 11,200 bytes of rows from DataFrames" in found
    assert any(
        "2 rows repeat an event" in one and "removes them" in one for one in caplog.messages
    )


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"key": "order"}, SchemaError, r"key: there is no column 'order'; .* \['id', 'ts'"),
        ({"key": []}, UsageError, "key names no column"),
        ({"duplicates": "drop"}, UsageError, "duplicates='drop' without key="),
        (
            {"key": "id", "duplicates": "keep"},
            UsageError,
            "duplicates='keep'; it is 'violation'",
        ),
        ({"key": ["id", "note"], "replica": "note"}, UsageError, "'note' is the name of its"),
        ({"key": "id", "seq": "id"}, UsageError, "'id' is its seq"),
        (
            {"key": "id", "properties": ab.model.StreamProperties(ordered=True)},
            UsageError,
            "key= with properties=",
        ),
    ],
)
def test_a_wrong_key_is_rejected_when_the_stream_is_made(
    spark: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    frame = spark.createDataFrame(ORDERS[:1], COLUMNS)
    with pytest.raises(error, match=words):
        ab.events(frame, start="ts", lifetime=10, **options)


def test_copies_with_other_keys_and_cases_without_identities_are_rejected(spark: Any) -> None:
    frame = spark.createDataFrame(ORDERS[:1], COLUMNS)
    plain, by_id, dropping = (
        ab.events(frame, start="ts", lifetime=10, **options)
        for options in ({}, {"key": "id"}, {"key": "id", "duplicates": "drop"})
    )
    with pytest.raises(UsageError, match=r"'0' declares key=\['id'\], replica '1' no key"):
        ab.merge(by_id, plain)
    with pytest.raises(UsageError, match=r"replica '1' key=\['id'\], duplicates='drop'"):
        ab.merge(by_id, dropping)
    with pytest.raises(UsageError, match="case R2 with key="):
        ab.merge(by_id, case="r2")
