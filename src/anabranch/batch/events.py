"""Builders of output batches: inserts, a stable, or an empty batch."""

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import INSERT, STABLE, Batch, Ints
from anabranch.batch.schema import ElementSchema


def nothing(schema: ElementSchema) -> Batch:
    """No elements: what most steps of a few elements emit, and finish."""
    none = np.empty(0, np.int64)
    return Batch(schema, np.empty(0, np.int8), none, none, none, schema.payload.empty_table())


def inserts(
    schema: ElementSchema, start: Ints, end: Ints, payload: pa.Table, stable: int | None = None
) -> Batch:
    """Events as inserts, in their order, and then a stable if there is one."""
    time = np.array([] if stable is None else [stable], np.int64)
    kind = np.full(len(start) + len(time), INSERT, np.int8)
    kind[len(start) :] = STABLE
    times = np.append(start, time), np.append(end, np.zeros_like(time))
    none = np.zeros(len(kind), np.int64)
    return Batch(schema, kind, *times, none, with_stable(payload, schema, len(time)))


def with_stable(payload: pa.Table, schema: ElementSchema, stables: int) -> pa.Table:
    """These payloads, with a row of nulls for the stable if there is one."""
    nulls = [pa.nulls(stables, field.type) for field in schema.payload]
    if not nulls or not stables:
        return payload
    return pa.concat_tables([payload, pa.table(nulls, schema=payload.schema)])
