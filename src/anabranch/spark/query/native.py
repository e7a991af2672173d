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

_TIME: Final = "now|today|tomorrow|yesterday"

_SHOWN_AS: Final = {
    **dict.fromkeys(("current_database", "current_catalog", "current_timezone")),
    **dict.fromkeys(("now", "current_timestamp", "current_date", "current_time")),
    **dict.fromkeys(("monotonically_increasing_id", "spark_partition_id")),
    **dict.fromkeys(("input_file_name", "input_file_block_start", "localtimestamp")),
    **dict.fromkeys(("user", "current_user", "session_user"), "current_user|session_user|user"),
    "current_schema": "current_schema|current_database",
    "curdate": "current_date|curdate",
    "unix_timestamp": "current_timestamp",
}
"""Functions whose result depends on more than their arguments, and their names in plans.

None: the same.  Some may be written without parentheses, where no column has their name.
"""
_NAMED: Final = re.compile(rf"\b({'|'.join(_SHOWN_AS)})\b", re.IGNORECASE)
_LITERAL: Final = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_TYPED: Final = re.compile(
    rf"\b(?:date|timestamp\w*)\s*['\"]\s*({_TIME})\b|\b(?:cast|to_date|to_timestamp\w*)"
    rf"\(\s*({_TIME})\b",
    re.IGNORECASE,
)
"""Times that Spark reads in a text: a typed literal, or a text that is cast (as plans show)."""
_SUBQUERY: Final = re.compile(r"\b(?:scalar-subquery|exists|list)#\d+ \[")

_ALL_FIELDS: Final = re.compile(r"\.\*$")

_CHANCE: Final = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
"""Spark's word for random numbers, and for user functions that are marked as such."""

_PYTHON: Final = "EvalPython"
"""In the name of every operator of Spark's that calls Python functions row by row."""

_ANALYSED: Final = "== Analyzed Logical Plan =="
"""Where the text of a plan has what Spark makes of an expression."""

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


def where_of(given: "Column | str", sample: "DataFrame", where: str) -> Where:
    """The change of a `where`, if Spark accepts its condition for these columns."""
    made = _column(given, where)
    _analysed(lambda: _filtered(sample, made), sample, where)
    plan = _plan([made], sample)
    _require_function_of_row(made, plan, sample, where)
    return Where(made, _PYTHON in plan)


def select_of(
    given: "Sequence[Column | str]", sample: "DataFrame", where: str
) -> tuple[Select, pa.Schema]:
    """The change of a `select`, and its columns with their types."""
    if not given:
        message = f"{where}: no column is given; name at least one"
        raise UsageError(message)
    made = tuple(_column(one, where) for one in given)
    found = _analysed(lambda: sample.select(*made), sample, where)
    plan = _plan(made, sample)
    for one in made:
        _require_function_of_row(one, plan, sample, where)
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
    return Select(made, _PYTHON in plan), arrow_schema(found.schema, where=where)


def _plan(columns: "Sequence[Column]", sample: "DataFrame") -> str:
    """Spark's plans of these expressions, analysed and physical, as text.

    A DataFrame has no other public place for what an expression calls.  The sample is empty,
    and a plan over no rows would be empty too; so here is a row of nulls.  If Spark cannot
    compute on it already, the plan is that of the sample, and may call anything.
    """
    from pyspark.errors import PySparkException

    row = (None,) * len(sample.columns)
    nulls = sample.sparkSession.createDataFrame([row], sample.schema)
    text = io.StringIO()
    with _quiet(), redirect_stdout(text):
        try:
            nulls.select(*columns).explain(extended=True)
        except PySparkException:
            sample.select(*columns).explain(extended=True)
            print(_PYTHON)
    return text.getvalue().partition(_ANALYSED)[2]


def sample_of(spark: "SparkSession", schema: ElementSchema, *, is_ntz: bool) -> "DataFrame":
    """An empty DataFrame with the columns that an expression may read."""
    time = pa.timestamp("us") if is_ntz else schema.time.arrow
    columns = pa.schema([pa.field(START, time), *schema.payload])
    return spark.createDataFrame([], spark_schema(columns))


def shown(column: "Column") -> str:
    """A Column as its text."""
    text = str(column)
    return text[8:-2] if text.startswith("Column<'") else text


def _column(given: Any, where: str) -> "Column":
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812

    if isinstance(given, str):
        return F.expr(given)
    if isinstance(given, Column):
        return given
    message = f"{where}: got {type(given).__name__}, expected a Column or a text of SQL"
    raise UsageError(message)


def _require_function_of_row(
    column: "Column", plan: str, sample: "DataFrame", where: str
) -> None:
    """Reject what depends on more than the row, or is not one value for each row."""
    text = shown(column)
    names = [one.lower() for one in _NAMED.findall(_LITERAL.sub("", text))]
    called = [one for one in names if re.search(rf"\b({_SHOWN_AS[one] or one})\(", plan)]
    typed = _TYPED.search(text) or (
        _TYPED.search(plan) if re.search(_TIME, text, re.I) else None
    )
    if _SUBQUERY.search(plan):
        what = "a subquery"
    elif called:
        what = called[0]
    elif typed:
        what = f"the time '{(typed[1] or typed[2]).lower()}'"
    elif _is_random(column, sample, where):
        what = "a random or nondeterministic function"
    else:
        return
    message = (
        f"{where}: {column} calls {what}, which does not depend on the row alone: a row "
        "and its correction could get different results; compute the column before "
        "ab.events or ab.elements"
    )
    raise UsageError(message)


def _is_random(column: "Column", sample: "DataFrame", where: str) -> bool:
    """Whether Spark knows an expression as nondeterministic: a join is where it rejects one.

    What a filter rejects is no value of one row: an aggregate, a window function, a generator.
    """
    from pyspark.errors import AnalysisException

    if _ALL_FIELDS.search(shown(column)):
        return False  # the fields of a struct; no filter takes them
    other = sample.sparkSession.range(0).toDF("__other")
    try:
        with _quiet():
            _filtered(sample, column.isNotNull()).schema  # noqa: B018  analysed now
    except AnalysisException as error:
        message = (
            f"{where}: {column} is not one value for each row: aggregates, window functions "
            "and functions that make rows, such as explode, cannot be here; use "
            "group_by(...).aggregate(...) or top_k(...), or explode before ab.events or "
            "ab.elements"
        )
        raise UsageError(message) from error
    try:
        with _quiet():
            sample.join(other, column.isNotNull()).schema  # noqa: B018  analysed now
    except AnalysisException as error:
        return _CHANCE in str(error)
    return False


def _filtered(sample: "DataFrame", condition: "Column") -> "DataFrame":
    """The rows of a filter, as a DataFrame whose schema only an analysis gives.

    On Connect the schema of a filter is that of its input, and no server is asked for it.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return sample.where(condition).select(F.lit(1))


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
