"""What a check reads: formats, times, payload types, seq, replicas, and rows that are none."""

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from anabranch.checker.compare import DIFFERENT_END, check
from anabranch.checker.judge import OTHER_ELEMENT, SAME_SEQ
from anabranch.errors import SchemaError, UsageError, ViolationError

ROWS = [
    {"kind": "insert", "start": 1, "end": 9, "seq": 1, "a": "x"},
    {"kind": "insert", "start": 2, "end": None, "seq": 2, "a": "y"},
    {"kind": "stable", "start": 3, "end": None, "seq": 3, "a": None},
    {"kind": "adjust", "start": 2, "end": 8, "seq": 4, "a": "y", "old_end": None},
]
TYPES = {
    "kind": pa.string(),
    "start": pa.int64(),
    "end": pa.int64(),
    "old_end": pa.int64(),
    "seq": pa.int64(),
    "replica": pa.string(),
    "a": pa.string(),
}


def parquet(
    folder: Path, rows: list[dict], *, name: str = "part-0", **types: pa.DataType
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    names = {name: None for row in rows for name in row}
    fields = [(n, types.get(n, TYPES.get(n))) for n in names]
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields)), folder / f"{name}.parquet")
    return folder


def jsonl(folder: Path, rows: list[dict]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "part-0.jsonl").write_text(text)
    return folder


def test_json_lines_and_parquet_have_the_same_verdict(tmp_path):
    a, b = parquet(tmp_path / "a", ROWS), jsonl(tmp_path / "b", ROWS)
    verdict = check(a, b)
    assert verdict.ok
    assert verdict.a.streams == verdict.b.streams
    changed = jsonl(tmp_path / "c", [*ROWS[:3], {**ROWS[3], "end": 7}])
    assert [line.what for line in check(a, changed).comparisons[0].first_lines] == [
        DIFFERENT_END
    ]
    assert not check(changed, a).ok


def test_payload_types_that_json_lacks_are_those_of_the_other_side(tmp_path):
    row = {"kind": "insert", "start": 1, "end": 2}
    values = {"d": date(2024, 5, 31), "n": Decimal("1.50"), "f": 2.0, "b": b"\x00\xff"}
    types = {"d": pa.date32(), "n": pa.decimal128(5, 2), "f": pa.float32(), "b": pa.binary()}
    a = parquet(tmp_path / "a", [{**row, **values}], **types)
    b = jsonl(tmp_path / "b", [{**row, "d": "2024-05-31", "n": 1.5, "f": 2, "b": "AP8="}])
    assert check(a, b).ok
    assert check(b, a).ok


def test_timestamps_of_any_unit_and_zone_are_instants(tmp_path):
    rows = [{"kind": "insert", "start": 1000, "end": None, "a": "x"}]
    ms = dict.fromkeys(("start", "end"), pa.timestamp("ms"))
    us = dict.fromkeys(("start", "end"), pa.timestamp("us", tz="Asia/Tokyo"))
    a = parquet(tmp_path / "a", rows, **ms)
    b = parquet(tmp_path / "b", [{**rows[0], "start": 1_000_000}], **us)
    c = jsonl(
        tmp_path / "c", [{"kind": "insert", "start": "1970-01-01T01:00:01+01:00", "a": "x"}]
    )
    assert check(a, b).ok
    assert check(b, c).ok
    other = parquet(tmp_path / "d", [{**rows[0], "end": 5000}], **ms)
    (line,) = check(a, other).comparisons[0].first_lines
    assert (line.start, line.end_a, line.end_b) == (
        "1970-01-01T00:00:01Z",
        "forever",
        "1970-01-01T00:00:05Z",
    )


def test_times_of_two_types_do_not_compare(tmp_path):
    rows = [{"kind": "insert", "start": 1, "end": 2, "a": "x"}]
    us = dict.fromkeys(("start", "end"), pa.timestamp("us"))
    a, b = parquet(tmp_path / "a", rows), parquet(tmp_path / "b", rows, **us)
    with pytest.raises(SchemaError, match=r"b: its times are timestamp.*bigint"):
        check(a, b)


UNUSUAL = {
    "text": (pa.string(), ["", "[bold]", "\x00\n", "😀", None]),
    "doubles": (pa.float64(), [float("nan"), 0.0, float("inf"), -1e-300, None]),
    "decimals": (pa.decimal128(38, 4), [Decimal("1.0001"), Decimal(-1), None]),
    "dates": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "bytes": (pa.binary(), [b"", b"\xff\x00", None]),
    "arrays": (pa.list_(pa.int8()), [[], [None], [1, 2], None]),
    "structs": (pa.struct({"x": pa.list_(pa.string())}), [{"x": None}, {"x": ["a"]}, None]),
    "booleans": (pa.bool_(), [True, False, None]),
    "nothing": (pa.null(), [None, None]),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_unusual_payloads_are_distinguished_by_value(tmp_path, what):
    kind, values = UNUSUAL[what]
    rows = [{"kind": "insert", "start": 1, "end": 5, "v": value} for value in values]
    a = parquet(tmp_path / "a", rows, v=kind)
    assert check(a, parquet(tmp_path / "b", rows[::-1], v=kind)).ok
    verdict = check(a, parquet(tmp_path / "c", rows[1:], v=kind))
    assert (verdict.comparisons[0].only_in_a, verdict.comparisons[0].only_in_b) == (1, 0)
    json.dumps(verdict.to_dict(), allow_nan=False)


def test_signed_zero_and_nan_are_equal_as_in_group_by(tmp_path):
    zero, minus = ([{"kind": "insert", "start": 1, "end": 5, "v": v}] for v in (0.0, -0.0))
    kind = pa.float64()
    assert check(
        parquet(tmp_path / "a", zero, v=kind), parquet(tmp_path / "b", minus, v=kind)
    ).ok


def test_a_stream_without_payload_is_a_stream(tmp_path):
    rows = [
        {"kind": "insert", "start": 1, "end": 5},
        {"kind": "stable", "start": 2, "end": None},
    ]
    a = parquet(tmp_path / "a", rows)
    b = parquet(tmp_path / "b", [*rows, {"kind": "insert", "start": 3, "end": 5}])
    assert check(a, a).ok
    (found,) = check(a, b).comparisons
    assert (found.only_in_b, found.first_lines[0].payload) == (1, {})


def test_columns_in_another_order_and_width_are_the_same(tmp_path):
    row = {"kind": "insert", "start": 1, "end": 5, "m": 1, "n": "x"}
    a = parquet(tmp_path / "a", [row], m=pa.int8(), n=pa.large_string())
    swapped = {name: row[name] for name in ("n", "m", "end", "start", "kind")}
    b = parquet(tmp_path / "b", [swapped], m=pa.int64(), n=pa.string())
    assert check(a, b).ok


def test_seq_orders_a_stream_whatever_the_order_of_files(tmp_path):
    for name, row in zip("dcba", ROWS, strict=True):
        parquet(tmp_path / "a", [{"old_end": None, **row}], name=name)
    assert check(tmp_path / "a").ok
    unordered = [{k: v for k, v in row.items() if k != "seq"} for row in ROWS]
    for name, row in zip("dcba", unordered, strict=True):
        parquet(tmp_path / "b", [{"old_end": None, **row}], name=name)
    assert not check(tmp_path / "b").ok


def test_a_repeated_seq_is_a_redelivery_in_an_inbox_and_a_fault_in_a_stream(tmp_path):
    parquet(tmp_path / "inbox" / "east", [*ROWS, *ROWS[:2]])
    found = check(tmp_path / "inbox")
    (stream,) = found.a.streams
    assert found.ok
    assert (stream.redelivered, stream.violations, stream.events) == (2, 0, 2)
    (stream,) = check(tmp_path / "inbox" / "east").a.streams
    assert (stream.redelivered, stream.violations) == (0, 2)
    assert [(v.row, v.reason) for v in stream.first_violations] == [
        (5, SAME_SEQ),
        (6, SAME_SEQ),
    ]
    (tmp_path / "inbox" / "east" / "_replica.json").write_text("{}")
    assert check(tmp_path / "inbox" / "east").ok


def test_a_redelivery_must_be_the_same_element(tmp_path):
    parquet(
        tmp_path / "inbox" / "east", [*ROWS, {**ROWS[0], "end": 5}, {**ROWS[2], "start": 2}]
    )
    (stream,) = check(tmp_path / "inbox").a.streams
    assert [(v.row, v.kind, v.reason) for v in stream.first_violations] == [
        (5, "insert", OTHER_ELEMENT),
        (6, "stable", OTHER_ELEMENT),
    ]


def test_every_replica_of_an_inbox_is_compared(tmp_path):
    inbox, truth = tmp_path / "inbox", parquet(tmp_path / "truth", ROWS)
    parquet(inbox / "east", ROWS)
    parquet(inbox / "west", [*ROWS[:3]])
    (inbox / "north").mkdir()
    verdict = check(inbox, truth)
    assert {one.replica: one.equal for one in verdict.comparisons} == {
        "east": True,
        "north": False,
        "west": False,
    }
    empty = next(stream for stream in verdict.a.streams if stream.replica == "north")
    assert (empty.elements, empty.frontier) == (0, "never")
    below = check(inbox, truth, until_frontier=True)
    assert below.ok
    assert {one.replica: one.below for one in below.comparisons}["north"] == "never"


def test_a_replica_column_is_compared_copy_by_copy(tmp_path):
    rows = [{**row, "replica": name} for row in ROWS for name in ("w", "e")]
    a = parquet(tmp_path / "a", rows)
    verdict = check(a, parquet(tmp_path / "b", ROWS))
    assert verdict.ok
    assert sorted(stream.replica for stream in verdict.a.streams) == ["e", "w"]
    with pytest.raises(UsageError, match="several copies"):
        check(tmp_path / "b", a)


def test_rows_that_are_no_elements_are_named_and_the_rest_goes_on(tmp_path):
    bad = [
        {"kind": "upsert", "start": 1, "end": 2},
        {"kind": "insert", "start": None, "end": 2},
        {"kind": "insert", "start": 5, "end": 2},
    ]
    a = parquet(tmp_path / "a", [*bad, *ROWS[:2]])
    verdict = check(a, limit=2)
    assert not verdict.ok
    assert (verdict.a.refused, verdict.a.streams[0].events) == (3, 2)
    assert [row.row for row in verdict.a.first_refused] == [1, 2]
    assert "'upsert'" in verdict.a.first_refused[0].reason
    with pytest.raises(ViolationError, match=r"part-0\.parquet, row 1: .*upsert"):
        check(a, strict=True)


def test_what_cannot_be_meant_is_refused(tmp_path):
    a = parquet(tmp_path / "a", ROWS)
    with pytest.raises(UsageError, match="name B"):
        check(a, until_frontier=True)
    with pytest.raises(UsageError, match="JSON lines"):
        check(a, schema=tmp_path / "schema.json")
    with pytest.raises(SchemaError, match=r"alone has \['b'\]"):
        check(a, parquet(tmp_path / "b", [{**ROWS[0], "b": 1}], b=pa.int64()))


def test_a_schema_file_serves_the_side_that_is_json(tmp_path):
    (tmp_path / "types").write_text('{"kind": "string", "start": "bigint", "a": "string"}')
    rows = [{k: v for k, v in row.items() if k != "seq"} for row in ROWS]
    a, b = jsonl(tmp_path / "a", rows), parquet(tmp_path / "b", rows)
    assert check(a, b, schema=tmp_path / "types").ok
