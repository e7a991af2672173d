"""A checkpoint that only Spark reaches, such as one on an object store: its small texts.

Everything goes through Spark's own readers and writers, so what Spark can use as a checkpoint
can be looked at, with the same settings and credentials.

    CHECKPOINT/anabranch-run/        the run, as `_run.json` is in a local checkpoint
    CHECKPOINT/anabranch-lease-N/    who drives it (`lease`)
    CHECKPOINT/progress/trigger-N/   the records of a trigger

Each of them is a folder with one file of text or Parquet that Spark writes.  A folder that is
overwritten is for a moment not there.
"""

import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from anabranch.errors import StateError
from anabranch.sources.channels import PROGRESS
from anabranch.spark.checkpoint.run_record import Run, from_text
from anabranch.spark.progress import LaneRecord, Totals

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

log = logging.getLogger(__name__)

RUN: Final = "anabranch-run"
_TRIES: Final = 3
_TRIGGER: Final = re.compile(r"/trigger-(\d+)/[^/]*$")


@dataclass(frozen=True, eq=False)
class RemoteFolder:
    """A folder by its URI, and the session whose Spark reaches it."""

    spark: "SparkSession"
    uri: str

    def lines(self, name: str) -> list[str] | None:
        """The lines of text in a folder below; None if there is no such folder."""
        found = self._rows(self.spark.read.text, name)
        return None if found is None else [row[0] for row in found]

    def write(self, name: str, text: str, *, replace: bool = False) -> None:
        """Write one line of text into a folder below; one that is there is replaced, or not."""
        mode = "overwrite" if replace else "errorifexists"
        frame = self.spark.createDataFrame([(text,)], "value string")
        frame.coalesce(1).write.mode(mode).text(f"{self.uri}/{name}")

    def files(self, name: str) -> list[str]:
        """The names of the files in a folder below; none if there is no such folder."""
        found = self._rows(self.spark.read.format("binaryFile").load, name, "path")
        return [str(row[0]).rpartition("/")[2] for row in found or []]

    def records(self) -> dict[int, list[str]]:
        """The records of the lanes, by trigger, in order."""
        name = f"{PROGRESS}/trigger-*"
        read = self.spark.read.schema("lane int, record string").parquet
        found = self._rows(read, name, "record", "_metadata.file_path")
        by_trigger: dict[int, list[str]] = {}
        for record, path in found or []:
            number = _TRIGGER.search(path)
            if number is not None:
                by_trigger.setdefault(int(number[1]), []).append(record)
        return dict(sorted(by_trigger.items()))

    def _rows(
        self, read: "Callable[[str], DataFrame]", name: str, *columns: str
    ) -> "list[Row] | None":
        """The rows of a folder; one that is overwritten meanwhile is read again."""
        from pyspark.errors import AnalysisException

        for left in reversed(range(_TRIES)):
            try:
                return read(f"{self.uri}/{name}").select(*(columns or ("*",))).collect()
            except AnalysisException as error:
                if "PATH_NOT_FOUND" in str(error.getCondition()):
                    return None
                raise
            except Exception:  # by Spark or its JVM: a file is gone since it was listed
                if not left:
                    raise
        return None


def find(folder: RemoteFolder) -> Run | None:
    """The run that a checkpoint belongs to; None if it is new; else a `StateError`."""
    lines = folder.lines(RUN)
    begun, committed = (last_entry(folder.files(log)) for log in ("offsets", "commits"))
    if lines is None:
        if begun >= 0:
            message = (
                f"{folder.uri}: holds a checkpoint that is not of a run of ours, or whose run "
                "is not recorded there; name a new folder"
            )
            raise StateError(message)
        return None
    found = from_text(lines[0] if lines else "", f"{folder.uri}/{RUN}")
    _require_written(folder, begun, committed)
    return found


def _require_written(folder: RemoteFolder, begun: int, committed: int) -> None:
    """Reject records that do not fit what Spark has committed, as in a local checkpoint."""
    written = folder.records()
    if committed >= 0 and committed not in written:
        message = (
            f"{folder.uri}: Spark has committed trigger {committed}, but its records are not "
            f"in {PROGRESS}: files were removed; restore them, or name a new checkpoint and "
            "new sinks: then all of the input is merged again"
        )
        raise StateError(message)
    if written and max(written) > begun:
        message = (
            f"{folder.uri}: its last trigger is {begun}, but there are records of trigger "
            f"{max(written)}: entries of the checkpoint are lost, or it is an old copy; "
            "restore it, or name a new checkpoint and new sinks: then all of the input is "
            "merged again"
        )
        raise StateError(message)


def record(run: Run, folder: RemoteFolder) -> None:
    """Write the run into its checkpoint."""
    folder.write(RUN, json.dumps(asdict(run)))


def read_totals(folder: RemoteFolder) -> Totals:
    """The totals of all triggers that were written."""
    totals = Totals()
    for trigger, texts in folder.records().items():
        totals.add([LaneRecord.from_json(text) for text in texts], trigger)
    return totals


def last_commit(folder: RemoteFolder) -> int:
    """The last trigger that Spark has committed; -1 if none, or if Spark is gone."""
    try:
        return last_entry(folder.files("commits"))
    except Exception as error:  # what ended it is raised where the query is waited for
        log.info("the commits of %s could not be read: %s", folder.uri, error)
        return -1


def last_entry(names: Sequence[str]) -> int:
    """The number of the last entry in one of Spark's logs; -1 if there is none."""
    return max((int(name) for name in names if name.isdecimal()), default=-1)
