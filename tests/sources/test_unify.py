"""Types that hold two others without loss, and those that do not exist."""

import pyarrow as pa
import pytest

from anabranch.errors import SchemaError
from anabranch.sources.unify import common_type, shared_payload

US = pa.timestamp("us", tz="UTC")
PAIRS = [
    (pa.int8(), pa.int64(), pa.int64()),
    (pa.uint8(), pa.uint32(), pa.uint32()),
    (pa.uint8(), pa.int8(), pa.int16()),
    (pa.uint32(), pa.int8(), pa.int64()),
    (pa.uint64(), pa.int8(), None),
    (pa.uint64(), pa.decimal128(20, 0), pa.decimal128(20, 0)),
    (pa.int64(), pa.decimal128(10, 0), None),
    (pa.decimal128(5, 2), pa.decimal128(9, 2), pa.decimal128(9, 2)),
    (pa.decimal128(38, 2), pa.decimal256(50, 2), pa.decimal256(50, 2)),
    (pa.decimal128(5, 2), pa.decimal128(5, 1), None),
    (pa.float16(), pa.float32(), pa.float32()),
    (pa.float64(), pa.int64(), None),
    (pa.large_string(), pa.string_view(), pa.string()),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), pa.string()),
    (pa.large_binary(), pa.binary(4), pa.binary()),
    (pa.string(), pa.binary(), None),
    (pa.null(), US, US),
    (pa.timestamp("ms"), US, US),
    (pa.timestamp("ns", tz="Europe/Rome"), US, pa.timestamp("ns", tz="UTC")),
    (pa.timestamp("s"), pa.int64(), None),
    (pa.date64(), pa.date32(), pa.date32()),
    (pa.list_(pa.int8()), pa.large_list(pa.int16()), pa.list_(pa.int16())),
    (pa.list_(pa.int8()), pa.list_(pa.string()), None),
    (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.int64()}), pa.struct({"a": pa.int64()})),
    (pa.struct({"a": pa.int8()}), pa.struct({"b": pa.int8()}), None),
    (pa.struct({"a": pa.int8()}), pa.struct({"a": pa.string()}), None),
]


@pytest.mark.parametrize(("a", "b", "both"), PAIRS)
def test_the_common_type_does_not_depend_on_the_order(a, b, both):
    assert common_type(a, b) == both
    assert common_type(b, a) == both


def test_payloads_are_matched_by_name():
    a = pa.schema({"x": pa.int32(), "y": pa.large_string()})
    b = pa.schema({"y": pa.string(), "x": pa.int64()})
    shared = shared_payload(a, b, where_a="A", where_b="B")
    assert shared == pa.schema({"x": pa.int64(), "y": pa.string()})


def test_columns_that_one_side_lacks_are_named():
    a, b = (
        pa.schema({"x": pa.int8(), "z": pa.int8()}),
        pa.schema({"x": pa.int8(), "y": pa.int8()}),
    )
    with pytest.raises(
        SchemaError, match=r"here alone has \['z'\] and there alone has \['y'\]"
    ):
        shared_payload(a, b, where_a="here", where_b="there")


def test_a_column_of_two_types_is_named():
    a, b = pa.schema({"x": pa.int8()}), pa.schema({"x": pa.string()})
    with pytest.raises(
        SchemaError, match="there: column 'x' is string, expected int8 as in here"
    ):
        shared_payload(a, b, where_a="here", where_b="there")
