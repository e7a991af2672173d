"""Start of the Python workers of a session: forked from a daemon that has loaded our code.

`settings` are for a session that we start; `anabranch doctor` prints them for others.  They
bring one daemon (`anabranch.spark.worker_daemon`) instead of two empty ones.  `start_workers`
starts it while the driver plans the query.  `ANABRANCH_PRELOAD=0` switches both off.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING, Final

from anabranch.spark.session import host

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

VARIABLE: Final = "ANABRANCH_PRELOAD"

MODULE: Final = "spark.python.daemon.module"
DAEMON: Final = "anabranch.spark.worker_daemon"


def is_switched_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether workers are preloaded."""
    return host.is_switched_on(VARIABLE, "each worker loads for itself", environ)


def settings() -> dict[str, str]:
    """What lets the workers of a session start from one preloaded daemon."""
    return {
        MODULE: DAEMON,
        # Spark starts a daemon for each environment that its tasks ask for.  This setting is a
        # variable in that of `mapInArrow`, and not in that of `transformWithState`.
        "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    }


def start_workers(spark: "SparkSession", lanes: int) -> None:
    """Start the daemon and its first workers by a small job, in a thread.

    It only saves time: if it fails, the first task that needs a worker reports the reason.
    """
    if spark.conf.get(MODULE, None) != DAEMON:
        return
    tasks = host.slots(spark) or lanes

    def job() -> None:
        with suppress(Exception):
            rows = spark.range(0, tasks, numPartitions=tasks)
            rows.mapInArrow(_same, "id long").write.format("noop").mode("overwrite").save()

    Thread(target=job, name="anabranch-workers", daemon=True).start()


def _same(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    return batches
