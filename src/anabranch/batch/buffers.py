"""NumPy views of Arrow buffers for kernels, and back; without copies where possible.

`pa.array` and `to_numpy` would import pandas, which costs more than most runs; a sliced array
is honoured everywhere.  A view must not be written to.

>>> numbers(pa.chunked_array([[1, 2], [3]]), np.dtype(np.int64)).tolist()
[1, 2, 3]
"""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; a column of one chunk is not copied."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.num_chunks == 0:
        return empty_array(column.type)
    return pa.concat_arrays(column.chunks)


def empty_array(kind: pa.DataType) -> pa.Array:
    """An array of this type with no rows."""
    return pa.nulls(0, kind)


def chunk_numbers(array: pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The fixed-width values of one array (anything under nulls)."""
    buffer = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)


def numbers(column: pa.ChunkedArray | pa.Array, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The fixed-width values of a column (anything under nulls)."""
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    if len(chunks) == 1:
        return chunk_numbers(chunks[0], dtype)
    parts = [chunk_numbers(chunk, dtype) for chunk in chunks]
    return np.concatenate(parts) if parts else np.zeros(0, dtype)


def chunk_valid(array: pa.Array) -> NDArray[np.bool_] | None:
    """Where one array is not null; None if it has no nulls."""
    if array.null_count == 0:
        return None
    buffer = array.buffers()[0]
    if buffer is None:  # the null type has no bitmap
        return np.zeros(len(array), np.bool_)
    return unpack_bits(buffer, array.offset, len(array))


def valid(column: pa.ChunkedArray | pa.Array) -> NDArray[np.bool_]:
    """Where a column is not null."""
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    out = np.ones(len(column), np.bool_)
    at = 0
    for chunk in chunks:
        mask = chunk_valid(chunk)
        if mask is not None:
            out[at : at + len(chunk)] = mask
        at += len(chunk)
    return out


def unpack_bits(buffer: pa.Buffer, offset: int, length: int) -> NDArray[np.bool_]:
    """The bits from `offset` on, as booleans."""
    first = offset // 8
    size = (offset + length + 7) // 8 - first
    packed = np.frombuffer(buffer, np.uint8, size, first)
    bits = np.unpackbits(packed, count=offset - first * 8 + length, bitorder="little")
    return bits[offset - first * 8 :].view(np.bool_)


def pack_bits(mask: NDArray[np.bool_]) -> pa.Buffer:
    """Booleans as an Arrow bitmap."""
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def to_arrow(
    values: NDArray[Any], kind: pa.DataType, *, mask: NDArray[np.bool_] | None = None
) -> pa.Array:
    """Fixed-width values as an array of a type of that width; null where `mask` is false."""
    bitmap = None if mask is None else pack_bits(mask)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(kind, len(values), [bitmap, data])


def take(table: pa.Table, rows: NDArray[Any]) -> pa.Table:
    """These rows of a table, in this order; a table without columns has no rows to take."""
    if not table.num_columns:
        return table
    return table.take(to_arrow(rows.astype(np.int64, copy=False), pa.int64()))
