"""The moving average of the CPU use of each process, from context switches that come late too.

    python examples/cpu_per_process.py

A row is a context switch: a process leaves the CPU at `ts` (seconds), having used `cpu` percent
of it since its last switch.  Each row counts for a minute, and an average holds from one change
to the next.  The second file has a switch of an earlier time: what was shown before is
corrected, and nothing waits for it.  `final` has what no row can change any more, if rows are
at most 30 seconds out of order.
"""

import tempfile
from pathlib import Path

import anabranch as ab

COLUMNS = "ts bigint, process string, cpu double"
FILES = [
    [(0, "editor", 20.0), (5, "shell", 10.0), (40, "editor", 60.0)],
    [(20, "editor", 40.0), (130, "shell", 30.0)],  # 20 is behind 40
]


def main() -> None:
    """Write one file after the other, run the query over what is there, show its views."""
    spark = ab.session()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "switches").mkdir()
        rows = spark.readStream.schema(COLUMNS).parquet(str(place / "switches"))
        switches = ab.events(rows, start="ts", lifetime=1).heartbeats(
            disorder=30, idle_after="1 minute"
        )
        used = switches.window(60).group_by("process").aggregate(cpu=ab.avg("cpu"))
        for file in FILES:
            some = spark.createDataFrame(file, COLUMNS).coalesce(1)
            some.write.mode("append").parquet(str(place / "switches"))
            used.start(
                place / "ck", changes=place / "changes", final=place / "final", once=True
            ).wait()
        for view, order in (("changes", "seq"), ("final", "process, start")):
            found = spark.read.parquet(str(place / view)).orderBy(*order.split(", "))
            found.drop("seq").show(truncate=False)


if __name__ == "__main__":
    main()
