"""The state of merge R3- as bytes: whole, since it is a baseline for measurements.

replicas   one row each: its name, frontier and last seq; its metadata is the header
index      for the output, then for each replica: the start and end of each event
payload    after each index: the payloads of its events
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.r3_separate_kernel import Index, SeparateState, Source
from anabranch.operators.state_codec import (
    StateKind,
    Streams,
    column_of,
    to_table,
    write_tables,
)

KIND: Final = StateKind("anabranch merge r3-", version=1, reads=(1,))


def write_state(state: SeparateState) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    sources = state.sources.values()
    columns = {
        "frontier": np.array([source.frontier for source in sources], np.int64),
        "last_seq": np.array([source.last_seq for source in sources], np.int64),
    }
    header = KIND.header(time=state.schema.time.value, frontier=state.frontier)
    names = pa.array(list(state.sources), pa.string())
    replicas = to_table(columns).append_column("name", names).replace_schema_metadata(header)
    tables = [replicas]
    for index in (state.output, *(source.index for source in sources)):
        tables.append(to_table({"start": index.interner.start, "end": index.end}))
        tables.append(index.interner.payload.replace_schema_metadata(None))
    return write_tables(*tables)


def read_state(data: bytes, schema: ElementSchema) -> SeparateState:
    """The state that was written, ready for the next step."""
    streams = KIND.open(data)
    replicas, header = streams.first()
    plain = replace(schema, has_seq=False, has_replica=False)
    output = _read_index(streams, header, plain)
    columns = (column_of(replicas, name).tolist() for name in ("frontier", "last_seq"))
    names = replicas.column("name").to_pylist()
    sources = {
        name: Source(_read_index(streams, header, plain), frontier, last_seq)
        for name, frontier, last_seq in zip(names, *columns, strict=True)
    }
    return SeparateState(plain, output, sources, int(header["frontier"]))


def _read_index(streams: Streams, header: dict[str, str], schema: ElementSchema) -> Index:
    events, payload = streams.next(), streams.next()
    KIND.require_payload(header, payload, schema)
    index = Index(schema.payload)
    # Each is there once, so that they get the numbers that they had.
    ids = index.find(column_of(events, "start"), payload)
    index.end[ids] = column_of(events, "end")
    return index
