"""Summaries of the rows of each source, from which every lane infers stables.

A packer summarises its partition by replica and source (`clocks.summary`) and sends the lines
to every lane, in a parcel of their own (`BEAT`): all lanes fold the same lines, and so compute
the same stables, without another shuffle.  `at` is the time of the trigger, which Spark records
with its offsets: a trigger that is repeated has the same.  No worker reads a clock.
"""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.clocks.clock import Clock
from anabranch.clocks.summary import (
    COLUMNS,
    Coded,
    Histograms,
    Summaries,
    fold,
    summarise,
    summarise_trigger,
)
from anabranch.spark.pack.parcels import BEAT, Parcel, in_every_lane
from anabranch.spark.pack.sources import Groups, coded, columns_of

if TYPE_CHECKING:
    from pyspark.sql import Column

ARRIVAL: Final = "__arrival"
"""The column with the time at which a row arrived."""
TIMELESS: Final = 0
"""The time of every trigger, for clocks to which no time matters."""


@dataclass(frozen=True)
class Beating:
    """How the rows of a replica are summarised, and the clock that gets the lines.

    `by` are the columns that name a source (`sources`), none: the replica is one; `groups` have
    one heartbeat each.  `guard`: a row whose time is more than that ahead of its arrival moves
    nothing.
    """

    clock: Clock
    by: tuple[str, ...] = ()
    has_arrival: bool = False
    guard: int | None = None
    groups: Groups | None = None

    @property
    def clock_in_lanes(self) -> Clock:
        """The clock, with what names its sources: those of another column are forgotten."""
        return replace(self.clock, source=", ".join(self.by))

    def sources(self, replica: str, batch: Batch, rows: pa.Table) -> Coded:
        """The source, or the group, of each element of a replica, by number."""
        if self.by:
            return coded(columns_of(batch, rows, self.by), self.groups)
        name = replica if self.groups is None else self.groups.group_of(replica)
        return Coded((name,), np.zeros(len(batch), np.int64))

    @property
    def needs_time(self) -> bool:
        """Whether the trigger's time must reach the packers."""
        return self.has_arrival or self.guard is not None or self.clock.needs_time


@dataclass
class Tally:
    """The lines of one partition, by replica."""

    beating: dict[str | None, Beating]
    lines: dict[str, list[Summaries]] = field(default_factory=dict)
    latest: dict[str, int] = field(default_factory=dict)
    at: int = TIMELESS

    def note_time(self, kinds: pa.ChunkedArray, words: pa.ChunkedArray) -> None:
        """The time of the trigger, which the words of all rows have that are of a kind."""
        row = 0 if not kinds.null_count else pc.index(pc.is_valid(kinds), True).as_py()
        if row in range(len(words)) and words[row].is_valid:
            self.at = max(self.at, int(words[row].as_py(), 16))

    def add(self, replica: str, batch: Batch, rows: pa.Table) -> int:
        """Some elements of a replica, and the table with the other columns of their rows.

        Returns their greatest start; rows that are ahead of the guard do not count.
        """
        how = self.beating.get(replica, self.beating.get(None))
        if how is None or not len(batch):
            return int(batch.start[batch.is_data].max(initial=NEVER_UNITS))
        sources = how.sources(replica, batch, rows)
        histogram = how.clock.needs_histogram
        if how.has_arrival:
            arrivals = numbers(_filled(rows.column(ARRIVAL), self.at), np.dtype(np.int64))
            # The rows are here, so a clock that shows a later time is wrong.
            arrivals = np.minimum(arrivals, self.at)
            found = summarise(
                sources,
                batch.start,
                arrivals,
                resolution=how.clock.resolution,
                guard=how.guard,
                histogram=histogram,
            )
        else:
            span = {"after": self.at - 1, "upto": self.at}
            found = summarise_trigger(
                sources, batch.start, **span, guard=how.guard, histogram=histogram
            )
        self.lines.setdefault(replica, []).append(found)
        if how.clock.rules.delay is not None:
            self._note_latest(replica, batch, how.guard)
        return int(found.greatest[found.count > 0].max(initial=NEVER_UNITS))

    def _note_latest(self, replica: str, batch: Batch, guard: int | None) -> None:
        """Up to which time a delay has to pass for these rows; a null end needs none."""
        times = np.where(batch.end == FOREVER_UNITS, batch.start, batch.end)
        if guard is not None:
            times = times[batch.start <= self.at + guard]
        latest = int(times.max(initial=NEVER_UNITS))
        self.latest[replica] = max(self.latest.get(replica, latest), latest)

    def parcels(self, base: Parcel, lanes: int) -> list[Parcel]:
        """What every lane gets of this partition."""
        made: list[Parcel] = []
        for replica, some in self.lines.items():
            lines = to_table(fold(some))
            latest = self.latest.get(replica)
            beat = replace(
                base, input=replica, entry=BEAT, at=self.at, lines=lines, latest=latest
            )
            made += in_every_lane(beat, lanes)
        return made


def trigger_time() -> "Column":
    """The time of the trigger in microseconds, which Spark records with its offsets.

    For few rows: Spark sorts an array of one in each (see `trigger_mark`).
    """
    from pyspark.sql import functions as F  # noqa: N812

    now = F.array(F.unix_micros(F.current_timestamp()))
    return F.array_sort(now, lambda _one, _other: F.lit(0))[0]


def trigger_mark() -> "Column":
    """The same as a text in base 16, for every row of a DataFrame.

    A number of its own would be a part of the code that Spark compiles: each trigger would
    compile the scan of its rows again, and run it cold.  A text is a value beside the code, so
    that the code stays the same (counted with Spark 4.3: none instead of two compilations for
    each DataFrame and trigger).  Calls that Spark does not compile keep the code the same as
    well, but then it compiles nothing of that step, and makes each row twice.
    """
    from pyspark.sql import functions as F  # noqa: N812

    return F.hex(F.unix_micros(F.current_timestamp()))


def _filled(column: pa.ChunkedArray, at: int) -> pa.ChunkedArray:
    """Arrivals in microseconds; a row without one arrived with its trigger."""
    micros = pc.cast(column, pa.timestamp("us"), safe=False)
    return pc.fill_null(micros.cast(pa.int64()), at)


def to_table(lines: Summaries) -> pa.Table:
    """Lines as columns, a row each."""
    names = pa.array(lines.names, pa.string()).take(pa.array(lines.source))
    columns = {name: to_arrow(getattr(lines, name), pa.int64()) for name in COLUMNS}
    held = lines.histograms
    if held is not None:
        ends = np.searchsorted(held.line, np.arange(len(lines) + 1)).astype(np.int32)
        columns["shift"] = to_arrow(held.shift, pa.int64())
        for name in ("bucket", "number"):
            values = to_arrow(getattr(held, name), pa.int64())
            columns[name] = pa.ListArray.from_arrays(pa.array(ends), values)
    return pa.table({"name": names, **columns})


def from_table(table: pa.Table) -> Summaries:
    """The lines of such a table."""
    names = tuple(dict.fromkeys(table.column("name").to_pylist()))
    place = {name: at for at, name in enumerate(names)}
    source = np.array([place[n] for n in table.column("name").to_pylist()], np.int64)
    after, upto, count, least, greatest, ahead = (
        numbers(table.column(name), np.dtype(np.int64)) for name in COLUMNS
    )
    held = None
    if "shift" in table.column_names:
        bucket, number = (table.column(n).combine_chunks() for n in ("bucket", "number"))
        sizes = np.diff(np.asarray(bucket.offsets))
        held = Histograms(
            numbers(table.column("shift"), np.dtype(np.int64)),
            np.repeat(np.arange(len(table)), sizes),
            np.asarray(bucket.values),
            np.asarray(number.values),
        )
    return Summaries(names, source, after, upto, count, least, greatest, ahead, held)
