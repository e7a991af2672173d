"""`where` and `select` as Spark evaluates them: validated when the query is built.

An expression may read the payload and `start`.  It must depend on the row alone: random
numbers, the current time and the like are rejected by name, because an adjust of an event must
get the same result as its insert.
"""

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.batch.schema import RESERVED, START, ElementSchema
from anabranch.errors import SchemaError, UsageError
from anabranch.spark.columns import arrow_schema, spark_schema
from anabranch.spark.frames import quoted
from anabranch.spark.lane.native import HIDDEN

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_NOT_A_FUNCTION_OF_THE_ROW: Final = re.compile(
    r"\b(now|current_timestamp|current_date|current_time|curdate|localtimestamp|"
    r"monotonically_increasing_id|spark_partition_id|input_file_name|"
    r"input_file_block_start)\(|\b(unix_timestamp)\(\)",
    re.IGNORECASE,
)

_CHANCE: Final = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
"""Spark's word for random numbers, and for user functions that are marked as such."""

_PYTHON: Final = "EvalPython"
"""In the name of every operator of Spark's that calls Python functions row by row."""

_PLACE: Final = re.compile(r"^\[[\w.]+\] |;? ?line \d+ pos \d+;?| SQLSTATE: \w+;?")
"""What Spark's errors have beside their sentences."""


@dataclass(frozen=True)
class Where:
    """Keeps the rows for which a condition is true; rows of other streams pass."""

    condition: Any
    calls_python: bool = False

    def __call__(self, df: "DataFrame", others: str) -> "DataFrame":
        """The rows that stay."""
        from pyspark.sql import functions as F  # noqa: N812

        return df.where(F.expr(others) | self.condition)


@dataclass(frozen=True)
class Select:
    """New payload columns; hidden columns and `start` stay."""

    columns: tuple[Any, ...]
    calls_python: bool = False

    def __call__(self, df: "DataFrame", others: str) -> "DataFrame":
        """All rows with their new columns."""
        del others
        kept = [quoted(name) for name in df.columns if name.startswith(HIDDEN)]
        return df.select(*kept, quoted(START), *self.columns)


def condition_of(given: "Column | str", sample: "DataFrame", where: str) -> "Column":
    """The condition of a `where`, if Spark accepts it for these columns."""
    made = _column(given, where)
    _require_function_of_row(made, sample, where)
    found = _analysed(lambda: sample.where(made), sample, where)
    del found
    return made


def columns_of(
    given: "Sequence[Column | str]", sample: "DataFrame", where: str
) -> "tuple[tuple[Column, ...], pa.Schema]":
    """The columns of a `select`, and their types."""
    if not given:
        message = f"{where}: no column is given; name at least one"
        raise UsageError(message)
    made = tuple(_column(one, where) for one in given)
    for one in made:
        _require_function_of_row(one, sample, where)
    found = _analysed(lambda: sample.select(*made), sample, where)
    names = [field.name for field in found.schema]
    for name in names:
        if name.lower() in RESERVED or name.startswith(HIDDEN):
            message = (
                f"{where}: a column would be called '{name}', which the element format needs "
                f"for itself ({', '.join(RESERVED)}); give it another name with .alias(...)"
            )
            raise SchemaError(message)
        if names.count(name) > 1:
            message = f"{where}: two columns would be called '{name}'; use .alias(...)"
            raise SchemaError(message)
    return made, arrow_schema(found.schema, where=where)


def calls_python(columns: "Sequence[Column]", sample: "DataFrame") -> bool:
    """Whether Spark calls Python functions of the user's for these expressions.

    The physical plan shows it, which a DataFrame has no other public place for.  The sample is
    empty, and a plan over no rows would be empty too; so here is one row of nulls.
    """
    from pyspark.sql import functions as F  # noqa: N812

    fields = sample.schema.fields
    nulls = [F.lit(None).cast(one.dataType).alias(one.name) for one in fields]
    text = io.StringIO()
    with _quiet(), redirect_stdout(text):
        sample.sparkSession.range(1).select(*nulls).select(*columns).explain()
    return _PYTHON in text.getvalue()


def sample_of(spark: "SparkSession", schema: ElementSchema, *, is_ntz: bool) -> "DataFrame":
    """An empty DataFrame with the columns that an expression may read."""
    time = pa.timestamp("us") if is_ntz else schema.time.arrow
    columns = pa.schema([pa.field(START, time), *schema.payload])
    return spark.createDataFrame([], spark_schema(columns))


def _column(given: Any, where: str) -> "Column":
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(given, str):
        return F.expr(given)
    if isinstance(given, Column):
        return given
    message = f"{where}: got {type(given).__name__}, expected a Column or a text of SQL"
    raise UsageError(message)


def _require_function_of_row(column: "Column", sample: "DataFrame", where: str) -> None:
    found = _NOT_A_FUNCTION_OF_THE_ROW.search(str(column))
    if not found and not _is_random(column, sample):
        return
    what = found[1] or found[2] if found else "a random or nondeterministic function"
    message = (
        f"{where}: {column} calls {what}, which does not depend on the row alone: a row "
        "and its correction could get different results; compute the column before "
        "ab.events or ab.elements"
    )
    raise UsageError(message)


def _is_random(column: "Column", sample: "DataFrame") -> bool:
    """Whether Spark knows an expression as nondeterministic: a join is where it rejects one."""
    from pyspark.errors import AnalysisException

    other = sample.sparkSession.range(0).toDF("__other")
    try:
        with _quiet():
            sample.join(other, column.isNotNull()).schema  # noqa: B018  analysed now
    except AnalysisException as error:
        return _CHANCE in str(error)
    return False


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Java's stack in the log."""
    log = logging.getLogger("SQLQueryContextLogger")
    log.disabled, was = True, log.disabled
    try:
        yield
    finally:
        log.disabled = was


def _analysed(work: Any, sample: "DataFrame", where: str) -> "DataFrame":
    """What Spark makes of an expression; its error in our words if a column is unknown."""
    from pyspark.errors import AnalysisException

    try:
        with _quiet():
            found: DataFrame = work()
            found.schema  # noqa: B018  on Connect the plan is analysed now
    except AnalysisException as error:
        text = _PLACE.sub("", str(error).split("\n", 1)[0])
        hidden = [n for n in RESERVED if n != START and re.search(rf"\b{n}\b", text)]
        why = (
            f"; {', '.join(hidden)} cannot be read here, but start can: the result must be "
            "the same for a row and for every correction of it"
            if hidden
            else ""
        )
        message = f"{where}: {text}{why}; the columns are {sample.columns}"
        raise SchemaError(message) from error
    return found
