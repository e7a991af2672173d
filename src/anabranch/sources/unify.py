"""One schema over many files, and over two sides of a comparison.

Files of one stream may hold the same values in different physical forms: dictionaries, large
strings, narrower numbers, other timestamp units.  `common_type` is the narrowest type that
holds both without loss; where there is none, `SchemaError` names the file, the column, the
expected type and a remedy.

>>> common_type(pa.int8(), pa.dictionary(pa.int32(), pa.uint8()))
DataType(int16)
>>> common_type(pa.int64(), pa.string()) is None
True
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from anabranch.batch.columns import conform_column
from anabranch.batch.schema import OLD_END, TIME_COLUMNS, plain_type
from anabranch.errors import FileError, SchemaError

Common: TypeAlias = Callable[[pa.DataType, pa.DataType], pa.DataType | None]
"""A type that holds the values of both, or None."""

_PLAIN: Final[dict[pa.DataType, pa.DataType]] = {
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
}
_UNITS: Final = ("s", "ms", "us", "ns")
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_LONG_DIGITS: Final = 20  # of the greatest uint64
_MOST_DIGITS: Final = 38  # of a decimal128


def one_form(kind: pa.DataType) -> pa.DataType:
    """The one type for values that may come in several widths of the same layout.

    >>> one_form(pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))
    ListType(list<element: string>)
    """
    kind = plain_type(kind)
    if _is_list(kind):
        return pa.list_(pa.field("element", one_form(kind.value_type)))
    if pt.is_struct(kind):
        return pa.struct([pa.field(f.name, one_form(f.type)) for f in kind])
    if pt.is_fixed_size_binary(kind):
        return pa.binary()
    if pt.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz="UTC")
    return _PLAIN.get(kind, kind)


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The narrowest type that holds the values of both without loss, or None."""
    a, b = one_form(left), one_form(right)
    if a == b or pt.is_null(b):
        return a
    if pt.is_null(a):
        return b
    for rule in (_integers, _floats, _decimals, _timestamps, _lists, _structs):
        found = rule(a, b)
        if found is not None:
            return found
    return None


def unify(
    schemas: Iterable[tuple[str, pa.Schema]],
    *,
    common: Common = common_type,
    absent_is_null: bool = False,
) -> pa.Schema:
    """The one schema of all these files, each given with its name; `old_end` may be absent.

    In JSON lines what is absent is null, so a file may lack any column (`absent_is_null`).
    """
    fields: dict[str, tuple[str, pa.DataType]] = {}
    everywhere: dict[str, pa.Schema] = {}
    for where, schema in schemas:
        _refuse_twins(where, schema)
        everywhere[where] = schema
        for field in schema:
            first, known = fields.get(field.name, (where, field.type))
            kind = common(known, field.type)
            if kind is None:
                raise _other_type(where, field, first, known)
            fields[field.name] = (first, kind)
    for name, lacks in ({} if absent_is_null else lacking(everywhere)).items():
        raise missing(lacks, name, fields[name][0])
    return pa.schema([pa.field(name, kind) for name, (_, kind) in fields.items()])


def lacking(schemas: Mapping[str, pa.Schema]) -> dict[str, str]:
    """The columns that some file lacks and another has, with such a file; not `old_end`."""
    names = {name: None for schema in schemas.values() for name in schema.names}
    found: dict[str, str] = {}
    for where, schema in schemas.items():
        for name in names:
            if name not in schema.names and name != OLD_END:
                found.setdefault(name, where)
    return found


def shared_payload(a: pa.Schema, b: pa.Schema, *, where_a: str, where_b: str) -> pa.Schema:
    """The payload columns of two sides in common types, by name; both must have the same."""
    only_a = [name for name in a.names if name not in b.names]
    only_b = [name for name in b.names if name not in a.names]
    if only_a or only_b:
        found = [f"{where_a} alone has {only_a}"] * bool(only_a)
        found += [f"{where_b} alone has {only_b}"] * bool(only_b)
        message = (
            f"the payload columns differ: {' and '.join(found)}; histories compare by all of "
            "their payload columns; drop the column on the one side, or add it to the other"
        )
        raise SchemaError(message)
    fields = []
    for field in a:
        other = b.field(field.name)
        kind = common_type(field.type, other.type)
        if kind is None:
            raise _other_type(where_b, other, where_a, field.type)
        fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def conform(table: pa.Table, schema: pa.Schema, *, where: str) -> pa.Table:
    """The table with the columns and types of a unified schema; an absent one is all null."""
    columns = []
    for field in schema:
        if field.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, field.type))
            continue
        column = table.column(field.name)
        try:
            columns.append(conform_column(column, field.type))
        except pa.ArrowException as error:
            message = (
                f"{where}: column '{field.name}' is {column.type} and a value of it is no "
                f"{field.type}: {error}; the file changed after it was looked at, or the value "
                "is out of range; write it again"
            )
            raise FileError(message) from error
    return pa.Table.from_arrays(columns, schema=schema)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def _integers(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pt.is_integer(a) and pt.is_integer(b)):
        return None
    if pt.is_unsigned_integer(a) and pt.is_unsigned_integer(b):
        return a if a.bit_width > b.bit_width else b
    need = max(_signed_bits(a), _signed_bits(b))
    return next((kind for kind in _INTEGERS if kind.bit_width >= need), None)


def _signed_bits(kind: pa.DataType) -> int:
    width = int(kind.bit_width)
    return width * 2 if pt.is_unsigned_integer(kind) else width


def _floats(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if pt.is_floating(a) and pt.is_floating(b):
        return a if a.bit_width > b.bit_width else b
    return None


def _decimals(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Decimals of one scale; the unsigned 64 bit integer, which Spark writes as one, too."""
    if pt.is_integer(a) and pt.is_decimal(b):
        return _decimals(b, a)
    if pt.is_decimal(a) and pt.is_integer(b):
        return a if a.scale == 0 and a.precision >= _LONG_DIGITS else None
    if pt.is_decimal(a) and pt.is_decimal(b) and a.scale == b.scale:
        digits = max(a.precision, b.precision)
        wide = pa.decimal128 if digits <= _MOST_DIGITS else pa.decimal256
        return wide(digits, a.scale)
    return None


def _timestamps(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The finer unit; one without a zone is taken as UTC."""
    if not (pt.is_timestamp(a) and pt.is_timestamp(b)):
        return None
    unit = max(a.unit, b.unit, key=_UNITS.index)
    return pa.timestamp(unit, tz=a.tz or b.tz)


def _lists(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pt.is_list(a) and pt.is_list(b)):
        return None
    inner = common_type(a.value_type, b.value_type)
    return None if inner is None else pa.list_(pa.field("element", inner))


def _structs(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    if not (pt.is_struct(a) and pt.is_struct(b)):
        return None
    names = [field.name for field in a]
    # By position too: a cast between structs would otherwise fill the wrong fields.
    if names != [field.name for field in b]:
        return None
    kinds = [common_type(a.field(i).type, b.field(i).type) for i in range(len(names))]
    if any(kind is None for kind in kinds):
        return None
    return pa.struct([pa.field(n, kind) for n, kind in zip(names, kinds, strict=True)])


def _refuse_twins(where: str, schema: pa.Schema) -> None:
    twins = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twins:
        message = (
            f"{where}: column '{twins[0]}' is there twice; every column needs a name of its "
            "own; rename one of them"
        )
        raise SchemaError(message)


def _other_type(where: str, field: pa.Field, first: str, known: pa.DataType) -> SchemaError:
    hint = "cast it in one of the two"
    if field.name in TIME_COLUMNS:
        hint = "times are all bigint or all timestamp; cast them to one type"
    came = f"column '{field.name}' is {field.type}"
    message = f"{where}: {came}, expected {known} as in {first}; {hint}"
    return SchemaError(message)


def missing(where: str, name: str, first: str) -> SchemaError:
    """The error that a file lacks a column which the file `first` has."""
    message = (
        f"{where}: no column '{name}', which {first} has; all files of one stream have "
        "the same columns; add it (null where it has no value), or move the file away"
    )
    return SchemaError(message)
