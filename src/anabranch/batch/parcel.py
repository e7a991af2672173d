"""A batch as bytes, for Spark's shuffle and for state stores.

`unpack(pack(batch), batch.schema)` is the same batch: same elements, in order, stables, `seq`
and hashes with them, payloads bit for bit.  The bytes are an Arrow IPC stream, readable by any
Arrow library; nothing in them is ever executed.  The payload columns of an unpacked batch are
views of the bytes, and so are the hashes; the other numbers are copied, since a kernel compiled
for arrays that may be written to would be compiled a second time for views that may not.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch, Hashes
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import END, KIND, OLD_END, SEQ, START, ElementSchema
from anabranch.errors import InputError

_KIND_TYPE = np.dtype(np.int8)
_TIME_TYPE = np.dtype(np.int64)
_HASH_TYPE = np.dtype((np.void, 16))
_HASHES: Final = "hashes"

Column: TypeAlias = pa.ChunkedArray


def pack(batch: Batch) -> bytes:
    """The bytes of a batch."""
    sink = pa.BufferOutputStream()
    write(batch, sink)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write(batch: Batch, sink: pa.NativeFile) -> None:
    """Write the bytes of a batch to where they are to be."""
    columns: dict[str, Any] = {KIND: to_arrow(batch.kind, pa.int8())}
    times = {START: batch.start, END: batch.end}
    if batch.old_end.any():  # only adjusts have one
        times[OLD_END] = batch.old_end
    if batch.seq is not None:
        times[SEQ] = batch.seq
    columns |= {name: to_arrow(units, pa.int64()) for name, units in times.items()}
    if batch.hashes is not None:
        columns[_HASHES] = to_arrow(batch.hashes, pa.binary(_HASH_TYPE.itemsize))
    # A column of the payload may have the name of one of ours: it is known by its place.
    names = [*columns, *batch.payload.column_names]
    table = pa.table([*columns.values(), *batch.payload.columns], names)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack(data: bytes | pa.Buffer, schema: ElementSchema) -> Batch:
    """The batch of these bytes, which were packed with this schema."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        own, payload = _split(table, schema.payload.names)
        times = {name: _times(own[name]) for name in (START, END)}
        none = np.zeros(table.num_rows, _TIME_TYPE)
        old_end = _times(own[OLD_END]) if OLD_END in own else none
        seq = _times(own[SEQ]) if SEQ in own else None
        kind = np.array(numbers(own[KIND], _KIND_TYPE))
        hashes = _hashes(own[_HASHES]) if _HASHES in own else None
    except (pa.ArrowInvalid, KeyError) as error:
        message = (
            f"unpack: expected a parcel with the payload columns {schema.payload.names}, got "
            f"{len(data)} bytes that are none ({error}); pack and unpack with one schema"
        )
        raise InputError(message) from error
    if payload.schema.types != schema.payload.types:
        message = (
            f"unpack: expected payload columns {schema.payload.types}, got "
            f"{payload.schema.types}; pack and unpack with one schema"
        )
        raise InputError(message)
    return Batch(schema, kind, times[START], times[END], old_end, payload, seq, hashes)


def _split(table: pa.Table, payload: list[str]) -> tuple[dict[str, Column], pa.Table]:
    """Our columns by name, and those of the payload, which come last."""
    names, columns = table.column_names, range(table.num_columns)
    count = max(len(names) - len(payload), 0)
    if names[count:] != payload:
        raise KeyError(*names)
    return {names[i]: table.column(i) for i in columns[:count]}, table.select(columns[count:])


def _times(column: Column) -> Any:
    return np.array(numbers(column, _TIME_TYPE))


def _hashes(column: Column) -> Hashes:
    """Kernels read them through `frozen` only, so a view will do if its words are aligned."""
    words = numbers(column, _HASH_TYPE).view(np.uint64)
    return np.require(words, requirements="A").reshape(-1, 2)
