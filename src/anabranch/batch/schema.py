"""The one Arrow schema of a stream of elements: what each column must be, and what is payload.

| column    | type                                | meaning                                    |
| `kind`    | string                              | `insert`, `adjust` or `stable`             |
| `start`   | int64, or timestamp                 | start; the time of a stable, null = FOREVER|
| `end`     | the same type, null = FOREVER       | the end that is true afterwards            |
| `old_end` | the same type, null = FOREVER       | the end it replaces; may be absent         |
| `seq`     | int64, optional                     | order within the physical stream           |
| `replica` | string, optional                    | name of the copy, if several are together  |

Every other column is payload, of any type but a map or union, and described by its plain type
(`plain_type`: what a column holds, not how it is stored).  A schema that does not fit raises
`SchemaError` and names the file, the column, what came and what to do.

Papers: the element format is LMerge III-C, Example 5, as columns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from anabranch.errors import SchemaError

KIND: Final = "kind"
START: Final = "start"
END: Final = "end"
OLD_END: Final = "old_end"
SEQ: Final = "seq"
REPLICA: Final = "replica"

TIME_COLUMNS: Final = (START, END, OLD_END)
RESERVED: Final = (KIND, *TIME_COLUMNS, SEQ, REPLICA)


class TimeType(Enum):
    """What the time columns hold: plain units, or instants in microseconds UTC."""

    BIGINT = "bigint"
    TIMESTAMP = "timestamp"

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type in which we write such times."""
        return pa.int64() if self is TimeType.BIGINT else pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class ElementSchema:
    """The type of the times, the payload columns, and which optional columns are there."""

    time: TimeType
    payload: pa.Schema
    has_seq: bool = False
    has_replica: bool = False

    @classmethod
    def of(cls, schema: pa.Schema, *, where: str) -> "ElementSchema":
        """Read the schema of some columns; `where` (a file, a step) goes into the error.

        >>> columns = {
        ...     "kind": pa.string(),
        ...     "start": pa.int64(),
        ...     "end": pa.int64(),
        ...     "a": pa.int8(),
        ... }
        >>> ElementSchema.of(pa.schema(columns), where="x.parquet").payload.names
        ['a']
        """
        _require(schema, (KIND, START, END), where)
        _require_once(schema, where)
        _require_own_names(schema, where)
        if not _is_text(schema.field(KIND).type):
            raise _wrong_type(schema, KIND, "string", where)
        time = _time_type(schema, where)
        if SEQ in schema.names and not pt.is_signed_integer(schema.field(SEQ).type):
            raise _wrong_type(schema, SEQ, "bigint", where)
        if REPLICA in schema.names and not _is_text(schema.field(REPLICA).type):
            raise _wrong_type(schema, REPLICA, "string", where)
        payload = payload_schema(schema, where=where)
        return cls(time, payload, SEQ in schema.names, REPLICA in schema.names)

    @property
    def arrow(self) -> pa.Schema:
        """The columns as we write them: reserved ones first, then the payload."""
        times = [pa.field(name, self.time.arrow) for name in TIME_COLUMNS]
        fields = [pa.field(KIND, pa.string(), nullable=False), *times]
        if self.has_seq:
            fields.append(pa.field(SEQ, pa.int64()))
        if self.has_replica:
            fields.append(pa.field(REPLICA, pa.string()))
        return pa.schema(
            [*fields, *(field.with_nullable(nullable=True) for field in self.payload)]
        )


def payload_schema(schema: pa.Schema, *, where: str) -> pa.Schema:
    """The columns that are not reserved, as plain types; a map or a union is refused."""
    fields = [field for field in schema if field.name not in RESERVED]
    for field in fields:
        if has_map(field.type):
            message = (
                f"{where}: column '{field.name}' is {field.type}; payloads are compared by "
                "value and a map has no order; make it an array of structs, or drop it"
            )
            raise SchemaError(message)
        if _has(field.type, pt.is_union):
            message = (
                f"{where}: column '{field.name}' is {field.type}; Spark has no unions; "
                "make it a struct with a field per case, or drop it"
            )
            raise SchemaError(message)
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in fields])


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type of the values, however they are stored: no dictionaries, run-ends or views.

    >>> plain_type(pa.list_(pa.dictionary(pa.int8(), pa.string())))
    ListType(list<item: string>)
    """
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if pt.is_struct(kind):
        return pa.struct([_plain_field(field) for field in kind])
    if pt.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field), kind.list_size)
    for is_alike, plain in _LISTS:
        if is_alike(kind):
            return plain(_plain_field(kind.value_field))
    return _VIEWS.get(kind, kind)


_VIEWS: Final = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_LISTS: Final = (
    (pt.is_list, pa.list_),
    (pt.is_list_view, pa.list_),
    (pt.is_large_list, pa.large_list),
    (pt.is_large_list_view, pa.large_list),
)


def _plain_field(field: pa.Field) -> pa.Field:
    # Nullable at every depth: what is below a null is null.
    return pa.field(field.name, plain_type(field.type))


def has_map(kind: pa.DataType) -> bool:
    """Whether a map is in this type, at any depth."""
    return _has(kind, pt.is_map)


def _has(kind: pa.DataType, found: Callable[[pa.DataType], bool]) -> bool:
    if found(kind):
        return True
    if pt.is_dictionary(kind):
        return _has(kind.value_type, found)
    if isinstance(kind, pa.BaseExtensionType):
        return _has(kind.storage_type, found)
    return any(_has(kind.field(i).type, found) for i in range(kind.num_fields))


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold times."""
    return bool(pt.is_timestamp(kind) or pt.is_signed_integer(kind))


def _time_type(schema: pa.Schema, where: str) -> TimeType:
    found: dict[str, TimeType] = {}
    for name in TIME_COLUMNS:
        # A column without a value (old_end of an insert-only file) has no type of its own.
        if name not in schema.names or pt.is_null(schema.field(name).type):
            continue
        kind = schema.field(name).type
        if not is_time(kind):
            raise _wrong_type(schema, name, "bigint or timestamp", where)
        found[name] = TimeType.TIMESTAMP if pt.is_timestamp(kind) else TimeType.BIGINT
    if len(set(found.values())) > 1:
        types = ", ".join(f"'{name}' is {schema.field(name).type}" for name in found)
        message = (
            f"{where}: the time columns have different types: {types}; "
            "all of them must be bigint, or all of them timestamp; cast them to one type"
        )
        raise SchemaError(message)
    return next(iter(found.values()), TimeType.BIGINT)


def _require(schema: pa.Schema, names: tuple[str, ...], where: str) -> None:
    missing = [name for name in names if name not in schema.names]
    if missing:
        message = (
            f"{where}: no column {' and no column '.join(map(repr, missing))}; a stream of "
            f"elements has the columns 'kind', 'start' and 'end' (and 'old_end' if there are "
            f"adjusts), this has {schema.names}; rename or add the columns"
        )
        raise SchemaError(message)


def _require_once(schema: pa.Schema, where: str) -> None:
    twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
    if twice:
        message = (
            f"{where}: several columns are named {' and '.join(map(repr, twice))}; "
            "every column of a stream needs a name of its own; rename them"
        )
        raise SchemaError(message)


def _require_own_names(schema: pa.Schema, where: str) -> None:
    """Reject payload that is called as a reserved column but for the letter case."""
    for name in schema.names:
        if name not in RESERVED and name.lower() in RESERVED:
            message = (
                f"{where}: the column '{name}' is payload, but its name is '{name.lower()}' of "
                "the element format in other letter case, and Spark compares names without "
                f"case; rename it, for example to '{name}_of_row'"
            )
            raise SchemaError(message)


def _is_text(kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind):
        return _is_text(kind.value_type)
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def _wrong_type(schema: pa.Schema, name: str, expected: str, where: str) -> SchemaError:
    message = (
        f"{where}: column '{name}' is {schema.field(name).type}, expected {expected}; "
        f"cast it, or rename it if it is payload"
    )
    return SchemaError(message)
