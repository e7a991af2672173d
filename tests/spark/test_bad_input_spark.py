"""What a schema shows is an error when the merge is built; what a row shows is kept."""

from typing import Any

import pytest

import anabranch as ab
from anabranch.errors import SchemaError, UsageError

pytestmark = pytest.mark.spark

PLAIN = "kind string, start bigint, end bigint, name string"


def frame(spark: Any, schema: str = PLAIN, rows: list[Any] | None = None) -> Any:
    return spark.createDataFrame(rows or [], schema)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            "kind string, start bigint, end bigint",
            "'0' has a column 'name' and replica '1' has not",
        ),
        (f"{PLAIN}, more int", "'1' has a column 'more' and replica '0' has not"),
        (
            PLAIN.replace("name string", "name int"),
            "column 'name': string in .* int32 in replica '1'",
        ),
        (
            PLAIN.replace("bigint", "timestamp"),
            "their times: bigint in .* timestamp in replica '1'",
        ),
        (PLAIN.replace("bigint", "timestamp_ntz"), "their times: bigint in .* timestamp_ntz"),
        (f"{PLAIN}, seq bigint", "their order: none.* seq in replica '1'"),
        (f"{PLAIN}, replica string", "'1' has its own column 'replica'"),
    ],
)
def test_replicas_whose_schemas_differ(spark: Any, other: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        ab.merge(frame(spark), frame(spark, other))


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("kind string, start bigint, end timestamp", "the time columns have different types"),
        ("kind string, start timestamp, end timestamp_ntz", "some are timestamp and some"),
        ("kind string, start string, end string", "'start' is string, expected bigint or"),
        ("start bigint, end bigint", "no column 'kind'"),
        (f"{PLAIN}, m map<string, int>", "'m' is map<string,int>, which payloads"),
        (f"{PLAIN}, i interval day", "'i' is interval day, which payloads"),
        (f"{PLAIN}, c string collate UTF8_LCASE", "'c' is string collate"),
        (f"{PLAIN}, v void", "column 'v' is void"),
    ],
)
def test_a_schema_that_is_no_stream(spark: Any, schema: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        ab.elements(frame(spark, schema))


def test_a_payload_column_called_kind_can_be_renamed(spark: Any) -> None:
    df = frame(spark, "ts bigint, kind string", [(1, "buy"), (2, "sell")])
    with pytest.raises(SchemaError, match=r"rename=\{'kind': 'kind_of_row'\}"):
        ab.events(df, start="ts", lifetime=5)
    renamed = ab.events(df, start="ts", lifetime=5, rename={"kind": "side"})
    rows = ab.merge(renamed, lanes=1).final().collect()
    assert sorted((row.start, row.end, row.side) for row in rows) == [
        (1, 6, "buy"),
        (2, 7, "sell"),
    ]


@pytest.mark.parametrize("column", ["Start", "KIND", "Old_End", "sEq", "REPLICA"])
def test_a_reserved_name_in_other_letter_case_is_renamed_or_rejected(
    spark: Any, column: str
) -> None:
    df = frame(spark, f"ts bigint, {column} string", [(1, "buy")])
    with pytest.raises(SchemaError, match=rf"{column}.*any letter case.*rename=\{{'{column}'"):
        ab.events(df, start="ts", lifetime=5)
    renamed = ab.events(df, start="ts", lifetime=5, rename={column: "side"})
    assert [row.side for row in ab.merge(renamed, lanes=1).final().collect()] == ["buy"]


def test_elements_have_their_columns_in_any_letter_case(spark: Any) -> None:
    df = frame(
        spark, "Kind string, START bigint, end bigint, name string", [("insert", 1, 2, "a")]
    )
    made = ab.merge(df, lanes=1).elements()
    assert made.columns == ["kind", "start", "end", "old_end", "seq", "name"]
    assert [(row.start, row.name) for row in made.collect()] == [(1, "a")]
    with pytest.raises(SchemaError, match="'sTart' is payload, but its name is 'start' of"):
        ab.elements(df.selectExpr("kind", "start", "end", "1 as old_end").toDF(
            "kind", "start", "end", "sTart"
        ))  # fmt: skip


@pytest.mark.parametrize("end", [{"lifetime": "1 day"}, {"lifetime": 1}, {"end": "day"}])
def test_a_date_is_no_start(spark: Any, end: dict[str, Any]) -> None:
    words = r"start='day' is a column of type date, expected .*\.cast\('timestamp'\)"
    with pytest.raises(SchemaError, match=words):
        ab.events(frame(spark, "day date"), start="day", **end)
    with pytest.raises(SchemaError, match="end='day' is a column of type date"):
        ab.events(frame(spark, "ts timestamp, day date"), start="ts", end="day")


def test_what_is_no_dataframe_is_rejected_by_every_function(spark: Any) -> None:
    rows: Any = [{"ts": 1}]
    calls = {
        "ab.merge: input 1": lambda: ab.merge(frame(spark), rows),
        "ab.union: input 0": lambda: ab.union(rows),
        "ab.elements": lambda: ab.elements(rows),
        "ab.events": lambda: ab.events(rows, start="ts", lifetime=1),
        "ab.windows_run": lambda: ab.windows_run(
            rows, like="spark", time="ts", size=1, slide=1
        ),
    }
    for where, call in calls.items():
        with pytest.raises(UsageError, match=f"{where}: got list, expected a DataFrame"):
            call()


def test_a_payload_column_called_as_ours_on_the_way_keeps_its_values(spark: Any) -> None:
    df = frame(
        spark,
        f"{PLAIN}, `__kind` string, `__KIND_0` string",
        [("insert", 1, 5, "a", "x", "y"), ("instead", 1, 5, "b", "x", "z")],
    )
    merged = ab.merge(df, lanes=1)
    (row,) = merged.elements().collect()
    assert (row["__kind"], row["__KIND_0"]) == ("x", "y")
    (late,) = merged.late().collect()
    assert "kind is 'instead'" in late.reason
    assert '"__KIND_0": "z"' in late.raw


def test_columns_with_other_names_are_renamed_into_the_format(spark: Any) -> None:
    df = frame(
        spark, "op string, start bigint, end bigint, kind string", [("insert", 1, 2, "k")]
    )
    stream = ab.elements(df, rename={"op": "kind", "kind": "sort"})
    assert ab.merge(stream, lanes=1).elements().collect()[0].sort == "k"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": "ts"}, "give one of end=COLUMN, lifetime=DURATION"),
        ({"start": "ts", "lifetime": 5, "end": "e"}, "give one of end=COLUMN, lifetime"),
        ({"start": "ts", "lifetime": "10 minutes"}, "for bigint times a duration is a whole"),
        ({"start": "ts", "lifetime": -5}, "ends an event before it starts"),
        ({"start": "ts", "lifetime": 5, "replaced_by": "e"}, "and replaced_by=COLUMNS"),
    ],
)
def test_events_need_one_end(spark: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ab.events(frame(spark, "ts bigint, e bigint"), **options)


def test_a_column_that_is_not_there(spark: Any) -> None:
    with pytest.raises(SchemaError, match="there is no column 'time'"):
        ab.events(frame(spark, "ts bigint"), start="time", lifetime=5)
    with pytest.raises(SchemaError, match="there is no column 'copy'"):
        ab.events(frame(spark, "ts bigint"), start="ts", lifetime=5, replica="copy")
    with pytest.raises(SchemaError, match="replaced_by: there is no column 'key'"):
        ab.events(frame(spark, "ts bigint"), start="ts", replaced_by="key")


def test_rows_that_are_no_elements_are_kept_and_the_rest_goes_on(spark: Any) -> None:
    rows = [
        ("insert", 1, 5, "a", "x"),
        ("upsert", 1, 2, "b", "x"),
        ("insert", None, 2, "c", "x"),
        ("insert", 9, 2, "d", "x"),
        ("insert", 1, 2, "e", None),
        ("stable", None, None, None, "x"),
    ]
    df = frame(spark, f"{PLAIN}, replica string", rows)
    merged = ab.merge(df, lanes=2)
    kept = {row.raw.split('"name": ')[1][1]: row.reason for row in merged.late().collect()}
    assert "expected 'insert', 'adjust' or 'stable'" in kept["b"]
    assert "start is null" in kept["c"]
    assert "end 2 is before start 9" in kept["d"]
    assert "replica is null" in kept["e"]
    assert [row.name for row in merged.final().collect()] == ["a"]


def test_a_stream_of_plain_rows_warns_of_what_will_grow(spark: Any) -> None:
    source = spark.readStream.format("rate").load()
    with pytest.warns(UserWarning, match="a state needs is remembered for ever"):
        merged = ab.merge(ab.events(source, start="timestamp", lifetime="1 second"))
    assert "nothing becomes final" in merged.explanation


def test_batch_and_streaming_do_not_mix(spark: Any) -> None:
    source = spark.readStream.format("rate").load().withColumnRenamed("value", "name")
    stream = ab.events(source, start="timestamp", lifetime="1 second")
    one = ab.events(
        frame(spark, "timestamp timestamp, name bigint"), start="timestamp", lifetime="1 second"
    )
    with pytest.raises(
        UsageError, match="'0' is a batch DataFrame and replica '1' a streaming"
    ):
        ab.merge(one, stream)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"case": "r9"}, "case='r9'"),
        ({"lanes": 0}, "lanes is 0; it must be 1 or more"),
        ({"policy": "x=1"}, "'x'"),
    ],
)
def test_options_that_cannot_be(spark: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ab.merge(frame(spark), **options)
