"""Payload types between Arrow and Spark: one canonical Arrow type for each, or a clear refusal.

Files come with many physical forms of the same values (dictionaries, large strings, unsigned
integers).  Inside Spark a column has one: the Arrow type that Spark itself uses.  `canonical`
reports which; `spark_schema` has Spark's name for it.  Widening is allowed, losing is not: a
type that Spark cannot hold raises `SchemaError` when the query is built.

>>> canonical(pa.dictionary(pa.int32(), pa.large_string()), where="x", column="name")
DataType(string)
"""

from collections.abc import Callable
from typing import Final

import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql import types as st

from anabranch.errors import SchemaError
from anabranch.sources.unify import one_form

_WIDER: Final[dict[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.null(): pa.string(),  # a column without a value; Spark can write no typeless column
}

_PLAIN: Final[dict[pa.DataType, st.DataType]] = {
    pa.bool_(): st.BooleanType(),
    pa.int8(): st.ByteType(),
    pa.int16(): st.ShortType(),
    pa.int32(): st.IntegerType(),
    pa.int64(): st.LongType(),
    pa.float32(): st.FloatType(),
    pa.float64(): st.DoubleType(),
    pa.string(): st.StringType(),
    pa.binary(): st.BinaryType(),
    pa.date32(): st.DateType(),
    pa.timestamp("us", tz="UTC"): st.TimestampType(),
    pa.timestamp("us"): st.TimestampNTZType(),
}

_MOST_DIGITS: Final = 38


def canonical(kind: pa.DataType, *, where: str, column: str) -> pa.DataType:
    """The one Arrow type in which values of this type travel through Spark."""
    kind = one_form(kind)
    if pt.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC") if kind.tz else pa.timestamp("us")
    if pt.is_decimal(kind) and kind.precision <= _MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    inner = _nested(kind, lambda child: canonical(child, where=where, column=column))
    plain = _WIDER.get(kind, kind)
    if inner is not None:
        return inner
    if plain in _PLAIN or plain == pa.decimal128(20, 0):
        return plain
    message = (
        f"{where}: column '{column}' is {kind}, which Spark has no type for; "
        "cast it (for example to bigint, decimal or string) or drop it"
    )
    raise SchemaError(message)


def canonical_schema(schema: pa.Schema, *, where: str) -> pa.Schema:
    """The same columns, each in its canonical type."""
    return pa.schema(
        [pa.field(f.name, canonical(f.type, where=where, column=f.name)) for f in schema]
    )


def spark_schema(schema: pa.Schema) -> st.StructType:
    """What Spark calls columns of these canonical types."""
    return st.StructType([st.StructField(f.name, spark_type(f.type)) for f in schema])


def spark_type(kind: pa.DataType) -> st.DataType:
    """What Spark calls a canonical type."""
    if pt.is_decimal(kind):
        return st.DecimalType(kind.precision, kind.scale)
    if pt.is_list(kind):
        return st.ArrayType(spark_type(kind.value_type))
    if pt.is_struct(kind):
        return spark_schema(pa.schema(list(kind)))
    return _PLAIN[kind]


def arrow_schema(schema: st.StructType, *, where: str) -> pa.Schema:
    """The canonical Arrow columns of a DataFrame."""
    return pa.schema(
        [pa.field(f.name, arrow_type(f.dataType, where=where, column=f.name)) for f in schema]
    )


def arrow_type(kind: st.DataType, *, where: str, column: str) -> pa.DataType:
    """The canonical Arrow type of what Spark calls this."""
    if isinstance(kind, st.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, st.ArrayType):
        inner = arrow_type(kind.elementType, where=where, column=column)
        return pa.list_(pa.field("element", inner))
    if isinstance(kind, st.StructType):
        return pa.struct(list(arrow_schema(kind, where=where)))
    if isinstance(kind, st.NullType):
        return pa.null()
    if isinstance(kind, st.StringType) and "collate" not in kind.simpleString():
        return pa.string()  # also one with a length
    for arrow, spark in _PLAIN.items():
        if spark == kind:
            return arrow
    message = (
        f"{where}: column '{column}' is {kind.simpleString()}, which payloads and times cannot "
        "be: they are compared by value; make a map an array of structs, cast others (for "
        "example to string), or drop the column"
    )
    raise SchemaError(message)


def _nested(
    kind: pa.DataType, each: Callable[[pa.DataType], pa.DataType]
) -> pa.DataType | None:
    """The canonical form of a list or struct, or None for any other type."""
    if pt.is_list(kind):
        return pa.list_(pa.field("element", each(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([pa.field(child.name, each(child.type)) for child in kind])
    return None
