"""Spark's daemon of Python workers, with our modules and kernels loaded before it forks.

Spark starts a daemon with the first Python task (`spark.python.daemon.module`) and forks every
worker from it.  Spark's own daemon is empty: each worker imports Arrow, Numba and this package,
and reads the compiled kernels from disk.  This one does so once, for all workers.

What goes wrong here must not stop a job that would run without it: the error is printed to
Spark's log, and the daemon forks workers that load what they need, as Spark's own does.

A fork copies only the thread that forks, so no other thread may hold a lock then: OpenBLAS is
set to start none, and nothing is called here that starts threads of Arrow.
"""

import gc
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.batch.batch import Batch
    from anabranch.batch.schema import ElementSchema
    from anabranch.spark.lane.spec import LaneSpec
    from anabranch.spark.pack.parcels import Parcel

MODULES: Final = (
    "pyarrow.parquet",
    "pyspark.worker",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "anabranch.spark.lane.processor",
    "anabranch.spark.lane.work",
    "anabranch.spark.pack.files",
    "anabranch.spark.pack.rows",
    "anabranch.spark.write.stage_files",
)
"""What tasks import: Spark's workers, packers of rows and files, lanes, writers of files."""

EVENTS: Final = 200
TRIGGERS: Final = 2
"""The second trigger meets a state that is not empty, and so other kernels than the first."""


def preload() -> None:
    """Import all modules, then load the kernels of the default merge by running a tiny one."""
    for name in MODULES:
        import_module(name)
    run_tiny_merge()
    gc.collect()
    gc.freeze()  # no collection in a worker looks at these objects, or copies their pages


def run_tiny_merge() -> None:
    """Two replicas in two lanes, from elements to saved parts, as packers and lanes do it."""
    import pyarrow as pa

    from anabranch.batch.schema import ElementSchema, TimeType
    from anabranch.operators.entries import usual
    from anabranch.operators.pipeline import PipelineStep
    from anabranch.spark.lane.receive import Order
    from anabranch.spark.lane.spec import LaneSpec
    from anabranch.spark.lane.trigger import make

    payload = pa.schema({"number": pa.int64(), "text": pa.string(), "ratio": pa.float64()})
    schema = ElementSchema(TimeType.TIMESTAMP, payload, has_seq=True)
    operator = usual(schema)
    spec = LaneSpec("preload", 2, (PipelineStep(operator.name, operator),), Order(schema))
    lanes = [spec.new_lane() for _ in range(spec.lanes)]
    for trigger in range(TRIGGERS):
        parcels = _parcels(_elements(schema, EVENTS * trigger), spec, trigger)
        for number, lane in enumerate(lanes):
            make(number, lane, [one for one in parcels if one.lane == number], spec)
            for state in lane.states.values():
                state.parts()


def _elements(schema: "ElementSchema", since: int) -> "Batch":
    """Inserts, as many as let a table grow; an adjust; a stable that makes some final."""
    import numpy as np
    import pyarrow as pa

    from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch

    number = np.append(np.arange(EVENTS), [0, 0])
    kind = np.full(len(number), INSERT, np.int8)
    kind[-2:] = ADJUST, STABLE
    start, end, old_end = since + number, since + number + 5, since + number
    end[-2], old_end[-2], start[-1] = since + 9, since + 5, since + EVENTS // 2
    columns = [pa.array(number), pa.array(map(str, number)), pa.array(number / 2)]
    payload = pa.table(columns, schema=schema.payload)
    return Batch(schema, kind, start, end, old_end, payload, np.arange(len(number)))


def _parcels(batch: "Batch", spec: "LaneSpec", trigger: int) -> "Sequence[Parcel]":
    """What the lanes receive if two replicas send these elements."""
    import numpy as np
    import pyarrow as pa

    from anabranch.spark.pack import parcels

    places = pa.table({"row": pa.array(np.arange(len(batch)))})
    made = []
    for name in ("east", "west"):
        base = parcels.Parcel(0, name, log=trigger, file="preload")
        made += parcels.pieces(base, batch, places, spec.lanes, spec.routing)
        made += parcels.in_every_lane(base, spec.lanes, parcels.Facts(len(batch)))
    rows = parcels.to_rows(made, spec.lanes).to_pylist()
    return [parcels.from_row(row, spec.schema, None) for row in rows]


def main(load: Callable[[], None] = preload) -> None:
    """Preload, then be Spark's own daemon."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The first bytes on standard output are the port of the daemon: print to the log instead.
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        load()
    except BaseException:  # also an exit: without a daemon Spark fails the job
        traceback.print_exc()
    sys.stdout.flush()
    os.dup2(out, 1)
    os.close(out)
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
