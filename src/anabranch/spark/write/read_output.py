"""A merged output as a DataFrame: exactly the rows that Spark has committed.

What is published, any reader reads: `spark.read.parquet("OUTPUT/elements")`, at any time.  Here
come also the rows that wait to be published: those of the last minute of a query that runs, or
of one that was killed.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import FileError, UsageError
from anabranch.sinks.published import committed_files
from anabranch.sources.channels import ELEMENTS, LATE, PROGRESS, VIOLATIONS
from anabranch.spark.lane.stage import escaped
from anabranch.spark.write.records import record_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_output(
    spark: "SparkSession", path: Path | str, *, what: str = ELEMENTS
) -> "DataFrame":
    """The committed rows of an output: its elements, or `late`, `violations`, `progress`.

    Sort elements by `seq` to get a valid physical stream.
    """
    if what not in (ELEMENTS, LATE, VIOLATIONS, PROGRESS):
        message = (
            f"read_output: what={what!r}; an output has {ELEMENTS!r}, {LATE!r}, {VIOLATIONS!r} "
            f"and {PROGRESS!r}"
        )
        raise UsageError(message)
    folder = Path(path) / what
    files = record_files(folder).values() if what == PROGRESS else committed_files(folder)
    done = [escaped(str(file)) for file in files]
    if not done:
        message = (
            f"{folder}: no trigger has been committed there; expected the output folder of a "
            "merge that has written such rows; check the path"
        )
        raise FileError(message)
    return spark.read.parquet(*done)
