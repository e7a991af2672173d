"""Plain rows of files as events: which columns hold their times, and how long they last.

    --time ts                      [ts, ts + one unit)        one instant
    --time ts --lifetime '1 hour'  [ts, ts + 1 hour)
    --time ts --end until          [ts, until), null: open

Every row is an insert; all other columns are payload.  `PlainRows` checks the columns of the
files before a row is read and raises `SchemaError`; a row without a start, or one that ends
before it starts, is refused when it is read (`anabranch.batch.codec.decode`).
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.batch.batch import FOREVER_UNITS, INSERT, KINDS
from anabranch.batch.buffers import numbers, to_arrow, valid
from anabranch.batch.schema import (
    END,
    KIND,
    RESERVED,
    START,
    ElementSchema,
    TimeType,
    is_time,
)
from anabranch.batch.times import show_span, to_units
from anabranch.errors import SchemaError, UsageError

_START: Final = "the column of --time (start= of ab.inbox)"
_END: Final = "the column of --end (end= of ab.inbox)"
_LIFETIME: Final = "--lifetime (lifetime= of ab.inbox)"


@dataclass(frozen=True)
class PlainRows:
    """The columns with the times of plain rows; without `end` each lasts `lifetime`.

    `units` is the lifetime in units of time, known when the files were looked at.  `arrival` is
    the column with the time at which a row arrived, if a clock needs it.
    """

    start: str
    end: str | None = None
    lifetime: str | int | None = None
    units: int = 1
    arrival: str | None = None

    def __post_init__(self) -> None:
        if self.end is not None and self.lifetime is not None:
            message = (
                f"--end {self.end} and --lifetime {self.lifetime}: an event ends at a column "
                "or after a fixed time; give one of them (of end= and lifetime= of ab.inbox)"
            )
            raise UsageError(message)
        if self.end == self.start:
            message = (
                f"--end {self.end}: is the column of --time too, so that no event would last; "
                "name another column, or give --lifetime"
            )
            raise UsageError(message)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns with the times of the events."""
        return (self.start,) if self.end is None else (self.start, self.end)

    @property
    def apart(self) -> tuple[str, ...]:
        """The columns that are no payload."""
        return self.times if self.arrival is None else (*self.times, self.arrival)

    def length(self, time: TimeType) -> str:
        """How long every event lasts, in words; empty if a column holds the ends."""
        if self.end is not None:
            return ""
        return show_span(self.units) if time is TimeType.TIMESTAMP else str(self.units)

    def require(self, schema: pa.Schema, where: str) -> None:
        """Reject columns that these rows cannot have; `where` is the file."""
        names = schema.names
        if {KIND, START, END} <= set(names) and KIND not in self.times:
            message = (
                f"{where}: holds elements (it has the columns kind, start and end), and "
                f"{_START} is for plain rows; leave it out"
            )
            raise SchemaError(message)
        for name, what in zip(self.times, (_START, _END), strict=False):
            if name not in names:
                message = f"{where}: there is no column '{name}', {what}; it has {names}"
                raise SchemaError(message)
            kind = schema.field(name).type
            if not is_time(kind) and not pt.is_null(kind):
                message = (
                    f"{where}: column '{name}', {what}, is {kind}, expected bigint or "
                    "timestamp (in JSON lines a number, or text like 2024-05-31T12:00:00Z); "
                    "write it as one, or name another column"
                )
                raise SchemaError(message)
        for name in names:
            if name.lower() in RESERVED and name not in self.times:
                raise _clash(name, where)

    def settled(self, schema: pa.Schema, where: str) -> "PlainRows":
        """The same with its units, for the one schema of all files."""
        self.require(schema, where)
        if pt.is_null(schema.field(self.start).type):
            message = f"{where}: column '{self.start}', {_START}, has no value in any row"
            raise SchemaError(message)
        if self.lifetime is None:
            return self
        time = self.elements(schema, where).time
        units = to_units(str(self.lifetime), time, option=_LIFETIME)
        if units < 0:
            message = f"{_LIFETIME} {self.lifetime!r}: an event cannot end before it starts"
            raise UsageError(message)
        return replace(self, units=units)

    def elements(self, schema: pa.Schema, where: str) -> ElementSchema:
        """The schema of the elements that rows with these columns become."""
        start = schema.field(self.start).type
        end = start if self.end is None else schema.field(self.end).type
        payload = [field for field in schema if field.name not in self.apart]
        times = [pa.field(KIND, pa.string()), pa.field(START, start), pa.field(END, end)]
        return ElementSchema.of(pa.schema([*times, *payload]), where=where)

    def to_elements(self, rows: pa.Table) -> pa.Table:
        """Rows as a table of inserts, row by row."""
        start = rows.column(self.start)
        end = self._ends(start) if self.end is None else rows.column(self.end)
        codes = to_arrow(np.zeros(rows.num_rows, np.int8), pa.int8())
        kind = pa.DictionaryArray.from_arrays(codes, pa.array([KINDS[INSERT]]))
        payload = rows.drop_columns(list(self.apart))
        names = [KIND, START, END, *payload.column_names]
        return pa.table([kind, start, end, *payload.columns], names=names)

    def _ends(self, start: pa.ChunkedArray) -> pa.Array:
        """The ends by the lifetime; one that no time can hold is refused as such."""
        is_instant = pt.is_timestamp(start.type)
        time = TimeType.TIMESTAMP if is_instant else TimeType.BIGINT
        # A start that does not fit (parts of a microsecond) is refused by itself.
        units = numbers(pc.cast(start, time.arrow, safe=False), np.dtype(np.int64))
        last = int(FOREVER_UNITS) - self.units
        end = np.where(units > last, FOREVER_UNITS, units + self.units)
        known = valid(start)
        return to_arrow(end, time.arrow, mask=None if known.all() else known)


def _clash(name: str, where: str) -> SchemaError:
    hint = f"rename it, for example to '{name}_of_row'"
    if name == END:
        hint = f"give --end {END} if events end there, or {hint}"
    return SchemaError(
        f"{where}: the column '{name}' has a name that the element format needs for itself "
        f"({', '.join(RESERVED)}, in any letter case); {hint}"
    )
