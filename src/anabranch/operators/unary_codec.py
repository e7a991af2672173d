"""The state of an operator of one input as bytes: two Arrow streams.

    rows      one row per live event: the number of its payload, and its numbers; the metadata
              has the kind and version of the state, its times and its frontier
    payload   one row per payload (per identity, where rows are found by identity)

Version 1 wrote kind and version as one text; it is read as well.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.operators.state_codec import (
    StateKind,
    column_of,
    header_of,
    matrix_of,
    to_table,
    write_tables,
)
from anabranch.operators.unary_live import LiveEvents


@dataclass(frozen=True, slots=True)
class StateFormat:
    """What a state is: its kind, and the names of its numbers."""

    kind: StateKind
    columns: tuple[str, ...]

    @classmethod
    def of(cls, operator: str, columns: tuple[str, ...]) -> "StateFormat":
        """The format of this operator."""
        return cls(StateKind(f"anabranch {operator}", version=2, reads=(1, 2)), columns)

    def write(
        self, live: LiveEvents, *, numbers: dict[str, int], schema: ElementSchema
    ) -> bytes:
        """The bytes from which `read` makes an equal state; `numbers` are single ones."""
        group, rows = live.all()
        first = np.flatnonzero(np.diff(group, prepend=-1))
        columns = {"group": np.cumsum(np.diff(group, prepend=-1) > 0) - 1}
        columns |= {name: rows[:, i] for i, name in enumerate(self.columns)}
        header = self.kind.header(time=schema.time.value, **numbers)
        payload = live.payload(group[first])
        return write_tables(to_table(columns, header), payload)

    def read(self, data: bytes, schema: ElementSchema, live: LiveEvents) -> dict[str, int]:
        """Fill an empty `live`; returns the single numbers."""
        streams = self.kind.open(data)
        table = streams.next()
        header = _header(table)
        self.kind.require(header)
        payload = streams.next()
        self.kind.require_payload(header, payload, schema)
        numbers = numbers_of(header)
        # Groups are numbered anew: whoever saves in parts must write all of them.
        numbers["mark"] = numbers.get("mark", 0) + 1
        group, rows = column_of(table, "group"), matrix_of(table, self.columns)
        first = np.flatnonzero(np.diff(group, prepend=-1))
        found = live.find(rows[first, 0], payload)
        live.write(found, found[group], rows, numbers["mark"])
        return numbers


def numbers_of(header: Mapping[str, str]) -> dict[str, int]:
    """The single numbers of a header."""
    others = ("kind", "version", "time", "state")
    return {name: int(value) for name, value in header.items() if name not in others}


def _header(table: pa.Table) -> Mapping[str, str]:
    """The header; that of version 1 in our words."""
    header = header_of(table)
    old = re.fullmatch(r"'(.+)' version (\d+)", header.get("state", ""))
    return header | {"kind": old[1], "version": old[2]} if old else header
