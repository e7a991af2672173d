"""The sources of rows: the columns that name them, and the groups that they belong to.

A column names sources if it is in the payload, or orders the rows (of Kafka the partition).  So
nothing is sent beside the rows to know their sources: packers read the column for the clocks,
and lanes read it again for the rows that are late.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch.batch.batch import Batch, Ints
from anabranch.batch.buffers import numbers, one_array
from anabranch.batch.texts import NOT_THERE, Texts
from anabranch.clocks.summary import Coded

NAMELESS: Final = "(none)"
"""The source of rows that name none."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of each source that is in one; all others are by themselves.

    `sources[i]` is in the group `names[place[i]]`.
    """

    sources: Texts
    place: Ints
    names: tuple[str, ...]

    @classmethod
    def of(cls, groups: Mapping[str, str]) -> "Groups":
        """Those of a mapping from source to group."""
        names = tuple(sorted(set(groups.values())))
        at = {name: number for number, name in enumerate(names)}
        place = np.fromiter((at[group] for group in groups.values()), np.int64, len(groups))
        return cls(Texts.of(list(groups)), place, names)

    def group_of(self, source: str) -> str:
        """The group of one source; itself if it is in none."""
        (at,) = self.sources.find(pa.chunked_array([[source]]))
        return source if at == NOT_THERE else self.names[self.place[at]]

    def coded(self, sources: pa.ChunkedArray) -> Coded:
        """The groups of rows, by number; none is made a text."""
        if not len(self.sources):
            return _coded(sources)
        found = self.sources.find(sources)
        code, is_alone = self.place[found], found == NOT_THERE
        if not is_alone.any():
            return Coded(self.names, code)
        alone = _coded(sources.filter(pa.array(is_alone)))
        names = tuple(sorted({*self.names, *alone.names}))
        at = {name: place for place, name in enumerate(names)}
        code = np.array([at[name] for name in self.names], np.int64)[code]
        code[is_alone] = np.array([at[name] for name in alone.names], np.int64)[alone.codes]
        return Coded(names, code)


def can_name(kind: pa.DataType) -> bool:
    """Whether values of a type are a text without doubt."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind))


def columns_of(batch: Batch, places: pa.Table, by: Sequence[str]) -> pa.Table:
    """The columns that name the sources of some elements."""
    payload = batch.payload
    from_places = [name not in payload.column_names for name in by]
    columns = [
        (places if outside else payload).column(name)
        for name, outside in zip(by, from_places, strict=True)
    ]
    return pa.table(columns, list(by))


def sources_of(columns: pa.Table) -> pa.ChunkedArray:
    """The source of each row, which these columns name."""
    texts = [pc.cast(column, pa.string()) for column in columns.columns]
    text = texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, "-")
    return pc.fill_null(text, NAMELESS) if text.null_count else text


def coded(columns: pa.Table, groups: Groups | None) -> Coded:
    """The source of each row, or its group, by number."""
    if groups is not None:
        return groups.coded(sources_of(columns))
    if columns.num_columns > 1:
        return _coded(sources_of(columns))
    # Each value is made a text once, and not in each row.
    values = one_array(pc.dictionary_encode(columns.column(0), null_encoding="encode"))
    named = _coded(sources_of(pa.table({"value": values.dictionary})))
    return Coded(named.names, named.codes[numbers(values.indices, np.dtype(np.int32))])


def _coded(sources: pa.ChunkedArray) -> Coded:
    codes = one_array(pc.dictionary_encode(sources))
    order = pc.sort_indices(codes.dictionary)
    names = codes.dictionary.take(order).to_pylist()
    place = np.empty(len(names), np.int64)
    place[numbers(order, np.dtype(np.uint64))] = np.arange(len(names))
    return Coded(tuple(names), place[numbers(codes.indices, np.dtype(np.int32))])
