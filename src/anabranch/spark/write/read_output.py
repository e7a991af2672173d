"""A merged output as a DataFrame: exactly the rows that were committed.

Only trigger folders that the driver has completed count (`_SUCCESS`); any other reader does
the same with `spark.read.parquet("OUTPUT/elements/*")`, as long as no merge is writing.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import FileError, UsageError
from anabranch.sources.channels import ELEMENTS, LATE, PROGRESS, VIOLATIONS

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
    triggers = sorted(folder.glob("trigger-*")) if folder.is_dir() else []
    done = [str(trigger) for trigger in triggers if (trigger / "_SUCCESS").exists()]
    if not done:
        message = (
            f"{folder}: no trigger has been committed there; expected the output folder of a "
            "merge that has written such rows; check the path"
        )
        raise FileError(message)
    return spark.read.parquet(*done)
