"""The reports of the lanes of a trigger, and its records in the progress folder.

Lanes write the files of a trigger themselves, and sinks (`anabranch.sinks`) put them into
place; the records come last, as one file per trigger that is complete or not there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.spark.progress import LaneRecord
from anabranch.spark.write.records import write_record_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_URI: Final = re.compile(r"[A-Za-z][\w+.-]+:/")
"""How a URI begins; a `Path` of one has a single slash."""

RECORDS: Final = pa.schema({"lane": pa.int32(), "record": pa.string()})
"""The columns of a trigger's folder of records; `record` is a `LaneRecord` as JSON."""


@dataclass(frozen=True)
class LaneReport:
    """What reached the driver of one lane: its record, as text too, and the files it staged."""

    record: LaneRecord
    text: str
    files: Mapping[str, str]


def read_reports(df: "DataFrame") -> list[LaneReport]:
    """The reports of the lanes, of a DataFrame that has no other rows: Spark works now."""
    reports = [
        LaneReport(LaneRecord.from_json(row["record"]), row["record"], row["files"] or {})
        for row in df.collect()
    ]
    require_one_frontier([one.record for one in reports])
    return reports


def require_one_frontier(records: Sequence[LaneRecord]) -> None:
    """Refuse lanes of the last stage that differ: one of them emits the stable for all."""
    last = max((one.stage for one in records), default=0)
    reached = {one.lane: one.frontier for one in records if one.stage == last}
    if len(set(reached.values())) > 1:
        message = (
            f"the lanes of the last stage have reached different frontiers, {reached}, and one "
            "of them emits the stable for all; let the last operator run in one lane, or add a "
            "stage of one lane"
        )
        raise StateError(message)


def staged_files(reports: Sequence[LaneReport]) -> dict[str, dict[str, int]]:
    """Of each folder the files that were staged there, each with the lane that wrote it."""
    found: dict[str, dict[str, int]] = {}
    for one in reports:
        for folder, name in one.files.items():
            found.setdefault(folder, {})[name] = one.record.lane
    return found


def write_records(
    df: "DataFrame", reports: Sequence[LaneReport], folder: str, trigger: int
) -> None:
    """Write the records of a trigger into a folder; by Spark where only Spark can."""
    rows = [(one.record.lane, one.text) for one in reports]
    place = local(folder)
    if place is not None:
        columns = {"lane": [lane for lane, _ in rows], "record": [text for _, text in rows]}
        write_record_file(pa.table(columns, RECORDS), place, trigger)
        return
    frame = df.sparkSession.createDataFrame(rows, "lane int, record string")
    frame.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{trigger_name(trigger)}")


def trigger_name(trigger: int) -> str:
    """The name of a trigger's folder where only Spark writes; names sort like numbers."""
    return f"trigger-{trigger:012d}"


def local(path: str) -> Path | None:
    """A path on this machine, or None if it is a place that only Spark reaches.

    >>> local("s3a://bucket/out"), local("s3a:/bucket/out"), local("file:///tmp")
    (None, None, PosixPath('/tmp'))
    """
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if _URI.match(path) else Path(path).resolve()
