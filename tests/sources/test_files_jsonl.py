"""JSON lines: one schema over all lines of all files, bad lines named and left out."""

import json
from decimal import Decimal

import pyarrow as pa
import pytest

from anabranch.batch.schema import TimeType
from anabranch.errors import FileError, SchemaError
from anabranch.sources import jsonl
from anabranch.sources.elements import scan
from anabranch.sources.files import Layout, look

INSERT = {"kind": "insert", "start": 1, "end": 5}


def lines(*rows: object) -> str:
    return "".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows)


def rows_of(path, *, schema=None):
    chunks = [*scan(look(path, schema=schema))]
    return (
        [row for chunk in chunks for row in chunk.table.to_pylist()],
        [(line.row, line.reason) for chunk in chunks for line in chunk.refused],
    )


def test_the_schema_is_the_union_of_all_files_never_of_one(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({**INSERT, "n": 1, "s": {"x": 1}}))
    (tmp_path / "b.json").write_text(lines({**INSERT, "n": 1.5, "s": {"y": ["t"]}}))
    (tmp_path / "c.ndjson").write_text(lines({"kind": "stable", "start": 9}))
    (tmp_path / "d.jsonl").touch()
    found = look(tmp_path)
    assert (found.layout, found.rows) == (Layout.STREAM, 3)
    assert found.schema.field("n").type == pa.float64()
    rows, refused = rows_of(tmp_path)
    assert refused == []
    assert [row["s"] for row in rows] == [{"x": 1, "y": None}, {"x": None, "y": ["t"]}, None]
    assert [row["end"] for row in rows] == [5, 5, None]


def test_times_that_no_line_mentions_are_null(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({"kind": "insert", "start": 1, "a": None}))
    rows, _ = rows_of(tmp_path)
    assert rows == [{"kind": "insert", "start": 1, "a": None, "end": None, "old_end": None}]


def test_iso_times_with_a_zone_are_timestamps_and_other_text_is_text(tmp_path):
    row = {"kind": "insert", "start": "2024-05-31T14:00:00+02:00", "d": "2024-05-31T14:00:00Z"}
    (tmp_path / "a.jsonl").write_text(lines(row))
    assert look(tmp_path).time is TimeType.TIMESTAMP
    (found,), _ = rows_of(tmp_path)
    assert found["start"].isoformat() == "2024-05-31T12:00:00+00:00"
    assert found["d"] == "2024-05-31T14:00:00Z"


def test_a_line_that_cannot_be_read_is_refused_with_its_number_and_the_rest_goes_on(tmp_path):
    bad = [
        "{bad\n",
        "\n",
        "[1]\n",
        '{"end": 1}{"end": 2}\n',
        '{"kind": "a", "kind": "b"}\n',
        "  \r\n",
    ]
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b"\xef\xbb\xbf" + lines(INSERT, *bad, INSERT).encode() + b'{"kind": "\xff"}\n{"kind"'
    )
    rows, refused = rows_of(file)
    assert [row["start"] for row in rows] == [1, 1]
    assert [row for row, _ in refused] == [2, 4, 5, 6, 9, 10]
    reasons = [reason for _, reason in refused]
    assert "not JSON" in reasons[0]
    assert reasons[1] == "the line is a JSON array, expected an object"
    assert reasons[2] == "2 JSON objects in the line, expected one"
    assert "twice" in reasons[3]
    assert "UTF-8" in reasons[4]


def test_a_time_without_a_zone_is_refused_by_line_never_guessed(tmp_path):
    good = {"kind": "insert", "start": "2024-05-31T14:00:00Z"}
    (tmp_path / "a.jsonl").write_text(lines(good, {**good, "start": "2024-05-31T14:00:00"}))
    rows, ((row, reason),) = rows_of(tmp_path)
    assert (len(rows), row) == (1, 2)
    assert "'start'" in reason
    assert "with a zone, like 2024-05-31T12:00:00Z" in reason


def test_a_fraction_in_a_column_of_whole_numbers_is_refused_by_line_and_column(tmp_path):
    nested = pa.struct([("n", pa.list_(pa.int64()))])
    schema = pa.schema({"a": pa.int64(), "b": pa.int64(), "s": nested})
    rows = [{"a": 1, "b": 1.5}, {"a": 1, "b": 2}, {"s": {"n": [1, 2.5]}}, {"a": 1e30}]
    (tmp_path / "a.jsonl").write_text(lines(*rows))
    (found,) = jsonl.read(tmp_path / "a.jsonl", schema)
    assert found.rows.tolist() == [2]
    reasons = [line.reason for line in found.refused]
    assert reasons[0].startswith("column 'b': 1.5 is not a whole number, but the column is big")
    assert [reason.partition(":")[0] for reason in reasons] == [
        "column 'b'",
        "column 's'",
        "column 'a'",
    ]


def test_blocks_do_not_show(tmp_path, monkeypatch):
    monkeypatch.setattr(jsonl, "BLOCK", 64)
    rows = [{**INSERT, "start": i, "a": "x" * (i % 90)} for i in range(40)]
    texts = [json.dumps(row) + "\n" for row in rows]
    texts[20] = "{\n"
    (tmp_path / "a.jsonl").write_text("".join(texts).rstrip("\n"))
    found, refused = rows_of(tmp_path)
    assert [row["start"] for row in found] == [i for i in range(40) if i != 20]
    assert [row for row, _ in refused] == [21]


def test_a_schema_file_names_types_that_json_lacks(tmp_path):
    types = {
        "kind": "string",
        "start": "timestamp",
        "price": "decimal(6,2)",
        "day": "date",
        "raw": "binary",
        "tags": "array<struct<k: string, v: int>>",
        "ok": "boolean",
    }
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(types))
    good = {"kind": "insert", "start": "2024-05-31T00:00:00Z", "price": 1.25, "ok": True}
    good |= {"day": "2024-05-31", "raw": "AP8=", "tags": [{"k": "a", "v": 1}]}
    bad = [{**good, "day": "soon"}, {**good, "raw": "%"}, {**good, "price": "x"}]
    bad += [{**good, "start": 5}, {**good, "ok": "yes"}, {**good, "price": 1.255}]
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "a.jsonl").write_text(lines(good, *bad, {"kind": "stable"}))
    (first, last), refused = rows_of(tmp_path / "a", schema=schema)
    assert (first["price"], first["raw"]) == (Decimal("1.25"), b"\x00\xff")
    assert (first["day"].isoformat(), first["tags"]) == ("2024-05-31", [{"k": "a", "v": 1}])
    assert (last["start"], last["end"], last["old_end"]) == (None, None, None)
    assert [row for row, _ in refused] == [2, 3, 4, 5, 6, 7]
    assert "'day' is 'soon', expected a date" in refused[0][1]
    assert "base64" in refused[1][1]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "JSON"),
        ("[]", "object"),
        ('{"a": 1}', "object"),
        ('{"a": "bigint"}', "'start'"),
        ('{"start": "big"}', "unknown type 'big'"),
        ('{"start": "bigint", "a": "decimal(40,2)"}', "decimal"),
        ('{"start": "bigint", "a": "struct<bigint>"}', "struct"),
        ('{"start": "bigint", "a": "map<string,bigint>"}', "unknown type"),
    ],
)
def test_a_wrong_schema_file_is_named(tmp_path, text, word):
    schema = tmp_path / "schema.txt"
    schema.write_text(text)
    (tmp_path / "a.jsonl").write_text(lines(INSERT))
    with pytest.raises((FileError, SchemaError)) as caught:
        look(tmp_path / "a.jsonl", schema=schema)
    assert "schema.txt" in str(caught.value)
    assert word in str(caught.value)


BAD = {
    "two types": (lines({**INSERT, "a": 1}, {**INSERT, "a": "x"}), ["line 2", "'a'", "string"]),
    "two kinds of time": (
        lines(INSERT, {**INSERT, "start": "2024-01-01T00:00:00Z"}),
        ["'start'"],
    ),
    "times that differ": (lines({**INSERT, "end": "2024-01-01T00:00:00Z"}), ["'end'", "cast"]),
    "a fraction": (
        lines({**INSERT, "start": 1.5}),
        ["'start'", "double", "bigint or timestamp"],
    ),
    "no JSON at all": ("hello\nworld\n", ["no line of it is a JSON object", "move"]),
    "other columns": (lines({"x": 1}), ["'kind'", "['x']", "rename"]),
    "a rounded number": (
        lines({**INSERT, "a": 1.5}, {**INSERT, "a": 2**60 + 1}),
        ["'a'", "--schema"],
    ),
    "a wide number": (lines({**INSERT, "a": [2**70]}), ["'a'", "--schema", "decimal"]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_all_lines_together_show_is_an_error(tmp_path, what):
    text, words = BAD[what]
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises((FileError, SchemaError)) as caught:
        look(tmp_path)
    assert [word for word in ["a.jsonl", *words] if word not in str(caught.value)] == []


def test_types_that_differ_between_files_name_both(tmp_path):
    (tmp_path / "a.jsonl").write_text(lines({**INSERT, "a": 1}))
    (tmp_path / "b.jsonl").write_text(lines({**INSERT, "a": True}))
    with pytest.raises(
        SchemaError, match=r"b\.jsonl: column 'a' is bool, expected int64.*a\.jsonl"
    ):
        look(tmp_path)


def test_whole_numbers_up_to_64_bits_stay_exact(tmp_path):
    values = [2**63 - 1, -(2**63), 2**53 + 1]
    (tmp_path / "a.jsonl").write_text(lines(*({**INSERT, "a": value} for value in values)))
    rows, _ = rows_of(tmp_path)
    assert [row["a"] for row in rows] == values


def test_wide_numbers_in_text_and_in_columns_of_their_own_are_fine(tmp_path):
    rows = [{**INSERT, "f": 1.5, "n": [1], "t": "[12345678901234567890,"}]
    rows += [{**INSERT, "f": 2.5, "n": [2**60], "s": {"d": 1.5}}]
    (tmp_path / "a.jsonl").write_text(lines(*rows, "{1234567890123456789,\n"))
    assert look(tmp_path).rows == 2


def test_a_rounded_number_in_a_struct_is_refused(tmp_path):
    rows = [{**INSERT, "s": {"d": 1.5}}, {**INSERT, "s": {"d": 2**60 + 1}}]
    (tmp_path / "a.jsonl").write_text(lines(*rows))
    with pytest.raises(SchemaError, match="'s' holds a whole number"):
        look(tmp_path)


def test_structs_and_arrays_of_other_values_do_not_unite(tmp_path):
    for name, value in (("a", {"x": 1}), ("b", {"x": "t"})):
        (tmp_path / f"{name}.jsonl").write_text(lines({**INSERT, "s": [value]}))
    with pytest.raises(SchemaError, match=r"b\.jsonl: column 's'"):
        look(tmp_path)


def test_a_number_that_does_not_fit_its_type_is_refused(tmp_path):
    (tmp_path / "types").write_text('{"kind": "string", "start": "bigint", "n": "int"}')
    (tmp_path / "a.jsonl").write_text(lines({**INSERT, "n": 2**40}))
    _, ((row, reason),) = rows_of(tmp_path / "a.jsonl", schema=tmp_path / "types")
    assert (row, "int32" in reason) == (1, True)
