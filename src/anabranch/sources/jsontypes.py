"""The types of JSON values: inference, and the common type of two values.

JSON has one kind of number and no times: a column with a fraction in it is double, a column of
whole numbers is bigint, and text stays text, whatever it looks like.  A whole number that a
double would round is refused rather than changed: two payloads must not become one.

>>> common_json(pa.int64(), pa.float64())
DataType(double)
"""

import json
import re
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from anabranch.errors import SchemaError

_MANY_DIGITS: Final = re.compile(rb"[:\[,\s]-?\d{16,}\s*[,\]}]")
_EXACT: Final = 2**53
"""Up to here a double holds every whole number."""


def settled(kind: pa.DataType) -> pa.DataType:
    """What an inferred type means; Arrow takes some text for times, we do not."""
    if pt.is_timestamp(kind):
        return pa.string()
    if pt.is_list(kind):
        return pa.list_(pa.field("element", settled(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, settled(f.type)) for f in kind])
    return kind


def common_json(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type that holds the values of both, or None; absent struct fields are null."""
    if a == b or pt.is_null(b):
        return a
    if pt.is_null(a):
        return b
    if {a, b} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pt.is_list(a) and pt.is_list(b):
        inner = common_json(a.value_type, b.value_type)
        return None if inner is None else pa.list_(pa.field("element", inner))
    if pt.is_struct(a) and pt.is_struct(b):
        return _common_struct(a, b)
    return None


def is_same_but_for_fractions(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether two types differ at most in bigint and double: in whether fractions were seen.

    >>> is_same_but_for_fractions(pa.list_(pa.int64()), pa.list_(pa.float64()))
    True
    >>> is_same_but_for_fractions(pa.int64(), pa.string())
    False
    """
    if a == b or {a, b} == {pa.int64(), pa.float64()}:
        return True
    if pt.is_list(a) and pt.is_list(b):
        return is_same_but_for_fractions(a.value_type, b.value_type)
    if not (pt.is_struct(a) and pt.is_struct(b)):
        return False
    own, other = ({field.name: field.type for field in kind} for kind in (a, b))
    return [*own] == [*other] and all(
        is_same_but_for_fractions(own[name], other[name]) for name in own
    )


def refuse_wide_numbers(data: bytes, schema: pa.Schema, *, where: str) -> None:
    """Refuse a whole number in a column of doubles that would be rounded."""
    doubles = [field.name for field in schema if _has_double(field.type)]
    if not doubles or not _MANY_DIGITS.search(data):
        return
    for line in data.split(b"\n"):
        if not _MANY_DIGITS.search(line):
            continue
        try:
            row = json.loads(line)
        except ValueError:
            continue  # refused elsewhere
        wide = [name for name in doubles if _is_wide(row.get(name))]
        if wide:
            message = (
                f"{where}: column '{wide[0]}' holds a whole number that a double would round; "
                "name its type with --schema, for example decimal(20,0) or string"
            )
            raise SchemaError(message)


def _common_struct(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    fields = {field.name: field.type for field in a}
    for field in b:
        kind = common_json(fields.get(field.name, pa.null()), field.type)
        if kind is None:
            return None
        fields[field.name] = kind
    return pa.struct(list(fields.items()))


def _has_double(kind: pa.DataType) -> bool:
    if pt.is_floating(kind):
        return True
    return any(_has_double(kind.field(i).type) for i in range(kind.num_fields))


def _is_wide(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) > _EXACT
    if isinstance(value, list):
        return any(_is_wide(one) for one in value)
    return isinstance(value, dict) and any(_is_wide(one) for one in value.values())
