"""Streams of a workload, cut into steps in which every replica has its turn.

All is made before a clock runs: batches in memory, each step a list of arrivals.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch
from anabranch.batch.buffers import to_arrow
from anabranch.batch.codec import decode
from anabranch.generator.workload import Workload
from anabranch.operators.contract import Arrival

Step = list[Arrival]


def steps(workload: Workload, *, run: int) -> Iterator[Step]:
    """Every replica gives its next `run` elements in each step."""
    batches = [
        decode(workload.replica(number), workload.schema).batch
        for number in range(workload.replicas)
    ]
    for at in range(0, max(map(len, batches)), run):
        yield [
            Arrival(f"r{number}", piece(batch, at, at + run))
            for number, batch in enumerate(batches)
            if at < len(batch)
        ]


def piece(batch: Batch, begin: int, end: int) -> Batch:
    """Some elements in a row; a copy, as it would come from a parcel."""
    return batch.take(np.arange(begin, min(end, len(batch))))


def count(some: Sequence[Step]) -> int:
    """How many elements are in these steps."""
    return sum(len(arrival.batch) for step in some for arrival in step)


def rows(some: Sequence[Step]) -> pa.Table:
    """The identities of the same elements, as a plain table: start and payload."""
    tables = [
        arrival.batch.payload.append_column("start", to_arrow(arrival.batch.start, pa.int64()))
        for step in some
        for arrival in step
    ]
    return pa.concat_tables(tables)
