"""From the lanes' parcels to the four folders of an output, each trigger exactly once.

    OUTPUT/elements/trigger-000000000007/part-*.parquet     the merged stream
    OUTPUT/late/...        rows that came too late, with replica, file, row and reason
    OUTPUT/violations/...  rows that broke a promise or are no elements, likewise
    OUTPUT/progress/...    one record per lane

The lanes write the files, the driver puts them into place (`anabranch.spark.direct`).  Spark
runs the last trigger again after a crash, with the same id and the same rows; the folder of
that id is then replaced as a whole.  A trigger's folder counts if `_SUCCESS` is in it, which is
also how any other reader can tell: `spark.read.parquet("OUTPUT/elements/*")`.

Which columns they have is said in `anabranch.spark.forms`.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlparse

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.spark.direct import Shelf, publish, write_table
from anabranch.spark.forms import LATE, ApartForm, ElementsForm, Form
from anabranch.spark.progress import Record

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ELEMENTS: Final = "elements"
VIOLATIONS: Final = "violations"
FINAL: Final = "final"
PROGRESS: Final = "progress"

STAGED_FILES: Final = "staged"
"""Where a record on its way to the driver names the files that its lane has written."""

RECORDS: Final = pa.schema({"lane": pa.int32(), "record": pa.string()})


def trigger_folder(output: Path, channel: str, trigger: int) -> Path:
    """The folder of one trigger; its name sorts like its number."""
    return output / channel / trigger_name(trigger)


def trigger_name(trigger: int) -> str:
    """What the folder of a trigger is called."""
    return f"trigger-{trigger:012d}"


def shelves(output: Path, schema: ElementSchema, lanes: int) -> tuple[Shelf, ...]:
    """The folders of an output that the lanes write."""
    elements, apart = ElementsForm(schema, lanes), ApartForm(schema)
    forms: dict[str, Form] = {ELEMENTS: elements, LATE: apart, VIOLATIONS: apart}
    return tuple(Shelf(str(output / name), (name,), form) for name, form in forms.items())


def write_trigger(df: "DataFrame", trigger: int, *, output: Path) -> list[Record]:
    """Put what the lanes wrote in one trigger into its place; returns their records."""
    records = read_records(df)
    publish_all(records, trigger)
    write_records(df, records, str(trigger_folder(output, PROGRESS, trigger)))
    return records


def read_records(df: "DataFrame") -> list[Record]:
    """The records of the lanes, of a DataFrame that has no other rows: Spark works now."""
    return [json.loads(row["note"]) for row in df.collect()]


def publish_all(records: list[Record], trigger: int) -> None:
    """Move the files that the lanes say they wrote into the trigger's folders."""
    found: dict[str, dict[int, str]] = {}
    for record in records:
        for folder, name in record.pop(STAGED_FILES, {}).items():
            found.setdefault(folder, {})[record["lane"]] = name
    for folder, names in found.items():
        publish(Path(folder) / trigger_name(trigger), names)


def write_records(df: "DataFrame", records: list[Record], folder: str) -> None:
    """Write the records of a trigger; by Spark where only Spark can."""
    rows = [(record["lane"], json.dumps(record)) for record in records]
    place = local(folder)
    if place is not None:
        columns = [pa.array(column) for column in zip(*rows, strict=True)]
        write_table(pa.table(columns, RECORDS), place)
        return
    frame = df.sparkSession.createDataFrame(rows, "lane int, record string")
    frame.coalesce(1).write.mode("overwrite").parquet(folder)


def local(path: str) -> Path | None:
    """A path on this machine, or None if it is a place that only Spark reaches."""
    parts = urlparse(path)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    return None if parts.scheme and "://" in path else Path(path).resolve()
