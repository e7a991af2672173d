"""Added and dropped payload columns: conversion of stored payloads and of their hashes.

A column that is added comes last, and is null in what is remembered.  So the hash of a payload
goes on where it was: also the names of final events, of which nothing but the hash is known,
stay those of their events.  Of a column that is dropped the hash cannot be undone: live events
get the hash of what is left of their payloads, names of final events are forgotten.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.columns import read
from anabranch.batch.hashing import hash_on, hash_rows
from anabranch.batch.index import HIGH, LOW
from anabranch.batch.schema import ElementSchema


@dataclass(frozen=True)
class Reshape:
    """The payload columns before and after; those that stay keep their types and order."""

    before: pa.Schema
    then: pa.Schema

    @property
    def added(self) -> tuple[pa.Field, ...]:
        """The columns that come."""
        return tuple(one for one in self.then if one.name not in self.before.names)

    @property
    def dropped(self) -> tuple[str, ...]:
        """The columns that go."""
        return tuple(name for name in self.before.names if name not in self.then.names)

    def payload(self, table: pa.Table, count: int) -> pa.Table:
        """These `count` payloads with the columns after; an added one is null."""
        columns = [
            table.column(one.name)
            if one.name in self.before.names
            else pa.chunked_array([pa.nulls(count, one.type)])
            for one in self.then
        ]
        return pa.Table.from_arrays(columns, schema=self.then)

    def hashes(self, table: pa.Table, count: int) -> Ints:
        """The hashes of these `count` payloads with the columns after: two words each."""
        words: Ints = hash_rows(self.payload(table, count), count).view(np.int64)
        return words

    def names(self, rows: Ints) -> Ints:
        """Names of final events, which have their hashes at LOW and HIGH, with those after."""
        if self.dropped:
            return rows[:0]
        made = rows.copy()
        state = np.ascontiguousarray(made[:, [LOW, HIGH]]).view(np.uint64)
        for one in self.added:
            hash_on(state, read(pa.nulls(len(rows), one.type)))
        made[:, LOW], made[:, HIGH] = state.view(np.int64).T
        return made


def reshaped(schema: ElementSchema, reshape: Reshape) -> ElementSchema:
    """The schema of elements with the payload columns after."""
    return replace(schema, payload=reshape.then)
