"""Rows that wait in a file of their task while Spark calls a user's Python functions.

Spark calls a Python function on every row of a DataFrame, also on rows that a condition beside
it excludes.  So while it does, the DataFrame has the rows of one stream and nothing else.  What
else a partition has waits in a file: one Python worker of the task writes it before its last
row, the next one reads it behind the last row, and removes it.  Both run on one machine, for no
step between them shuffles.  A task that fails leaves its file; one that runs again has a number
of its own.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from anabranch.errors import RunError
from anabranch.spark.lane.rows import STAGE_ARROW


def keep(rows: Sequence[dict[str, Any]], token: str) -> None:
    """Let these rows of the task wait; `token` is unique in all queries of the machine."""
    table = pa.Table.from_pylist(list(rows), schema=STAGE_ARROW)
    with (
        pa.OSFile(str(_place(token)), "wb") as file,
        pa.ipc.new_stream(file, table.schema) as to,
    ):
        to.write_table(table)


def kept(token: str) -> list[dict[str, Any]]:
    """The rows that waited."""
    path = _place(token)
    try:
        with pa.OSFile(str(path), "rb") as file, pa.ipc.open_stream(file) as given:
            rows: list[dict[str, Any]] = given.read_all().to_pylist()
    except FileNotFoundError as error:
        message = (
            f"{path}: rows of this task that waited there are missing; a query that calls "
            "Python functions in where or select needs a folder for temporary files that all "
            "Python workers of a machine share and nobody empties: set TMPDIR"
        )
        raise RunError(message) from error
    path.unlink()
    return rows


def _place(token: str) -> Path:
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "rows wait in tasks of Spark only"
    return Path(tempfile.gettempdir()) / f"anabranch-{token}-{task.taskAttemptId()}.arrow"
