"""Aggregate functions as data: which columns they take, and the type of their results.

An `Aggregate` is checked against the input's columns when a query is built (`check`); a type
that a function does not take is a SchemaError with the column, its type and the remedy.  Types
and nulls follow Spark:

| function                 | takes                        | result                            |
| count                    | any column, or all rows      | bigint                            |
| sum                      | integers; float; decimal     | bigint; double; decimal(p + 10)   |
| avg                      | integers, float; decimal     | double; decimal(p + 4, s + 4)     |
| stddev (of a sample)     | integers, float, decimal     | double, null for less than two    |
| min, max                 | what has an order            | the type of the column            |
| count_distinct           | any column                   | bigint                            |
| collect                  | what has an order            | array of the column, sorted       |
| quantile (options: p)    | integers, float, decimal     | double                            |
| user                     | any column                   | what the user declares            |

Nulls are skipped.  Of no values, counts are 0, `collect` is an empty array, and everything else
is null; a row count is never 0, because nothing is emitted where nothing is alive.  NaN is
greater than every number and equal to itself, -0.0 is 0.0.

`quantile` sorts the n values and interpolates linearly at position p * (n - 1), as Spark's
`percentile` does, in double arithmetic.  A sum of floats is the exact sum, rounded once; a mean
is that divided by the count; a standard deviation is the square root of the exact variance,
rounded twice.  So results depend on the bag of values alone, not on their order.

Two families: of INVERTIBLE ones a removal subtracts (`slots`), the others need the values
(`bags`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as pt

from anabranch.batch.schema import RESERVED
from anabranch.errors import SchemaError, UsageError

INVERTIBLE: Final = ("count", "sum", "avg", "stddev")
BY_VALUE: Final = ("min", "max", "count_distinct", "collect", "quantile", "user")
KINDS: Final = (*INVERTIBLE, *BY_VALUE)

MOST_DIGITS: Final = 38
"""The greatest precision of a decimal."""


@dataclass(frozen=True)
class UserDefined:
    """An aggregate in Python: a state from `zero()`, changed by `add` and `remove`.

    `add(state, value)` and `remove(state, value)` return the next state; `result(state)` has
    the type `type`.  States are not saved: they are computed again from the events.
    `canonical`: the result depends on the bag of values alone, whatever was added and removed
    before; only then `remove` is called.
    """

    zero: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    remove: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    type: pa.DataType
    canonical: bool = False


@dataclass(frozen=True)
class Aggregate:
    """One function of a column (None: of whole rows) and the name of its result.

    >>> price = pa.schema({"price": pa.decimal128(10, 2)})
    >>> result_type(Aggregate("sum", "price", "total"), price)
    Decimal128Type(decimal128(20, 2))
    """

    kind: str
    column: str | None
    name: str
    p: float | None = None
    user: UserDefined | None = None

    @property
    def is_invertible(self) -> bool:
        """Whether a removal can be subtracted from the result."""
        return self.kind in INVERTIBLE

    @property
    def is_canonical(self) -> bool:
        """Whether the result depends on the bag of values alone."""
        return self.user is None or self.user.canonical

    def __str__(self) -> str:
        more = "" if self.p is None else f", {self.p}"
        return f"{self.kind}({'*' if self.column is None else self.column}{more})"


def check(
    functions: Sequence[Aggregate], keys: Sequence[str], payload: pa.Schema, *, where: str
) -> pa.Schema:
    """The columns of the result: keys, then functions.  SchemaError if they do not fit.

    `where` is the step, for messages.
    """
    if not functions:
        message = f"{where}: no aggregate is given; name at least one, such as n=ab.count()"
        raise UsageError(message)
    for key in keys:
        _require_column(key, payload, f"{where}: key")
    fields = [payload.field(key) for key in keys]
    fields += [pa.field(one.name, result_type(one, payload, where=where)) for one in functions]
    names = [field.name.lower() for field in fields]  # Spark's names have no case
    for name in names:
        if name in RESERVED:
            message = (
                f"{where}: a column of the result is called '{name}', which the element format "
                f"needs for itself ({', '.join(RESERVED)}); give it another name"
            )
            raise SchemaError(message)
        if names.count(name) > 1:
            message = (
                f"{where}: two columns of the result are called '{name}'; the result has the "
                "keys and the aggregates; rename one of them"
            )
            raise SchemaError(message)
    return pa.schema(fields)


def result_type(
    function: Aggregate, payload: pa.Schema, *, where: str = "aggregate"
) -> pa.DataType:
    """The type of the result; SchemaError if the function does not take the column."""
    if function.kind not in KINDS:
        message = f"{where}: no aggregate is called '{function.kind}'; use {', '.join(KINDS)}"
        raise UsageError(message)
    if function.column is None:
        if function.kind == "count":
            return pa.int64()
        message = f"{where}: {function.kind} needs a column; only count takes whole rows"
        raise UsageError(message)
    _require_column(function.column, payload, f"{where}: {function}: column")
    found = _TYPES[function.kind](function, payload.field(function.column).type)
    if found is None:
        kind = payload.field(function.column).type
        message = (
            f"{where}: {function.kind} of column '{function.column}' is not possible: it is "
            f"{kind}, {function.kind} takes {_TAKES[function.kind]}; cast the column, or use "
            "another aggregate"
        )
        raise SchemaError(message)
    return found


def _require_column(name: str, payload: pa.Schema, where: str) -> None:
    if name not in payload.names:
        message = (
            f"{where} '{name}' does not exist; the input has {payload.names}; name one of them"
        )
        raise SchemaError(message)


def is_whole(kind: pa.DataType) -> bool:
    """Whether a column has integers that fit into a bigint."""
    return bool(pt.is_integer(kind)) and not pt.is_uint64(kind)


def is_decimal(kind: pa.DataType) -> bool:
    """Whether a column has decimals of at most 38 digits."""
    return bool(pt.is_decimal128(kind))


def is_real(kind: pa.DataType) -> bool:
    """Whether a column has floats of 32 or 64 bits."""
    return bool(pt.is_float32(kind) or pt.is_float64(kind))


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of a column can be compared: numbers, text, bytes, times, booleans."""
    is_text = pt.is_string(kind) or pt.is_large_string(kind)
    is_bytes = pt.is_binary(kind) or pt.is_large_binary(kind)
    is_time = pt.is_temporal(kind) and not pt.is_interval(kind)
    is_number = pt.is_integer(kind) or is_real(kind) or is_decimal(kind) or pt.is_boolean(kind)
    return bool(is_text or is_bytes or is_time or is_number)


def _sum(_: Aggregate, kind: pa.DataType) -> pa.DataType | None:
    if is_decimal(kind):
        return pa.decimal128(min(MOST_DIGITS, kind.precision + 10), kind.scale)
    if is_whole(kind):
        return pa.int64()
    return pa.float64() if is_real(kind) else None


def _avg(_: Aggregate, kind: pa.DataType) -> pa.DataType | None:
    if is_decimal(kind):
        digits, scale = kind.precision + 4, kind.scale + 4
        return pa.decimal128(min(MOST_DIGITS, digits), min(MOST_DIGITS, scale))
    return pa.float64() if is_whole(kind) or is_real(kind) else None


def _double(_: Aggregate, kind: pa.DataType) -> pa.DataType | None:
    is_number = is_whole(kind) or is_real(kind) or is_decimal(kind)
    return pa.float64() if is_number else None


def _quantile(function: Aggregate, kind: pa.DataType) -> pa.DataType | None:
    if function.p is None or not 0 <= function.p <= 1:
        message = (
            f"quantile of column '{function.column}': p is {function.p}; it must be between "
            "0 and 1, such as 0.5 for the median"
        )
        raise UsageError(message)
    return _double(function, kind)


def _user(function: Aggregate, _: pa.DataType) -> pa.DataType:
    if function.user is None:
        message = (
            f"user-defined aggregate '{function.name}' has no functions; give zero, add, "
            "remove and result"
        )
        raise UsageError(message)
    return function.user.type


_Rule = Callable[[Aggregate, pa.DataType], "pa.DataType | None"]
_TYPES: Final[dict[str, _Rule]] = {
    "count": lambda _, __: pa.int64(),
    "sum": _sum,
    "avg": _avg,
    "stddev": _double,
    "min": lambda _, kind: kind if is_ordered(kind) else None,
    "max": lambda _, kind: kind if is_ordered(kind) else None,
    "count_distinct": lambda _, __: pa.int64(),
    "collect": lambda _, kind: pa.list_(kind) if is_ordered(kind) else None,
    "quantile": _quantile,
    "user": _user,
}
_NUMBERS: Final = "integers, float, double and decimal"
_ORDERED: Final = "numbers, text, binary, times and booleans"
_TAKES: Final = {
    "sum": _NUMBERS,
    "avg": _NUMBERS,
    "stddev": _NUMBERS,
    "quantile": _NUMBERS,
    "min": _ORDERED,
    "max": _ORDERED,
    "collect": _ORDERED,
}
