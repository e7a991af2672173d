"""A batch: elements as columns, one row per element, in order.

A `Batch` holds what kernels read as NumPy arrays (`kind`, `start`, `end`, `old_end`) beside the
payload as Arrow columns.  Outside a batch an absent end is null; inside, it is `FOREVER_UNITS`,
the greatest int64, so that kernels compare without a second array.  `codec` is the only place
that turns one into the other, and refuses a real time of that value.

* Row i of every column belongs to element i.
* A stable has its time in `start`; its other times are 0 and its payload is null.
* An insert has `old_end` 0.
* `hashes`, where they were computed before, are the 128-bit hashes of the payloads, two words
  per row as `hashing.hash_columns` gives them, so that no other operator hashes them again.

Not checked here: that the stream keeps its promises (`anabranch.model.history` defines what
they are, `anabranch.batch.history` checks them in columns).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.buffers import take
from anabranch.batch.schema import ElementSchema

INSERT: Final = 0
ADJUST: Final = 1
STABLE: Final = 2
KINDS: Final = ("insert", "adjust", "stable")
"""The words of `kind`, by code."""

FOREVER_UNITS: Final = np.iinfo(np.int64).max
NEVER_UNITS: Final = np.iinfo(np.int64).min

Ints: TypeAlias = NDArray[np.int64]
Codes: TypeAlias = NDArray[np.int8]
Mask: TypeAlias = NDArray[np.bool_]
Hashes: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Batch:
    """Elements of one physical stream, in order, as columns."""

    schema: ElementSchema
    kind: Codes
    start: Ints
    end: Ints
    old_end: Ints
    payload: pa.Table
    seq: Ints | None = None
    hashes: Hashes | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.kind), len(self.start), len(self.end), len(self.old_end)}
        lengths.add(self.payload.num_rows if self.payload.num_columns else len(self.kind))
        if self.seq is not None:
            lengths.add(len(self.seq))
        if self.hashes is not None:
            lengths.add(len(self.hashes))
        if len(lengths) != 1:
            message = f"the columns of a batch have different lengths: {sorted(lengths)}"
            raise ValueError(message)

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: NDArray[Any]) -> "Batch":
        """The elements at these positions (or where this mask is true), in this order."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return Batch(
            self.schema,
            self.kind[index],
            self.start[index],
            self.end[index],
            self.old_end[index],
            take(self.payload, index),
            None if self.seq is None else self.seq[index],
            None if self.hashes is None else np.take(self.hashes, index, axis=0),
        )

    def slice(self, first: int, end: int) -> "Batch":
        """The elements from `first` to before `end`, as views."""
        rows = slice(first, end)
        return Batch(
            self.schema,
            self.kind[rows],
            self.start[rows],
            self.end[rows],
            self.old_end[rows],
            self.payload.slice(first, end - first),
            None if self.seq is None else self.seq[rows],
            None if self.hashes is None else self.hashes[rows],
        )

    @property
    def is_data(self) -> Mask:
        """True for inserts and adjusts, false for stables."""
        mask: Mask = self.kind != STABLE
        return mask


def concat(batches: Sequence[Batch]) -> Batch:
    """The elements of these batches, one after the other; at least one batch."""
    first = batches[0]
    if len(batches) == 1:
        return first
    seqs = [batch.seq for batch in batches if batch.seq is not None]
    hashes = [batch.hashes for batch in batches if batch.hashes is not None]
    return Batch(
        first.schema,
        np.concatenate([batch.kind for batch in batches]),
        np.concatenate([batch.start for batch in batches]),
        np.concatenate([batch.end for batch in batches]),
        np.concatenate([batch.old_end for batch in batches]),
        pa.concat_tables([batch.payload for batch in batches]),
        np.concatenate(seqs) if len(seqs) == len(batches) else None,
        np.concatenate(hashes) if len(hashes) == len(batches) else None,
    )
