"""Workers are forked from one daemon that has loaded our code; its failure stops no job."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest
from numba.core.dispatcher import Dispatcher

from anabranch.batch.codec import decode
from anabranch.errors import UsageError
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.pipeline import PipelineStep
from anabranch.spark import worker_daemon
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.trigger import make
from anabranch.spark.session import workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def loaded_kernels() -> set[tuple[str, str]]:
    """Every kernel that has machine code, with the types that it is for."""
    ours = [module for name, module in sys.modules.items() if name.startswith("anabranch.")]
    return {
        (name, str(types))
        for module in ours
        for name, found in vars(module).items()
        if isinstance(found, Dispatcher)
        for types in found.overloads
    }


def kernels_beyond_the_preload() -> set[tuple[str, str]]:
    """What a merge of generated replicas loads after the preload; for a fresh process."""
    worker_daemon.preload()
    before = loaded_kernels()
    workload = Workload(events=2_000, payload_bytes=100, replicas=3, seed=1)
    operator = MergeOperator(workload.schema, MergeCase.R3)
    order = Order(workload.schema)
    spec = LaneSpec("run", 2, (PipelineStep("merge", operator),), order)
    lanes = [spec.new_lane() for _ in range(spec.lanes)]
    batch = decode(workload.replica(0), workload.schema).batch
    for trigger in range(4):
        some = batch.slice(trigger * 500, (trigger + 1) * 500)
        parcels = worker_daemon._parcels(some, spec, trigger)
        for number, lane in enumerate(lanes):
            make(number, lane, [one for one in parcels if one.lane == number], spec)
            for state in lane.states.values():
                state.parts()
    return loaded_kernels() - before


def test_a_merge_after_the_preload_loads_no_kernel() -> None:
    program = "import test_worker_daemon as t; print(t.kernels_beyond_the_preload())"
    folder = os.path.dirname(__file__)
    path = os.pathsep.join([folder, *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "set()"


def exit_early() -> NoReturn:
    """A preload that prints, and fails in the worst way."""
    os.write(1, b"this must not be read as a port")
    sys.exit("no kernels here")


def test_a_preload_that_fails_leaves_a_daemon(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pyspark.daemon.manager", lambda: os.write(1, b"port"))
    worker_daemon.main(exit_early)
    out, err = capfd.readouterr()
    assert out == "port"
    assert "this must not be read as a port" in err
    assert "SystemExit: no kernels here" in err


def test_the_switch() -> None:
    assert workers.is_switched_on({})
    assert not workers.is_switched_on({"ANABRANCH_PRELOAD": "0"})
    with pytest.raises(UsageError, match="ANABRANCH_PRELOAD is 'off'; expected 0"):
        workers.is_switched_on({"ANABRANCH_PRELOAD": "off"})


@pytest.mark.spark
def test_workers_of_our_session_are_preloaded(spark: "SparkSession") -> None:
    def facts(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import sys

        for _ in batches:
            is_there = "anabranch.spark.lane.work" in sys.modules
            yield pa.RecordBatch.from_pydict({"is_there": [is_there]})

    rows = spark.range(1).mapInArrow(facts, "is_there boolean").collect()
    assert [row.is_there for row in rows] == [True]


SOAK = """
import sys
from collections.abc import Iterator
import pyarrow as pa
import anabranch as ab

def work(batches):
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
    from anabranch.spark.worker_daemon import run_tiny_merge
    for batch in batches:
        some = np.random.default_rng(1).random((64, 64))
        assert np.isfinite(some @ some).all()
        assert pc.sum(pa.array(range(10_000))).as_py() == 49_995_000
        run_tiny_merge()
        yield batch

spark = ab.session(master="local[4]", config={"spark.python.worker.reuse": "false"})
count = int(sys.argv[1])
rows = spark.range(0, count, numPartitions=count).mapInArrow(work, "id long")
print(rows.count())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep
def test_a_thousand_forks_work(tmp_path: Path) -> None:
    """Each task is a new fork of the daemon: it allocates, multiplies and runs kernels."""
    (tmp_path / "soak.py").write_text(SOAK)
    command = [sys.executable, str(tmp_path / "soak.py"), "1000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=3000)
    assert done.stdout.split() == ["1000"]
