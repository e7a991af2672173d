"""The one-minute moving average of heat per sensor, on a grid of half minutes.

    python examples/heat_per_sensor.py

Each minute of the grid is a window with one result per sensor.  The second file has a reading
of an earlier time, so results of windows that contain it are replaced.  A window is final when
the readings have passed its end by 20 seconds; a reading that is behind by more is in `late`.
"""

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anabranch as ab

COLUMNS = "at timestamp, sensor string, heat double"
NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
FILES = [
    [(5, "roof", 20.0), (50, "roof", 26.0)],
    [(35, "roof", 32.0), (95, "roof", 24.0)],  # 35 is behind 50, but not too far
    [(20, "roof", 99.0), (150, "roof", 22.0)],  # 20 is too late: its windows are final
]


def main() -> None:
    """Write one file after the other, run the query over what is there, show its views."""
    spark = ab.session()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "in").mkdir()
        rows = spark.readStream.schema(COLUMNS).parquet(str(place / "in"))
        readings = ab.events(rows, start="at", lifetime="1 second").heartbeats(
            disorder="20 seconds", idle_after="1 minute"
        )
        windows = readings.window("1 minute", "30 seconds")
        heat = windows.group_by("sensor").aggregate(n=ab.count(), heat=ab.avg("heat"))
        for file in FILES:
            timed = [(NOON + timedelta(seconds=at), *rest) for at, *rest in file]
            some = spark.createDataFrame(timed, COLUMNS).coalesce(1)
            some.write.mode("append").parquet(str(place / "in"))
            heat.start(
                place / "ck",
                changes=place / "changes",
                final=place / "final",
                late=place / "late",
                once=True,
            ).wait()
        changes = spark.read.parquet(str(place / "changes")).orderBy("seq")
        changes.select("_change_type", "start", "end", "sensor", "n", "heat").show()
        final = spark.read.parquet(str(place / "final")).orderBy("start")
        final.drop("window").show()
        late = spark.read.parquet(str(place / "late"))
        late.select("start", "sensor", "heat", "bucket").show()


if __name__ == "__main__":
    main()
