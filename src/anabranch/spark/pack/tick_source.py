"""A source of Spark's whose rows are ticks: time passes in a query although no row comes.

It is for queries without a control log of ours: views that Spark's own writers write, and
checkpoints that are not a local path.  Its offset is coarse time, which Spark records and
repeats; its row has no time of its own, since that of its trigger counts.

    every     microseconds between two ticks; 0: it never ticks
    notes     the name under which lanes on this machine note what is due (`due`); without it,
              or without notes, it ticks at every interval

Only public API of PySpark: it runs on clusters and on Spark Connect.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from anabranch.spark.pack.due import is_due, tidy

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME: Final = "anabranch_ticks"
_TICK: Final = "tick"


class Ticks(DataSource):
    """The source; the methods are Spark's."""

    @classmethod
    def name(cls) -> str:
        """What `format` gets."""
        return NAME

    def schema(self) -> str:
        """One column: the tick."""
        return f"{_TICK} bigint"

    def streamReader(self, schema: Any) -> "TickReader":  # noqa: ARG002, N802
        """What ticks."""
        tidy()
        return TickReader(int(self.options["every"]), self.options.get("notes"))


class TickReader(DataSourceStreamReader):
    """Ticks at an interval; it lives as long as the query runs.

    The first look always ticks: a query that starts again reads its clocks once.
    """

    def __init__(self, every: int, notes: str | None) -> None:
        self._every = every
        self._notes = notes
        self._last: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before all ticks."""
        return {_TICK: 0}

    def latestOffset(self) -> dict[str, int]:  # type: ignore[override]  # noqa: N802
        """The tick of this time, if something is due; else the one before.

        Spark 4.1 knows only this form, without the offset where the trigger begins.
        """
        if not self._every:
            return {_TICK: 0}
        now = time.time_ns() // 1000
        tick = now // self._every
        first = self._last is None
        if first or (tick > (self._last or 0) and self._is_due(now)):
            self._last = max(tick, self._last or 0)
        return {_TICK: self._last or 0}

    def _is_due(self, now: int) -> bool:
        return self._notes is None or is_due(self._notes, now)

    def partitions(
        self, start: dict[str, int], end: dict[str, int]
    ) -> Sequence[InputPartition]:
        """One row for all ticks between two offsets."""
        return [] if start == end else [InputPartition(end[_TICK])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """The row."""
        yield (partition.value,)


def ticking(
    spark: "SparkSession", every: int, *, notes: str | None, name: str | None = None
) -> "DataFrame":
    """Ticks as entries of a control log; `name` is that of the source, if all must have one."""
    from pyspark.sql import functions as F  # noqa: N812

    from anabranch.spark.pack.parcels import CLOCK  # the source itself needs no columns

    spark.dataSource.register(Ticks)
    reader = spark.readStream if name is None else spark.readStream.name(name)
    reader = reader.format(NAME).option("every", str(every))
    ticks = (reader if notes is None else reader.option("notes", notes)).load()
    nothing = F.lit(None)
    return ticks.select(
        F.lit(-1).cast("bigint").alias("log"),
        F.lit(CLOCK).alias("entry"),
        F.lit("").alias("replica"),
        F.lit(0).alias("attachment"),
        nothing.cast("bigint").alias("guarantee"),
        nothing.cast("string").alias("file"),
        nothing.cast("string").alias("settings"),
    )
