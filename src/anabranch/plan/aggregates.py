"""The functions of `aggregate`: `ab.count()`, `ab.sum("price")` and others.

Each returns a specification; the keyword of `aggregate` names the column of its result.

    query.group_by("symbol").aggregate(n=ab.count(), mean=ab.avg("price"))
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from anabranch.operators.aggregate.functions import Aggregate, UserDefined


def count(column: str | None = None) -> Aggregate:
    """The number of events, or of values that are not null in a column."""
    return Aggregate("count", column, "")


def sum(column: str) -> Aggregate:  # noqa: A001  the name that users know
    """The sum of a column; of floats the exact sum, rounded once."""
    return Aggregate("sum", column, "")


def avg(column: str) -> Aggregate:
    """The mean of a column."""
    return Aggregate("avg", column, "")


def min(column: str) -> Aggregate:  # noqa: A001  the name that users know
    """The least value of a column."""
    return Aggregate("min", column, "")


def max(column: str) -> Aggregate:  # noqa: A001  the name that users know
    """The greatest value of a column."""
    return Aggregate("max", column, "")


def count_distinct(column: str) -> Aggregate:
    """The number of different values of a column."""
    return Aggregate("count_distinct", column, "")


def stddev(column: str) -> Aggregate:
    """The standard deviation of a sample."""
    return Aggregate("stddev", column, "")


def collect(column: str) -> Aggregate:
    """All values of a column as an array, sorted."""
    return Aggregate("collect", column, "")


def quantile(column: str, p: float) -> Aggregate:
    """The value below which a share `p` of the values lies, interpolated linearly."""
    return Aggregate("quantile", column, "", p=p)


def user_defined(
    column: str,
    *,
    zero: Callable[[], Any],
    add: Callable[[Any, Any], Any],
    remove: Callable[[Any, Any], Any],
    result: Callable[[Any], Any],
    type: pa.DataType,  # noqa: A002  what it is called everywhere
    canonical: bool = False,
) -> Aggregate:
    """An aggregate in Python, over the values of a column that are not null.

    Args:
        column: The column.
        zero: Returns the state of a group without values.
        add: `add(state, value)` returns the state with one more value.
        remove: `remove(state, value)` returns the state without a value that was added.
        result: `result(state)` returns the value of the result column.
        type: The type of the result, a pyarrow type such as `pa.float64()`.
        canonical: True: the result does not depend on the order of values, so that replicas of
            the query agree, and a state is made of the one before, with `remove`. Else each
            result is computed from all of its values.
    """
    user = UserDefined(zero, add, remove, result, type, canonical)
    return Aggregate("user", column, "", user=user)
