"""Summaries of the rows of each source, from which every lane infers stables.

A packer summarises its partition by replica and source (`clocks.summary`) and sends the lines
to every lane, in a parcel of their own (`BEAT`): all lanes fold the same lines, and so compute
the same stables, without another shuffle.  `at` is the time of the trigger, which Spark records
with its offsets: a trigger that is repeated has the same.  No worker reads a clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import Batch, Ints
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

SOURCE: Final = "__source"
"""The column with the source of a row, if it is not its replica."""
ARRIVAL: Final = "__arrival"
"""The column with the time at which a row arrived."""
TIME: Final = "__trigger_time"
"""The column with the time of the trigger."""
TIMELESS: Final = 0
"""The time of every trigger, for clocks to which no time matters."""
NAMELESS: Final = "(none)"
"""The source of rows that name none."""


@dataclass(frozen=True)
class Beating:
    """How the rows of a replica are summarised, and the clock that gets the lines.

    `by` are the columns that name a source, none: the replica is one; `named` is what the user
    calls them.  `guard`: a row whose time is more than that ahead of its arrival moves nothing.
    """

    clock: Clock
    by: tuple[str, ...] = ()
    has_arrival: bool = False
    guard: int | None = None
    named: str = ""

    @property
    def clock_in_lanes(self) -> Clock:
        """The clock, with what names its sources: those of another column are forgotten."""
        return replace(self.clock, source=self.named or ", ".join(self.by))

    @property
    def needs_time(self) -> bool:
        """Whether the trigger's time must reach the packers."""
        return self.has_arrival or self.guard is not None or self.clock.needs_time


@dataclass
class Tally:
    """The lines of one partition, by replica."""

    beating: dict[str | None, Beating]
    lines: dict[str, list[Summaries]] = field(default_factory=dict)
    at: int = TIMELESS

    def add(self, replica: str, batch: Batch, rows: pa.Table) -> None:
        """Some elements of a replica, and the table with the columns of their rows."""
        how = self.beating.get(replica, self.beating.get(None))
        if TIME in rows.column_names and len(batch):
            self.at = max(self.at, int(rows.column(TIME)[0].value))
        if how is None or not len(batch):
            return
        sources = _sources(how, replica, rows, len(batch))
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

    def parcels(self, base: Parcel, lanes: int) -> list[Parcel]:
        """What every lane gets of this partition."""
        made: list[Parcel] = []
        for replica, some in self.lines.items():
            lines = to_table(fold(some))
            beat = replace(base, input=replica, entry=BEAT, at=self.at, lines=lines)
            made += in_every_lane(beat, lanes)
        return made


def _filled(column: pa.ChunkedArray, at: int) -> pa.ChunkedArray:
    """Arrivals in microseconds; a row without one arrived with its trigger."""
    micros = pc.cast(column, pa.timestamp("us"), safe=False)
    return pc.fill_null(micros.cast(pa.int64()), at)


def _sources(how: Beating, replica: str, rows: pa.Table, count: int) -> Coded:
    if not how.by:
        return Coded((replica,), np.zeros(count, np.int64))
    codes = _codes(rows, how.by)
    names = codes.dictionary.to_pylist()
    order = sorted(range(len(names)), key=names.__getitem__)
    place: Ints = np.empty(len(names), np.int64)
    place[order] = np.arange(len(names))
    return Coded(tuple(names[at] for at in order), place[np.asarray(codes.indices)])


def _codes(rows: pa.Table, by: Sequence[str]) -> pa.DictionaryArray:
    """The source of each row as a number and the name that it stands for."""
    column = rows.column(by[0])
    if len(by) == 1 and pa.types.is_dictionary(column.type) and not column.null_count:
        return column.combine_chunks()
    return pc.dictionary_encode(sources_of(rows, by)).combine_chunks()


def with_codes(rows: pa.Table) -> pa.Table:
    """The rows with their sources as numbers: names are not copied and sent for each row."""
    at = rows.schema.get_field_index(SOURCE)
    if at < 0 or pa.types.is_dictionary(rows.column(at).type):
        return rows
    return rows.set_column(at, SOURCE, pc.dictionary_encode(rows.column(at)))


def sources_of(rows: pa.Table, by: Sequence[str]) -> pa.ChunkedArray:
    """The source of each row, which these columns name."""
    texts = [pc.cast(rows.column(name), pa.string()) for name in by]
    text = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "-")
    return pc.fill_null(text, NAMELESS)


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
