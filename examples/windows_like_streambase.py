"""A stream of readings on Spark, averaged as StreamBase would, with a stop in between.

    python examples/windows_like_streambase.py

Size 5, slide 1.  Spark's own windows would start at multiples of the slide as well, but show
each of them once; StreamBase looks at one window at a time, and shows a window as soon as
time has gone past it.  The second run goes on where the first one stopped.
"""

import json
import tempfile
from pathlib import Path

import anabranch as ab

FIRST = [{"at": 30, "reading": 10.0}, {"at": 31, "reading": 20.0}]
SECOND = [{"at": 36, "reading": 30.0}, {"at": 29, "reading": 99.0}, {"at": 37, "reading": 40.0}]


def main() -> None:
    """Write some rows, run, write more, run again, and show what came out."""
    spark = ab.session()
    with tempfile.TemporaryDirectory() as folder:
        inbox, output, checkpoint = (Path(folder, name) for name in ("inbox", "out", "ck"))
        inbox.mkdir()
        rows = spark.readStream.schema("at long, reading double").json(str(inbox))
        ran = ab.windows_run(
            rows, like="streambase", time="at", value="reading", size=5, slide=1, agg="avg"
        )
        for number, batch in enumerate((FIRST, SECOND)):
            lines = "\n".join(json.dumps(row) for row in batch)
            Path(inbox, f"{number}.json").write_text(lines)
            query = (
                ran.rows()
                .writeStream.format("parquet")
                .option("checkpointLocation", str(checkpoint))
                .trigger(availableNow=True)
                .start(str(output))
            )
            query.awaitTermination()
        found = spark.read.parquet(str(output)).orderBy("seq")
        found.where("reported").select("start", "end", "value", "count").show()
        found.where("NOT reported").select("time", "given", "reason").show(truncate=False)


if __name__ == "__main__":
    main()
