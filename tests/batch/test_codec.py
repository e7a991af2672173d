import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_tables import Drawn, drawn_tables

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, KINDS, STABLE
from anabranch.batch.buffers import take
from anabranch.batch.codec import decode, encode, from_elements, to_elements
from anabranch.batch.columns import conform
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.time import FOREVER

TEXT = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.string()}))
GREATEST = FOREVER_UNITS
ELEMENTS = [
    Insert("x", 3, 9),
    Insert("y", 3, FOREVER),
    Adjust("x", 3, 9, 3),
    Adjust("y", 3, FOREVER, 7),
    Insert(None, -5, -5),
    Stable(8),
    Stable(FOREVER),
]


def _table(**columns: object) -> pa.Table:
    return pa.table(columns)


def _decode(table: pa.Table):
    return decode(table, ElementSchema.of(table.schema, where="here"))


def test_elements_as_columns_and_back() -> None:
    batch = from_elements(ELEMENTS, TEXT)
    assert to_elements(batch) == ELEMENTS
    table = encode(batch)
    assert table.schema == TEXT.arrow
    assert table.to_pydict() == {
        "kind": ["insert", "insert", "adjust", "adjust", "insert", "stable", "stable"],
        "start": [3, 3, 3, 3, -5, 8, None],
        "end": [9, None, 3, 7, -5, None, None],
        "old_end": [None, None, 9, None, None, None, None],
        "a": ["x", "y", "x", "y", None, None, None],
    }
    decoded = decode(table, TEXT)
    assert to_elements(decoded.batch) == ELEMENTS
    assert decoded.rows.tolist() == list(range(7))
    assert (len(decoded.refused), decoded.replica) == (0, None)


def test_no_elements() -> None:
    batch = from_elements([], TEXT)
    assert to_elements(decode(encode(batch), TEXT).batch) == []
    assert to_elements(decode(TEXT.arrow.empty_table(), TEXT).batch) == []


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_kinds_of_every_text_type(kind: pa.DataType) -> None:
    kinds = pa.array(["insert", "stable", "adjust"]).cast(kind)
    table = _table(kind=kinds, start=[1, 2, 1], end=[2, None, 3], a=["x", None, "x"])
    decoded = _decode(table)
    assert to_elements(decoded.batch) == [
        Insert("x", 1, 2),
        Stable(2),
        Adjust("x", 1, FOREVER, 3),
    ]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (("insrt", 1, 2, None), "kind is 'insrt', expected 'insert', 'adjust' or 'stable'"),
        ((None, 1, 2, None), "kind is None, expected"),
        (("insert", None, 2, None), "start is null, but an insert needs one"),
        (("adjust", None, 2, 3), "start is null, but an adjust needs one"),
        (("insert", 5, 2, None), "end 2 is before start 5"),
        (("adjust", 5, 2, 9), "end 2 is before start 5"),
        (("insert", GREATEST, None, None), f"start is {GREATEST}, which cannot be held"),
        (("insert", 1, GREATEST, None), f"end is {GREATEST}, which cannot be held"),
        (("adjust", 1, 2, GREATEST), f"old_end is {GREATEST}, which cannot be held"),
        (("stable", GREATEST, None, None), f"start is {GREATEST}, which cannot be held"),
    ],
)
def test_rows_that_are_no_elements_are_refused(row: tuple, reason: str) -> None:
    good = ("insert", 1, None, None)
    names = ("kind", "start", "end", "old_end")
    columns = dict(zip(names, map(list, zip(good, row, good, strict=True)), strict=True))
    types = {"kind": pa.string(), **dict.fromkeys(names[1:], pa.int64())}
    table = pa.table(columns, pa.schema(types)).append_column("a", pa.array(["x", "y", "z"]))
    decoded = _decode(table)
    assert decoded.refused.rows.tolist() == [1]
    assert decoded.refused.reasons[0].startswith(reason)
    assert decoded.rows.tolist() == [0, 2]
    assert to_elements(decoded.batch) == [Insert("x", 1, FOREVER), Insert("z", 1, FOREVER)]


def test_what_a_kind_gives_no_meaning_to_is_ignored() -> None:
    table = _table(
        kind=["stable", "insert", "stable"],
        start=[4, 5, 6],
        end=[GREATEST, 7, -1],
        old_end=[1, GREATEST, 1],
        a=["x", "y", None],
    )
    decoded = _decode(table)
    assert len(decoded.refused) == 0
    assert decoded.batch.old_end.tolist() == [0, 0, 0]
    assert decoded.batch.end.tolist() == [0, 7, 0]
    assert decoded.batch.payload["a"].to_pylist() == [None, "y", None]


def test_seq_and_replica() -> None:
    table = _table(
        kind=["insert"] * 3,
        start=pa.array([1, 2, 3], pa.int16()),
        end=pa.array([9, 9, 9], pa.int8()),
        seq=pa.array([4, None, 6], pa.int32()),
        replica=pa.array(["east", "west", "east"]).dictionary_encode(),
    )
    decoded = _decode(table)
    assert decoded.refused.reasons == ("seq is null, but this stream is ordered by seq",)
    assert decoded.batch.seq.tolist() == [4, 6]
    assert decoded.replica.to_pylist() == ["east", "east"]
    again = encode(decoded.batch, replica="north")
    assert again.schema == decoded.batch.schema.arrow
    assert again["replica"].to_pylist() == ["north", "north"]
    assert again["seq"].to_pylist() == [4, 6]
    bare = from_elements([Stable(1)], decoded.batch.schema)
    assert bare.seq.tolist() == [0]
    nothing = encode(type(bare)(*(getattr(bare, f) for f in list(vars(bare))[:6])))
    assert nothing["seq"].to_pylist() == nothing["replica"].to_pylist() == [None]


def test_a_missing_column_is_named() -> None:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.int8()}), has_seq=True)
    table = _table(kind=["insert"], start=[1], end=[2])
    with pytest.raises(SchemaError, match="no column 'a' and no column 'seq' among"):
        decode(table, schema)


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Paris"])
@pytest.mark.parametrize(("unit", "factor"), [("s", 10**6), ("ms", 1000), ("us", 1)])
def test_timestamps_are_microseconds(unit: str, factor: int, zone: str | None) -> None:
    limit = FOREVER_UNITS // factor
    values = [3, -4, limit - 1, limit + 1 if unit != "us" else limit, -limit - 1]
    times = pa.array(values, pa.timestamp(unit, zone))
    table = _table(kind=["stable"] * 5, start=times, end=pa.nulls(5))
    decoded = _decode(table)
    assert decoded.batch.schema.time is TimeType.TIMESTAMP
    expected = [value * factor for value in values]
    fits = [-(2**63) < value < 2**63 - 1 or unit == "us" for value in expected]
    fits[3] = False
    kept = [value for value, fit in zip(expected, fits, strict=True) if fit]
    assert decoded.batch.start.tolist() == kept
    assert all("cannot be held" in reason for reason in decoded.refused.reasons)


def test_nanoseconds_must_be_whole_microseconds() -> None:
    times = pa.array([5000, 5001, -5000, -1], pa.timestamp("ns"))
    decoded = _decode(_table(kind=["stable"] * 4, start=times, end=pa.nulls(4)))
    assert decoded.batch.start.tolist() == [5, -5]
    assert decoded.refused.rows.tolist() == [1, 3]
    start = encode(decoded.batch)["start"]
    assert start.to_pylist()[0] == dt.datetime(1970, 1, 1, 0, 0, 0, 5, dt.UTC)


def test_payload_columns_take_the_types_of_the_schema() -> None:
    table = _table(
        kind=["insert"], start=[1], end=[2], b=[1], a=pa.array(["x"]).dictionary_encode()
    )
    decoded = decode(table, TEXT)
    assert decoded.batch.payload.schema == TEXT.payload


times = st.integers(-(2**63), 2**63 - 2)


@given(drawn_tables(), st.data())
def test_encode_and_decode_are_inverse(drawn: Drawn, data: st.DataObject) -> None:
    """Random rows: the same table comes back, but for refused rows and meaningless cells."""
    count = drawn.table.num_rows
    rows = data.draw(
        st.lists(
            st.tuples(st.sampled_from(KINDS), times, st.none() | times, st.none() | times),
            min_size=count,
            max_size=count,
        )
    )
    kind, start, end, old_end = zip(*rows, strict=True) if rows else ((),) * 4
    table = drawn.table
    for name, values in (("old_end", old_end), ("end", end), ("start", start)):
        table = table.add_column(0, name, pa.array(values, pa.int64()))
    table = table.add_column(0, "kind", pa.array(kind, pa.string()))
    schema = ElementSchema.of(table.schema, where="here")
    decoded = decode(table, schema)
    batch = decoded.batch
    bad = [k != "stable" and e is not None and e < s for k, s, e, _ in rows]
    assert decoded.refused.rows.tolist() == np.flatnonzero(bad).tolist()
    assert decoded.rows.tolist() == np.flatnonzero(~np.array(bad, np.bool_)).tolist()
    assert (batch.old_end[batch.kind != ADJUST] == 0).all()
    encoded = encode(batch)
    encoded.validate(full=True)
    assert repr(encode(decode(encoded, schema).batch).to_pylist()) == repr(encoded.to_pylist())
    stable = set(np.flatnonzero(batch.kind == STABLE).tolist())
    kept = take(conform(table, schema.payload), decoded.rows)
    for name in drawn.table.column_names:
        pairs = zip(encoded[name].to_pylist(), kept[name].to_pylist(), strict=True)
        for row, (found, given_value) in enumerate(pairs):
            assert repr(found) == repr(None if row in stable else given_value)
