"""The payloads of a step where they are: the tables that came, taken from without joining them.

Places count through the tables, one after the other.  Places that increase, as nearly always,
are taken table by table, and those that lie side by side are not copied at all; Arrow would
first copy all tables into one.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take


@dataclass(frozen=True, eq=False)
class Payloads:
    """Tables of one schema; at least one."""

    tables: Sequence[pa.Table]

    def take(self, places: Ints, *, nulls: int = 0) -> pa.Table:
        """The payloads at these places, in this order, and then this many nulls."""
        schema = self.tables[0].schema
        if not len(schema):
            return self.tables[0]
        if len(places) and (places[1:] < places[:-1]).any():
            parts = [take(pa.concat_tables(self.tables), places)]
        else:
            parts = self._take_each(places)
        if nulls:
            nothing = [pa.nulls(nulls, field.type) for field in schema]
            parts.append(pa.Table.from_arrays(nothing, schema=schema))
        return pa.concat_tables(parts)

    def _take_each(self, places: Ints) -> list[pa.Table]:
        ends = np.cumsum([table.num_rows for table in self.tables])
        cuts = np.append(0, np.searchsorted(places, ends))
        parts = [self.tables[0].slice(0, 0)]
        for table, end, begin, stop in zip(self.tables, ends, cuts, cuts[1:], strict=False):
            if begin == stop:
                continue
            rows = places[begin:stop] - (end - table.num_rows)
            if rows[-1] - rows[0] == len(rows) - 1 and (np.diff(rows) == 1).all():
                parts.append(table.slice(int(rows[0]), len(rows)))
            else:
                parts.append(take(table, rows))
        return parts
