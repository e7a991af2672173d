"""A window query on real Spark, run as `windows.infer` asks: one probe, one streaming query.

Each batch of the probe is one JSON file and one trigger: the next file is written when Spark
has done all it can do with those before, batches without data included.  With `backlog=True`
all files are there from the start: then a batch without data comes only at the end.
"""

import json
import os
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark.sql import functions as f

from anabranch.model import Stable
from anabranch.windows import Arrival
from anabranch.windows.inference.answers import Run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


def spark_run(
    spark: "SparkSession", folder: Path, mode: str, delay: int = 0, *, backlog: bool = False
) -> Run:
    """What `infer` calls: sums of windows, their bounds, and the trigger that showed them."""

    def run(
        tuples: Sequence[Arrival | Stable], size: int, slide: int
    ) -> list[dict[str, Any]] | None:
        if slide > size:
            return None
        inbox = folder / uuid4().hex
        inbox.mkdir(parents=True)
        shown = inbox / ".shown"
        shown.mkdir()
        batches = list(enumerate(_batches(tuples)))
        if backlog:
            for number, batch in batches:
                _write(inbox, number, batch)
        query = _start(spark, inbox, mode, delay, (size, slide), shown)
        try:
            for number, batch in [] if backlog else batches:
                _write(inbox, number, batch)
                query.processAllAvailable()
            query.processAllAvailable()
        finally:
            query.stop()
        files = sorted(shown.iterdir(), key=lambda path: int(path.name))
        return [row for file in files for row in json.loads(file.read_text())]

    return run


def _batches(tuples: Sequence[Arrival | Stable]) -> list[list[Arrival]]:
    arrivals = [one for one in tuples if isinstance(one, Arrival)]
    return [list(batch) for _, batch in groupby(arrivals, key=lambda one: one.batch)]


def _write(inbox: Path, number: int, batch: list[Arrival]) -> None:
    lines = [json.dumps({"time": one.time, "value": one.value}) for one in batch]
    hidden = inbox / f".{number:03}.json"
    hidden.write_text("\n".join(lines))
    os.utime(hidden, (1_800_000_000 + number,) * 2)  # Spark takes files by their time
    hidden.rename(inbox / f"{number:03}.json")


def _start(
    spark: "SparkSession",
    inbox: Path,
    mode: str,
    delay: int,
    window: tuple[int, int],
    shown: Path,
) -> "StreamingQuery":
    size, slide = window
    rows = (
        spark.readStream.schema("time long, value long")
        .option("maxFilesPerTrigger", 1)
        .json(str(inbox))
        .withColumn("at", f.timestamp_seconds("time"))
        .withWatermark("at", f"{delay} seconds")
    )
    cut = f.window("at", f"{size} seconds", f"{slide} seconds")
    sums = rows.groupBy(cut).agg(f.sum("value").alias("value"))
    results = sums.select(
        "value",
        f.unix_seconds("window.start").alias("start"),
        f.unix_seconds("window.end").alias("end"),
    )

    def keep(batch: "DataFrame", number: int) -> None:
        # Into a file: on Spark Connect this runs in another process.
        rows = [{**row.asDict(), "step": number} for row in batch.collect()]
        (shown / str(number)).write_text(json.dumps(rows))

    return (
        results.writeStream.outputMode(mode)
        .foreachBatch(keep)
        .option("checkpointLocation", str(inbox / ".checkpoint"))
        .start()
    )
