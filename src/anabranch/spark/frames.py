"""Validation of a user's DataFrame, and access to columns with names of any kind.

Spark reads a name as an expression: a dot in it is a field of a struct, a backtick quotes.  Its
own `withColumn` and `mapInArrow` do so with the names of all columns.  So names go into Spark
through `quoted`, columns are added by `with_columns`, and go to Python by `plainly_named`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anabranch.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever is in it.

    >>> quoted("a.b"), quoted("a`b")
    ('`a.b`', '`a``b`')
    """
    return "`" + name.replace("`", "``") + "`"


def with_columns(df: "DataFrame", columns: "Mapping[str, Column]") -> "DataFrame":
    """The DataFrame with columns replaced or, at its end, added."""
    names = [*df.columns, *(name for name in columns if name not in df.columns)]
    return df.select(
        *(columns[name].alias(name) if name in columns else quoted(name) for name in names)
    )


def plainly_named(df: "DataFrame") -> "DataFrame":
    """The DataFrame with numbered columns if Spark's `mapInArrow` could not read their names.

    Else it is left as it is: each step is planned again in every trigger.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if not any(mark in name for name in df.columns for mark in ".`"):
        return df
    return df.select(
        *(F.col(quoted(name)).alias(f"c{at}") for at, name in enumerate(df.columns))
    )


def require_frame(df: Any, where: str) -> None:
    """Reject what is no DataFrame of Spark's; `where` names the function that got it."""
    from pyspark.sql import DataFrame

    if isinstance(df, DataFrame):
        return
    module, name = type(df).__module__, type(df).__name__
    kind = name if module == "builtins" else f"{module}.{name}"
    message = (
        f"{where}: got {kind}, expected a DataFrame of Spark's, batch or streaming; read files "
        "with spark.read or spark.readStream, make one of rows or of a pandas or Arrow table "
        "with spark.createDataFrame(...)"
    )
    raise UsageError(message)
