"""Aggregates that need the values: min, max, count_distinct, collect, quantile, user-defined.

`results` takes values in bags: a column, and the number of the bag that each value is in.  The
result of a bag does not depend on the order of its values (a user-defined aggregate sees them
in sorted order).

>>> values = pa.array([3.0, None, 1.0, 2.0])
>>> bag = np.array([0, 0, 0, 1])
>>> results(Aggregate("max", "x", "most"), bag, values, 3).to_pylist()
[3.0, 2.0, None]
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import numbers, to_arrow, valid
from anabranch.batch.hashing import hash_rows
from anabranch.operators.aggregate.functions import Aggregate, is_ordered


def results(function: Aggregate, bag: Ints, values: pa.Array, count: int) -> pa.Array:
    """The result for each of `count` bags."""
    has = np.flatnonzero(valid(values))
    if len(has) < len(values):
        bag, values = bag[has], values.take(to_arrow(has, pa.int64()))
    rank = ranks(values)
    order = np.lexsort((rank, bag))
    bag, rank = bag[order], rank[order]
    first = np.searchsorted(bag, np.arange(count + 1)).astype(np.int64)
    if function.kind == "count_distinct":
        news = np.ones(len(bag), np.int64)
        news[1:] = (np.diff(bag) != 0) | (np.diff(rank) != 0)
        total = np.concatenate([[0], np.cumsum(news)])
        return to_arrow(np.diff(total[first]), pa.int64())
    if function.kind in ("min", "max"):
        at = first[:-1] if function.kind == "min" else first[1:] - 1
        is_there = np.diff(first) > 0
        index = order[at[is_there]]
        rows = np.zeros(count, np.int64)
        rows[is_there] = index
        return canonical(values).take(to_arrow(rows, pa.int64(), mask=is_there))
    ordered = canonical(values).take(to_arrow(order.astype(np.int64), pa.int64()))
    if function.kind == "collect":
        offsets = pa.py_buffer(first.astype(np.int32))
        kind = pa.list_(values.type)
        return pa.Array.from_buffers(kind, count, [None, offsets], children=[ordered])
    if function.kind == "quantile":
        return _quantiles(float(function.p or 0.0), first, ordered)
    return _user_defined(function, first, ordered, rank)


def ranks(values: pa.Array) -> Ints:
    """The place of each value among all of them; equal values have one place.

    Values of types without an order are ranked by their hashes.
    """
    if not len(values):
        return np.empty(0, np.int64)
    if not is_ordered(values.type):
        words = hash_rows(pa.table({"value": values}), len(values))
        _, rank = np.unique(words, axis=0, return_inverse=True)
        return rank.reshape(-1).astype(np.int64)
    if pt.is_floating(values.type):
        return _float_ranks(values)
    plain = values.cast(pa.int8()) if pt.is_boolean(values.type) else values
    found = pc.rank(plain, sort_keys="ascending", tiebreaker="dense")
    return numbers(found, np.dtype(np.uint64)).astype(np.int64)


def canonical(values: pa.Array) -> pa.Array:
    """The same values with one form for those that are equal: no -0.0, one NaN."""
    if not pt.is_floating(values.type):
        return values
    dtype = np.dtype(np.float32 if pt.is_float32(values.type) else np.float64)
    data = numbers(values, dtype) + dtype.type(0)
    data[np.isnan(data)] = np.nan
    return to_arrow(data, values.type, mask=valid(values) if values.null_count else None)


def _float_ranks(values: pa.Array) -> Ints:
    dtype = np.dtype(np.float32 if pt.is_float32(values.type) else np.float64)
    # NumPy sorts NaN last, as Spark does, and takes them for equal.
    _, rank = np.unique(numbers(values, dtype), return_inverse=True)
    return rank.reshape(-1).astype(np.int64)


def _quantiles(p: float, first: Ints, ordered: pa.Array) -> pa.Array:
    size = np.diff(first)
    has = size > 0
    place = p * np.maximum(size - 1, 0)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, np.maximum(size - 1, 0))
    data = numbers(ordered.cast(pa.float64(), safe=False), np.dtype(np.float64))
    out = np.zeros(len(size), np.float64)
    one, other = data[(first[:-1] + low)[has]], data[(first[:-1] + high)[has]]
    part = (place - low)[has]
    # No arithmetic where nothing is between: inf - inf is not a number.
    with np.errstate(invalid="ignore"):
        between = one * (1 - part) + other * part
    out[has] = np.where((part == 0) | (one == other), one, between)
    return to_arrow(out, pa.float64(), mask=has)


def _user_defined(function: Aggregate, first: Ints, ordered: pa.Array, rank: Ints) -> pa.Array:
    """The results of a user's functions; of the values the `rank` is where they are sorted.

    From one bag to the next, which are mostly neighbours in time, few values come and go.  If
    the result depends on the bag alone (`canonical`), the next state is made of the last one,
    by `remove` and `add`; else of all values, in their order.
    """
    user = function.user
    assert user is not None, f"{function} has no functions"
    values, found = ordered.to_pylist(), []
    ranked: list[int] = rank.tolist()
    state, last = user.zero(), (0, 0)
    for bag in zip(first[:-1].tolist(), first[1:].tolist(), strict=True):
        gone, come = _differences(ranked, last, bag)
        if not user.canonical or len(gone) + len(come) >= bag[1] - bag[0]:
            state, gone, come = user.zero(), [], list(range(*bag))
        for at in gone:
            state = user.remove(state, values[at])
        for at in come:
            state = user.add(state, values[at])
        value = user.result(state)
        # A list may be the state itself, which goes on to the next bag.
        found.append(pa.scalar(value, user.type) if pt.is_nested(user.type) else value)
        last = bag
    return pa.array(found, user.type)


def _differences(
    ranked: Sequence[int], one: tuple[int, int], other: tuple[int, int]
) -> tuple[list[int], list[int]]:
    """The positions of values that only one of two sorted bags has, and only the other."""
    gone, come = [], []
    (i, end), (j, stop) = one, other
    while i < end and j < stop:
        if ranked[i] == ranked[j]:
            i, j = i + 1, j + 1
        elif ranked[i] < ranked[j]:
            gone.append(i)
            i += 1
        else:
            come.append(j)
            j += 1
    return [*gone, *range(i, end)], [*come, *range(j, stop)]
