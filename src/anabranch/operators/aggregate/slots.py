"""Accumulators of count, sum, avg and stddev: a fixed number of int64 slots, added up exactly.

`Slots` lays the accumulators of all invertible functions out in the columns of a matrix: a row
for each value (`of`), for each sum of values, or for each sum that was taken back.  Rows add
and subtract slot by slot, in any order, with the same `results`.

    slot 0       rows
    per column   values that are not null, then the digits of their sum, then of their squares

Functions of one column share its slots.  The digits of floats are a window, which `fit` widens
when values need it; `widen` moves older rows to the wider layout.

>>> payload = pa.schema({"x": pa.float64()})
>>> slots = Slots.empty([Aggregate("sum", "x", "total")], payload)
>>> values = pa.table({"x": [1e100, 1.0, -1e100]})
>>> slots = slots.fit(values)
>>> slots.results(slots.of(values, 3).sum(axis=0, keepdims=True))[0].to_pylist()
[1.0]
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.buffers import numbers, one_array, to_arrow, valid
from anabranch.errors import RunError
from anabranch.operators.aggregate.exact import (
    BITS,
    FLOAT_BASE,
    SPECIALS,
    SQUARE_BASE,
    decimal_all,
    deviate_all,
    measure,
    round_all,
    split,
    whole_all,
)
from anabranch.operators.aggregate.functions import (
    Aggregate,
    is_decimal,
    is_real,
    result_type,
)

ROWS: Final = 0
"""The slot that counts rows."""

_MOST_DIGITS: Final = 140


class SumOverflowError(RunError):
    """A result that its type cannot hold: the function, and the row of `results`."""

    def __init__(self, function: Aggregate, row: int, kind: pa.DataType) -> None:
        super().__init__(f"the {function} is beyond the range of {kind}")
        self.function, self.row, self.kind = function, row, kind


@dataclass(frozen=True)
class Window:
    """The digits of a sum that are kept: from `first` on, `count` of them."""

    first: int = 0
    count: int = 0
    special: bool = False

    @property
    def width(self) -> int:
        """How many slots it takes."""
        return self.count + (SPECIALS if self.special else 0)

    def hold(self, first: int, last: int, *, special: bool) -> "Window":
        """A window with these digits too."""
        special = special or self.special
        if last <= first:
            return replace(self, special=special)
        if self.count:
            first, last = min(first, self.first), max(last, self.first + self.count)
        return Window(first, last - first, special)


@dataclass(frozen=True)
class Sums:
    """The slots of one column: what is kept, and the windows."""

    column: str
    kind: pa.DataType
    has_sum: bool = False
    has_squares: bool = False
    sum: Window = Window()
    squares: Window = Window()

    @property
    def width(self) -> int:
        """How many slots it takes."""
        return 1 + self.sum.width + self.squares.width

    @property
    def is_float(self) -> bool:
        """Whether the sum is one of doubles."""
        return is_real(self.kind) or self.has_squares


@dataclass(frozen=True)
class Slots:
    """The layout of the slots of some functions; see the module."""

    functions: tuple[Aggregate, ...]
    payload: pa.Schema
    sums: tuple[Sums, ...]

    @classmethod
    def empty(cls, functions: Sequence[Aggregate], payload: pa.Schema) -> "Slots":
        """The layout for these functions, which are invertible, before any value."""
        wanted: dict[tuple[str, bool], Sums] = {}
        for one in functions:
            if one.column is None:
                continue
            kind = payload.field(one.column).type
            # Squares are of doubles, whatever the column has: so is the sum beside them.
            as_double = one.kind == "stddev" and not is_real(kind)
            key = one.column, as_double
            has = wanted.get(key, Sums(one.column, pa.float64() if as_double else kind))
            has = replace(
                has,
                has_sum=has.has_sum or one.kind != "count",
                has_squares=has.has_squares or one.kind == "stddev",
            )
            wanted[key] = replace(has, sum=_fixed(has))
        return cls(tuple(functions), payload, tuple(wanted.values()))

    @cached_property
    def width(self) -> int:
        """How many slots there are."""
        return 1 + sum(one.width for one in self.sums)

    @cached_property
    def _begins(self) -> tuple[int, ...]:
        """The first slot of each column."""
        widths = [one.width for one in self.sums]
        return tuple(1 + sum(widths[:i]) for i in range(len(widths)))

    def fit(self, values: pa.Table) -> "Slots":
        """A layout that holds these values too; itself if it does already."""
        sums = tuple(_fitted(one, values) for one in self.sums)
        return self if sums == self.sums else replace(self, sums=sums)

    def of(self, values: pa.Table, count: int) -> Ints:
        """A row for each of these values, which fit."""
        rows = np.zeros((count, self.width), np.int64)
        rows[:, ROWS] = 1
        for one, begin in zip(self.sums, self._begins, strict=True):
            column = one_array(values.column(one.column))
            is_valid = valid(column)
            rows[:, begin] = is_valid
            if not one.has_sum:
                continue
            if not one.is_float:
                digits = rows[:, begin + 1 : begin + 1 + one.sum.count]
                _split_whole(column, is_valid, digits)
                continue
            data = _doubles(column)
            scratch = np.empty(5, np.int64)
            for squared, window, at in (
                (False, one.sum, begin + 1),
                (True, one.squares, begin + 1 + one.sum.width),
            ):
                if window.width:
                    out = rows[:, at:]
                    split(data, is_valid, squared, window.first, window.special, scratch, out)
        return rows

    def widen(self, rows: Ints, before: "Slots") -> Ints:
        """These rows of the layout `before`, in this one."""
        if before == self:
            return rows
        wide = np.zeros((len(rows), self.width), np.int64)
        wide[:, ROWS] = rows[:, ROWS]
        at = zip(self.sums, self._begins, before.sums, before._begins, strict=True)
        for one, begin, old, old_begin in at:
            wide[:, begin] = rows[:, old_begin]
            _move(wide[:, begin + 1 :], one.sum, rows[:, old_begin + 1 :], old.sum)
            second, third = begin + 1 + one.sum.width, old_begin + 1 + old.sum.width
            _move(wide[:, second:], one.squares, rows[:, third:], old.squares)
        return wide

    def results(self, rows: Ints) -> list[pa.Array]:
        """The results of each function for these rows; SumOverflowError if one is too big."""
        rows = np.ascontiguousarray(rows)
        rounded: dict[int, NDArray[np.float64]] = {}
        return [self._result(one, rows, rounded) for one in self.functions]

    def _result(
        self, function: Aggregate, rows: Ints, rounded: dict[int, NDArray[np.float64]]
    ) -> pa.Array:
        if function.column is None:
            return to_arrow(rows[:, ROWS], pa.int64())
        kind = self.payload.field(function.column).type
        wants = function.kind == "stddev"
        at = next(
            i
            for i, one in enumerate(self.sums)
            if one.column == function.column
            and (one.kind == kind or wants)
            and (one.has_squares or not wants)
        )
        one, begin = self.sums[at], self._begins[at]
        counts = np.ascontiguousarray(rows[:, begin])
        if function.kind == "count":
            return to_arrow(counts, pa.int64())
        if wants:
            return _deviation(one, begin, rows, counts)
        target = result_type(function, self.payload)
        divisor = counts if function.kind == "avg" else np.minimum(counts, 1)
        if is_decimal(kind):
            return _decimal(function, one, begin, rows, divisor, target)
        has = None if (counts > 0).all() else counts > 0
        if function.kind == "sum" and not one.is_float:
            out = np.zeros(len(rows), np.int64)
            digits = np.empty(_MOST_DIGITS, np.int64)
            wrong = int(whole_all(rows, begin + 1, one.sum.count, digits, out))
            if wrong >= 0:
                raise SumOverflowError(function, wrong, target)
            return to_arrow(out, target, mask=has)
        if at not in rounded:
            rounded[at] = _rounded(one, begin, rows)
        total = rounded[at]
        mean = total / np.maximum(divisor, 1)
        return to_arrow(mean if function.kind == "avg" else total, target, mask=has)

    def describe(self) -> str:
        """The windows as text, for the header of a saved state."""
        return json.dumps(
            [
                [[w.first, w.count, w.special] for w in (one.sum, one.squares)]
                for one in self.sums
            ]
        )

    def described(self, text: str) -> "Slots":
        """The layout with the windows that `describe` wrote."""
        found = [[Window(*one) for one in pair] for pair in json.loads(text)]
        pairs = zip(self.sums, found, strict=True)
        sums = tuple(replace(one, sum=pair[0], squares=pair[1]) for one, pair in pairs)
        return replace(self, sums=sums)


def _fixed(one: Sums) -> Window:
    """The digits of a sum of integers or decimals; floats have a window that grows."""
    if not one.has_sum or one.is_float:
        return Window()
    return Window(0, max(1, one.kind.bit_width // BITS))


def _fitted(one: Sums, values: pa.Table) -> Sums:
    if not one.has_sum or not one.is_float:
        return one
    column = one_array(values.column(one.column))
    data, is_valid = _doubles(column), valid(column)
    sums = _measured(one.sum, data, is_valid, squared=False)
    if not one.has_squares:
        return replace(one, sum=sums)
    squares = _measured(one.squares, data, is_valid, squared=True)
    if sums.count:
        # Both windows begin at matching digits, which `deviate_all` needs.
        squares = squares.hold(2 * sums.first, 2 * sums.first + 1, special=squares.special)
    return replace(one, sum=sums, squares=squares)


def _measured(window: Window, data: Ints, is_valid: Mask, *, squared: bool) -> Window:
    found = np.array([_MOST_DIGITS, 0, 0], np.int64)
    measure(data, is_valid, squared, np.empty(5, np.int64), found)
    return window.hold(int(found[0]), int(found[1]), special=bool(found[2]))


def _doubles(column: pa.Array) -> Ints:
    """The bits of a column as doubles."""
    if not pt.is_float64(column.type):
        column = column.cast(pa.float64(), safe=False)
    return np.ascontiguousarray(numbers(column, np.dtype(np.int64)))


def _split_whole(column: pa.Array, is_valid: Mask, out: Ints) -> None:
    """The digits of integers and decimals."""
    if is_decimal(column.type):
        words = numbers(column, np.dtype("V16")).view(np.uint32).reshape(-1, 4)
        for k in range(3):
            out[:, k] = np.where(is_valid, words[:, k], 0)
        out[:, 3] = np.where(is_valid, words[:, 3].view(np.int32), 0)
        return
    data = numbers(column, np.dtype(column.type.to_pandas_dtype())).astype(np.int64)
    data = np.where(is_valid, data, 0)
    if out.shape[1] == 1:
        out[:, 0] = data
    else:
        out[:, 0], out[:, 1] = data & 0xFFFFFFFF, data >> BITS


def _move(wide: Ints, new: Window, rows: Ints, was: Window) -> None:
    skip, skipped = (SPECIALS if new.special else 0), (SPECIALS if was.special else 0)
    wide[:, :skipped] = rows[:, :skipped]
    if was.count:
        at = skip + was.first - new.first
        wide[:, at : at + was.count] = rows[:, skipped : skipped + was.count]


def _rounded(one: Sums, begin: int, rows: Ints) -> NDArray[np.float64]:
    """The sums as doubles: exact, rounded once; NaN and infinities decide if there are any."""
    window = one.sum
    at = begin + 1 + (SPECIALS if window.special else 0)
    base = FLOAT_BASE + BITS * window.first if one.is_float else 0
    out = np.empty(len(rows), np.float64)
    round_all(rows, at, window.count, base, np.empty(_MOST_DIGITS, np.int64), out)
    if window.special:
        nans, above, below = (rows[:, begin + 1 + k] > 0 for k in range(SPECIALS))
        out[above] = np.inf
        out[below] = -np.inf
        out[nans | (above & below)] = np.nan
    return out


def _deviation(one: Sums, begin: int, rows: Ints, counts: Ints) -> pa.Array:
    sums, squares = one.sum, one.squares
    skip = SPECIALS if sums.special else 0
    first = begin + 1 + skip, sums.count, FLOAT_BASE + BITS * sums.first
    after = begin + 1 + sums.width + (SPECIALS if squares.special else 0)
    second = after, squares.count, SQUARE_BASE + BITS * squares.first
    out = np.empty(len(rows), np.float64)
    scratch = np.empty((4, 2 * _MOST_DIGITS), np.int64)
    deviate_all(rows, first, second, counts, scratch, out)
    if sums.special:
        out[(rows[:, begin + 1 : begin + 1 + SPECIALS] > 0).any(axis=1)] = np.nan
    return to_arrow(out, pa.float64(), mask=counts > 1)


def _decimal(
    function: Aggregate, one: Sums, begin: int, rows: Ints, divisor: Ints, target: Any
) -> pa.Array:
    limit = 10**target.precision
    digits = np.array([limit >> BITS * k & 0xFFFFFFFF for k in range(5)], np.int64)
    factor = 10 ** (target.scale - one.kind.scale)
    out = np.empty((len(rows), 2), np.int64)
    scratch = np.empty(_MOST_DIGITS, np.int64)
    wrong = int(
        decimal_all(rows, begin + 1, one.sum.count, factor, divisor, digits, scratch, out)
    )
    if wrong >= 0:
        raise SumOverflowError(function, wrong, target)
    has = None if (divisor > 0).all() else divisor > 0
    return to_arrow(out.view("V16").reshape(-1), target, mask=has)
