"""A merged output as a DataFrame: exactly the rows that Spark has committed.

What is published, any reader reads: `spark.read.parquet("OUTPUT/elements")`, at any time.  Here
come also the rows that wait to be published: those of the last minute of a query that runs, or
of one that was killed.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.batch.schema import END, OLD_END, RESERVED, SEQ, START
from anabranch.errors import FileError, UsageError
from anabranch.sinks.published import committed_files
from anabranch.sources.channels import ELEMENTS, LATE, PROGRESS, VIOLATIONS
from anabranch.sources.files import changed_columns
from anabranch.spark.frames import quoted
from anabranch.spark.lane.stage import escaped
from anabranch.spark.write.formats import STEP_BITS
from anabranch.spark.write.records import record_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_EVENTS: Final = "__events"
_VERSION: Final = "__version"
_CAME: Final = "__came"

CURRENT: Final = "current"
"""The events that are on the output now."""

HISTORY: Final = "history"
"""Every version of every event, and the steps in which it was on the output."""

_READABLE: Final = (ELEMENTS, CURRENT, HISTORY, LATE, VIOLATIONS, PROGRESS)


def read_output(
    spark: "SparkSession", path: Path | str, *, what: str = ELEMENTS
) -> "DataFrame":
    """The committed rows of an output: its elements, or `late`, `violations`, `progress`.

    A column that the run added is null in older rows, one that it dropped is left out.

    Sort elements by `seq` to get a valid physical stream.  `current` has what the elements add
    up to: a row for each event, with `start`, `end` and payload.  `history` has also what was
    corrected: `_from_version` is the step that wrote a version, `_to_version` the one that
    replaced or removed it, null for what is current.
    """
    if what not in _READABLE:
        *most, last = map(repr, _READABLE)
        message = f"read_output: what={what!r}; an output has {', '.join(most)} and {last}"
        raise UsageError(message)
    folder = Path(path) / (ELEMENTS if what in (CURRENT, HISTORY) else what)
    files = record_files(folder).values() if what == PROGRESS else committed_files(folder)
    done = [escaped(str(file)) for file in files]
    if not done:
        message = (
            f"{folder}: no trigger has been committed there; expected the output folder of a "
            "merge that has written such rows; check the path"
        )
        raise FileError(message)
    added, dropped = changed_columns(Path(path))
    # Looking into every file costs time: only where columns came and went.
    merges = what != PROGRESS and bool(added or dropped)
    rows = spark.read.option("mergeSchema", merges).parquet(*done).drop(*sorted(dropped))
    if what == HISTORY:
        return history(rows)
    return current(rows) if what == CURRENT else rows


def history(elements: "DataFrame") -> "DataFrame":
    """Every version of every event: from the step that wrote it to the one that replaced it.

    Of equal versions the first that was written is the first to go.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812

    payload = [quoted(name) for name in elements.columns if name not in RESERVED]
    data = elements.where("kind <> 'stable'")
    version = F.shiftright(SEQ, STEP_BITS).alias(_VERSION)
    came = data.where("end is null or end <> start").select(
        START, END, *payload, SEQ, version, F.lit(1).alias(_CAME)
    )
    went = data.where("kind = 'adjust'").select(
        START, F.col(OLD_END).alias(END), *payload, SEQ, version, F.lit(0).alias(_CAME)
    )
    same = [START, END, *payload]
    number = F.row_number().over(Window.partitionBy(*same, _CAME).orderBy(SEQ))
    numbered = came.unionAll(went).withColumn(_EVENTS, number)
    versions = numbered.groupBy(*same, _EVENTS).agg(
        F.max(F.when(F.col(_CAME) == 1, F.col(_VERSION))).alias("_from_version"),
        F.max(F.when(F.col(_CAME) == 0, F.col(_VERSION))).alias("_to_version"),
    )
    return versions.drop(_EVENTS)


def current(elements: "DataFrame") -> "DataFrame":
    """The events that elements stand for, each once; equal events as often as there are.

    Events with one start, end and payload are counted: what was inserted with this end or
    adjusted to it, less what was adjusted from it.  The order of the elements does not matter.
    """
    from pyspark.sql import functions as F  # noqa: N812

    payload = [quoted(name) for name in elements.columns if name not in RESERVED]
    data = elements.where("kind <> 'stable'")
    became = data.where("end is null or end <> start").select(
        START, END, *payload, F.lit(1).alias(_EVENTS)
    )
    was = data.where("kind = 'adjust'").select(
        START, F.col(OLD_END).alias(END), *payload, F.lit(-1).alias(_EVENTS)
    )
    counted = (
        became.unionAll(was).groupBy(START, END, *payload).agg(F.sum(_EVENTS).alias(_EVENTS))
    )
    each = F.explode(F.array_repeat(F.lit(0), F.col(_EVENTS).cast("int"))).alias(_EVENTS)
    return counted.where(f"{_EVENTS} > 0").select(START, END, *payload, each).drop(_EVENTS)
