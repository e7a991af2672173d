"""Payload types between Arrow and Spark: values survive, and what cannot is refused by name."""

import pyarrow as pa
import pytest
from pyspark.sql import types as st

from anabranch.errors import SchemaError
from anabranch.spark.columns import canonical, canonical_schema, spark_schema, spark_type

UTC = pa.timestamp("us", tz="UTC")

FORMS = [
    (pa.uint8(), pa.int16(), st.ShortType()),
    (pa.uint64(), pa.decimal128(20, 0), st.DecimalType(20, 0)),
    (pa.float16(), pa.float32(), st.FloatType()),
    (pa.large_string(), pa.string(), st.StringType()),
    (pa.binary(4), pa.binary(), st.BinaryType()),
    (pa.null(), pa.string(), st.StringType()),
    (pa.date64(), pa.date32(), st.DateType()),
    (pa.timestamp("ms", tz="Europe/Paris"), UTC, st.TimestampType()),
    (pa.timestamp("s"), pa.timestamp("us"), st.TimestampNTZType()),
    (pa.decimal256(38, 3), pa.decimal128(38, 3), st.DecimalType(38, 3)),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), st.StringType()),
    (
        pa.large_list(pa.uint16()),
        pa.list_(pa.field("element", pa.int32())),
        st.ArrayType(st.IntegerType()),
    ),
    (
        pa.struct({"a": pa.list_(pa.bool_())}),
        pa.struct({"a": pa.list_(pa.field("element", pa.bool_()))}),
        st.StructType([st.StructField("a", st.ArrayType(st.BooleanType()))]),
    ),
]


@pytest.mark.parametrize(("came", "inside", "in_spark"), FORMS, ids=str)
def test_one_form_inside_and_its_name_in_spark(
    came: pa.DataType, inside: pa.DataType, in_spark: st.DataType
) -> None:
    assert canonical(came, where="x", column="c") == inside
    assert spark_type(inside) == in_spark


@pytest.mark.parametrize(
    "came",
    [
        pa.time64("us"),
        pa.duration("s"),
        pa.decimal256(50, 3),
        pa.list_(pa.time32("s")),
        pa.struct({"a": pa.duration("us")}),
    ],
    ids=str,
)
def test_what_spark_has_no_type_for_is_refused(came: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=r"x: column 'c' is .*no type for; cast it"):
        canonical_schema(pa.schema({"c": came}), where="x")


def test_schemas_keep_names_and_order() -> None:
    schema = canonical_schema(pa.schema({"b": pa.uint8(), "a": pa.string()}), where="x")
    assert spark_schema(schema).names == ["b", "a"]
