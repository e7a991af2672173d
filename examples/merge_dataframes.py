"""Two streams of DataFrames into one, with corrections, as one query with three sinks.

    python examples/merge_dataframes.py

The column `replica` names the copy of each row: `east` first reports that sensor 7 is hot until
9, `west` reports that it ended at 7.  The query writes the merged elements, the final events,
and the rows that could not be merged.
"""

import tempfile
from pathlib import Path

import anabranch as ab

COLUMNS = (
    "kind string, start bigint, end bigint, old_end bigint, seq bigint, "
    "replica string, sensor int"
)
FEED = [
    ("insert", 3, 9, None, 1, "east", 7),
    ("stable", 5, None, None, 2, "east", None),
    ("insert", 3, 7, None, 1, "west", 7),
    ("adjust", 4, 6, 8, 2, "west", 99),  # no such event: quarantined, with the reason
    ("stable", 8, None, None, 3, "west", None),
]


def main() -> None:
    """Merge the feed and show each sink."""
    spark = ab.session()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        spark.createDataFrame(FEED, COLUMNS).write.parquet(str(place / "feed"))
        feed = spark.readStream.schema(COLUMNS).parquet(str(place / "feed"))
        merged = ab.merge(ab.elements(feed, replica="replica"), lanes=2)
        query = merged.start(
            place / "ck",
            elements=place / "elements",
            final=place / "final",
            late=place / "late",
            once=True,
        )
        query.wait()
        for sink in ("elements", "final", "late"):
            rows = spark.read.parquet(f"{place}/{sink}")
            if sink == "late":
                rows = rows.select("bucket", "reason", "replica", "sensor")
            rows.orderBy(rows.columns[0]).show(truncate=False)


if __name__ == "__main__":
    main()
