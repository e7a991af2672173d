"""A query of three stages over a folder of elements, as a process that a test kills.

python query_run.py FOLDER MASTER [once]
"""

import sys
from pathlib import Path

import anabranch as ab
from anabranch.spark.query.query import Query

COLUMNS = (
    "kind string, start bigint, end bigint, old_end bigint, k string, v bigint, seq bigint"
)


def build(stream: ab.Stream) -> Query:
    """A filter, sums by key, and their normal form without the key."""
    sums = stream.where("v > 0").group_by("k").aggregate(n=ab.count(), total=ab.sum("v"))
    return sums.select("n", "total").normalise()


def main(folder: Path, master: str, *, once: bool) -> None:
    """Run until killed, or until all files are read."""
    spark = ab.session(master=master, config={"spark.driver.memory": "700m"})
    rows = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 2)
    stream = ab.elements(rows.parquet(str(folder / "in")))
    started = build(stream).start(
        folder / "ck", output=folder / "out", once=once, interval="100 milliseconds"
    )
    started.wait()
    print(f"adds up: {started.totals.adds_up}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], once=sys.argv[3:] == ["once"])
