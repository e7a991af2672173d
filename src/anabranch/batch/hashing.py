"""A 128-bit hash of each row's payload: equal payloads have equal hashes.

Equal as Spark's `groupBy` has it, whatever the physical form: text large or not, dictionaries,
slices, chunks, anything under a null.  The hash of a row is MurmurHash3 x64 128 of its first
column's bytes, which is the seed of the hash of the second, and so on:

* a single column of text has the published hash of its bytes;
* a null is a value of no bytes with a length that no value has;
* every NaN counts as one, -0.0 as 0.0;
* a struct is its fields, after a step that encodes whether it is null;
* a list is hashed as the 16-byte hashes of its items, one after the other.

Unequal payloads may have equal hashes (and whoever wants to can make such payloads): compare by
value, as `intern` does.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Bytes, Hashes, Ints, Mask
from anabranch.batch.columns import FIXED, LISTED, Column, read
from anabranch.batch.kernel import frozen, kernel, part
from anabranch.batch.murmur import U64, finish, load_few, murmur, murmur_word

_HASH_BYTES: Final = 16
_NULL_LENGTH: Final = U64(0xFFFFFFFFFFFFFFFF)


def hash_payload(table: pa.Table) -> tuple[Hashes, Hashes]:
    """The low and high halves of the hash of every row."""
    state = hash_rows(table, table.num_rows)
    return np.ascontiguousarray(state[:, 0]), np.ascontiguousarray(state[:, 1])


def hash_rows(table: pa.Table, count: int) -> Hashes:
    """The hash of every row: two words per row; without columns there is one value."""
    states = [
        hash_columns([column for array in batch.columns for column in read(array)], len(batch))
        for batch in table.to_batches()
        if len(batch)
    ]
    if len(states) == 1:
        return states[0]
    return np.concatenate(states) if states else np.zeros((count, 2), np.uint64)


def hash_columns(columns: Sequence[Column], count: int) -> Hashes:
    """The hash of every row of these columns: two words per row."""
    state = np.zeros((count, 2), np.uint64)
    hash_on(state, columns)
    return state


def hash_on(state: Hashes, columns: Sequence[Column]) -> None:
    """Let the hash of every row go on with further columns."""
    for column in columns:
        _hash_column(column, state)


def _hash_column(column: Column, state: Hashes) -> None:
    layout = column.layout
    if layout.kind == FIXED:
        hash_fixed(column.data, layout.width, layout.is_float, column.valid, state)
    elif layout.kind == LISTED:
        items = hash_columns(column.items, column.items[0].count)
        data = frozen(items.reshape(-1).view(np.uint8))
        hash_varied(data, column.offsets, _HASH_BYTES, column.valid, state)
    else:
        hash_varied(column.data, column.offsets, 1, column.valid, state)


@part
def canonical(word: np.uint64, width: int) -> np.uint64:
    """The bits of a float of 2, 4 or 8 bytes, the same for all that count as equal."""
    bits = U64(8 * width)
    sign = U64(1) << (bits - U64(1))
    if width == 8:
        infinity = U64(0x7FF0000000000000)
    elif width == 4:
        infinity = U64(0x7F800000)
    else:
        infinity = U64(0x7C00)
    size = word & (sign - U64(1))
    if size == U64(0):
        return U64(0)
    if size > infinity:
        return infinity + U64(1)
    return word


@part
def value(data: Bytes, row: int, width: int, is_float: bool) -> np.uint64:  # noqa: FBT001
    """A value of at most eight bytes, as a word."""
    word = load_few(data, U64(row * width), U64(width))
    if is_float:
        return canonical(word, width)
    return word


@kernel
def hash_fixed(data: Bytes, width: int, is_float: bool, valid: Mask, state: Hashes) -> None:  # noqa: FBT001
    """Goes on from `state` with a value of `width` bytes per row."""
    has_nulls = valid.size > 0
    for row in range(state.shape[0]):
        low, high = state[row, 0], state[row, 1]
        if has_nulls and not valid[row]:
            low, high = finish(low, high, _NULL_LENGTH)
        elif width <= 8:
            low, high = murmur_word(value(data, row, width, is_float), U64(width), low, high)
        else:
            low, high = murmur(data, U64(row * width), U64((row + 1) * width), low, high)
        state[row, 0], state[row, 1] = low, high


@kernel
def hash_varied(data: Bytes, offsets: Ints, unit: int, valid: Mask, state: Hashes) -> None:
    """Goes on from `state` with the bytes between offsets, which count in `unit` bytes."""
    has_nulls = valid.size > 0
    for row in range(state.shape[0]):
        low, high = state[row, 0], state[row, 1]
        if has_nulls and not valid[row]:
            low, high = finish(low, high, _NULL_LENGTH)
        else:
            begin, end = U64(offsets[row] * unit), U64(offsets[row + 1] * unit)
            low, high = murmur(data, begin, end, low, high)
        state[row, 0], state[row, 1] = low, high
