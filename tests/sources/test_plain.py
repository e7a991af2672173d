"""Plain rows of files as events: what each row becomes, and which files are rejected."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import anabranch as ab
from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import decode, to_elements
from anabranch.batch.schema import TimeType
from anabranch.errors import SchemaError, UsageError
from anabranch.model.element import Insert
from anabranch.model.time import FOREVER
from anabranch.sources.files import Layout, look
from anabranch.sources.pieces import pieces_of
from anabranch.sources.plain import PlainRows

LAST = int(FOREVER_UNITS)
TIMES = st.one_of(
    st.none(), st.integers(-50, 50), st.integers(LAST - 3, LAST), st.just(-(2**63))
)


def put(folder: Path, rows: list[dict[str, Any]], file: str = "1.parquet") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if file.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), folder / file)
    else:
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in rows))


@given(
    rows=st.lists(st.tuples(TIMES, TIMES, st.text(max_size=2)), max_size=8),
    lifetime=st.none() | st.integers(0, 60),
    by_column=st.booleans(),
    instants=st.booleans(),
)
def test_every_row_is_an_insert_or_refused(
    rows: list[tuple[int | None, int | None, str]],
    lifetime: int | None,
    by_column: bool,
    instants: bool,
) -> None:
    time = pa.timestamp("us", tz="UTC") if instants else pa.int64()
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    table = pa.table(
        {
            "at": pa.array(columns[0], pa.int64()).cast(time),
            "until": pa.array(columns[1], pa.int64()).cast(time),
            "name": pa.array(columns[2], pa.string()),
        }
    )
    if not by_column:
        table = table.drop_columns(["until"])
    text = f"{lifetime} microseconds" if instants and lifetime is not None else lifetime
    given_ = PlainRows("at", "until") if by_column else PlainRows("at", None, text)
    plain = given_.settled(table.schema, "here")
    schema = plain.elements(table.schema, "here")
    found = decode(plain.to_elements(table), schema)
    expected, refused = [], []
    for at, (start, until, name) in enumerate(rows):
        end: Any = until if by_column else (start or 0) + (1 if lifetime is None else lifetime)
        end = FOREVER if end is None else end
        held = all(one is FOREVER or one < LAST for one in (start or 0, end))
        if start is None or not held or end < start:
            refused.append(at)
        else:
            expected.append(Insert(name, start, end))
    assert to_elements(found.batch) == expected
    assert found.refused.rows.tolist() == refused
    assert schema.payload.names == ["name"]


@pytest.mark.parametrize("file", ["1.parquet", "1.jsonl"])
def test_an_inbox_of_plain_rows(tmp_path: Path, file: str) -> None:
    put(tmp_path / "east", [{"at": 1, "name": "a"}], file)
    put(tmp_path / "west", [{"at": 2, "name": "b"}], file)
    found = ab.inbox(tmp_path, start="at", lifetime=10)
    assert found.folder.layout is Layout.INBOX
    assert found.names == ("east", "west")
    assert found.plain is not None
    assert (found.plain.units, found.plain.length(TimeType.BIGINT)) == (10, "10")
    assert found.folder.payload.names == ["name"]
    assert found.folder.time is TimeType.BIGINT


def test_text_in_the_time_columns_of_json_lines_is_an_instant(tmp_path: Path) -> None:
    row = {"ts": "2026-11-18T09:00:00Z", "until": None, "start_of": "2026-11-18T09:00:00Z"}
    put(tmp_path / "east", [row], "1.jsonl")
    put(tmp_path / "east", [{**row, "until": "2026-11-18T10:00:00Z"}], "2.jsonl")
    found = look(tmp_path, plain=PlainRows("ts", "until"))
    assert found.time is TimeType.TIMESTAMP
    assert found.payload == pa.schema({"start_of": pa.string()})
    assert found.plain is not None
    assert found.plain.length(found.time) == ""
    hour = look(tmp_path, plain=PlainRows("ts", None, "90 minutes")).plain
    assert hour is not None
    assert hour.length(TimeType.TIMESTAMP) == "1 hour 30 minutes"


def test_a_schema_file_has_the_types_of_plain_rows(tmp_path: Path) -> None:
    put(tmp_path / "in" / "east", [{"at": 1, "price": 2}], "1.jsonl")
    schema = tmp_path / "schema.json"
    schema.write_text('{"at": "bigint", "price": "decimal(10,2)"}')
    found = ab.inbox(tmp_path / "in", schema=schema, start="at")
    assert found.folder.payload == pa.schema({"price": pa.decimal128(10, 2)})
    schema.write_text('{"price": "decimal(10,2)"}')
    with pytest.raises(SchemaError, match=r"schema\.json: no column 'at'"):
        ab.inbox(tmp_path / "in", schema=schema, start="at")


ELEMENT = {"kind": "insert", "start": 1, "end": 2, "at": 1}


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ({"a": 1}, {"start": "ts"}, r"1\.jsonl: there is no column 'ts', the column of --time"),
        ({"ts": 1}, {"start": "ts", "end": "to"}, r"no column 'to', the column of --end"),
        ({"ts": 1.5}, {"start": "ts"}, r"'ts', .* is double, expected bigint or timestamp"),
        ({"ts": None}, {"start": "ts"}, r"'ts', the column of --time .* has no value"),
        (ELEMENT, {"start": "at"}, r"1\.jsonl: holds elements .*; leave it out"),
        ({"ts": 1, "Kind": 2}, {"start": "ts"}, r"the column 'Kind' has a name that .*rename"),
        ({"ts": 1, "end": 2}, {"start": "ts"}, r"'end' has a name .* give --end end"),
    ],
)
def test_files_that_are_no_such_rows_are_rejected(
    tmp_path: Path, row: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    put(tmp_path / "east", [row], "1.jsonl")
    with pytest.raises(SchemaError, match=message):
        ab.inbox(tmp_path, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": "at", "end": "to", "lifetime": 1}, "--end to and --lifetime 1: .* give one"),
        ({"start": "at", "lifetime": -1}, r"--lifetime .* -1: an event cannot end before"),
        ({"start": "at", "lifetime": "1 hour"}, "--lifetime .* for bigint times a duration"),
        ({"start": "at", "end": "at"}, "--end at: is the column of --time too"),
        ({"lifetime": 5}, r"--lifetime \(lifetime=\) is for plain rows; .* --time"),
        ({"end": "to"}, r"--end \(end=\) is for plain rows"),
    ],
)
def test_options_that_do_not_fit_are_rejected(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    put(tmp_path / "east", [{"at": 1, "to": 2}])
    with pytest.raises(UsageError, match=message):
        ab.inbox(tmp_path, **options)


def test_files_of_plain_rows_without_a_time_column_get_a_hint(tmp_path: Path) -> None:
    put(tmp_path / "east", [{"at": 1}])
    with pytest.raises(SchemaError, match=r"anabranch merge INBOX --time COLUMN"):
        ab.inbox(tmp_path)


@pytest.mark.parametrize("file", ["1.parquet", "1.jsonl"])
def test_pieces_know_how_far_they_go_by_the_named_column(tmp_path: Path, file: str) -> None:
    put(tmp_path, [{"at": at, "name": "x"} for at in (3, 9)], file)
    assert [one.until for one in pieces_of(tmp_path / file, 1 << 20, "at")] == [9]
    assert [one.until for one in pieces_of(tmp_path / file, 1 << 20)] == [None]
