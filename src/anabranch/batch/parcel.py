"""A batch as one value of bytes, to cross Spark or to rest in a state store.

`unpack(pack(batch), batch.schema)` is the same batch: same elements, in order, stables and
`seq` with them, payloads bit for bit.  The bytes are an Arrow IPC stream, readable by any Arrow
library; nothing in them is ever executed.  The payload columns of an unpacked batch are views
of the bytes; the numbers beside them are copied, since a kernel compiled for arrays that may be
written to would be compiled a second time for views that may not.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.schema import END, KIND, OLD_END, SEQ, START, ElementSchema
from anabranch.errors import InputError

_KIND_TYPE = np.dtype(np.int8)
_TIME_TYPE = np.dtype(np.int64)


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
    columns |= zip(batch.payload.column_names, batch.payload.columns, strict=True)
    table = pa.table(columns)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpack(data: bytes | pa.Buffer, schema: ElementSchema) -> Batch:
    """The batch of these bytes, which were packed with this schema."""
    try:
        table = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
        payload = table.select(schema.payload.names)
        times = {name: _times(table, name) for name in (START, END)}
        none = np.zeros(table.num_rows, _TIME_TYPE)
        old_end = _times(table, OLD_END) if OLD_END in table.column_names else none
        seq = _times(table, SEQ) if SEQ in table.column_names else None
        kind = np.array(numbers(table.column(KIND), _KIND_TYPE))
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
    return Batch(schema, kind, times[START], times[END], old_end, payload, seq)


def _times(table: pa.Table, name: str) -> Any:
    return np.array(numbers(table.column(name), _TIME_TYPE))
