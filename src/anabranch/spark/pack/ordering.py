"""The order of the rows of a replica: columns of the user, or the positions of a source.

The columns that order rows are copied: a position in a source is no payload, for it differs
between copies, and a column that is both is needed under its own name too.
"""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.batch.schema import RESERVED
from anabranch.errors import SchemaError
from anabranch.spark.frames import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "file": ("_metadata.file_path", "_metadata.row_index"),
    "kafka": ("topic", "partition", "offset"),
}
"""Named orders: the columns in which a source gives the position of a row."""

_OF_KAFKA: Final = ("timestamp", "timestampType")
"""Columns of Kafka's source that describe a message and differ between copies."""

COPY: Final = "__order_"
"""How the names of these copies begin."""


def ordering_of(order: str | Sequence[str]) -> tuple[str, ...]:
    """The columns that a user's `order` means."""
    return ORDERS.get(order, (order,)) if isinstance(order, str) else tuple(order)


def copies_of(ordering: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the copies of these columns."""
    return tuple(f"{COPY}{number}" for number in range(len(ordering)))


def with_order(
    df: "DataFrame", ordering: tuple[str, ...], where: str, keep: Sequence[str | None] = ()
) -> "DataFrame":
    """The DataFrame with copies of the columns that order it.

    Only those to keep stay: a position in a source is no payload, it differs between copies.
    """
    from pyspark.sql import functions as F  # noqa: N812

    _require_order(df, ordering, where)
    if ordering == ORDERS["kafka"]:
        _warn_of_kafka([c for c in df.columns if c not in keep], where)
    pairs = zip(ordering, copies_of(ordering), strict=True)
    # A name that is no column's is an expression: a field of a struct, or quoted already.
    columns = [
        F.col(quoted(name) if name in df.columns else name).alias(copy) for name, copy in pairs
    ]
    stays = {*keep, *RESERVED} | (set(df.columns) - set(ordering))
    rest = [quoted(c) for c in df.columns if c in stays]
    return df.select(*rest, *columns) if columns else df


def _require_order(df: "DataFrame", ordering: tuple[str, ...], where: str) -> None:
    for name in ordering:
        root = name.partition(".")[0]
        there = name in df.columns or root in df.columns
        if there or root == "_metadata" or name.startswith("`"):
            continue
        hint = "check the name"
        if ordering == ORDERS["kafka"]:
            hint = (
                "order='kafka' is by the columns topic, partition and offset of Spark's Kafka "
                "source: keep them where you parse the value"
            )
        message = (
            f"{where}: order: there is no column '{name}'; the DataFrame has {df.columns}; "
            f"{hint}"
        )
        raise SchemaError(message)


def _warn_of_kafka(columns: Sequence[str], where: str) -> None:
    left = [c for c in _OF_KAFKA if c in columns]
    if "timestampType" in left:  # a name that only Kafka's source has
        warnings.warn(
            f"{where}: {', '.join(left)} of Kafka's source are payload here; where they differ "
            "between copies, no two events are equal: drop them",
            UserWarning,
            stacklevel=4,
        )
