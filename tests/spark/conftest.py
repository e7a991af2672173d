"""One Spark for all tests of a run, started by our own session(): local, few partitions.

`ANABRANCH_SPARK=connect` gives a session of Spark Connect instead, with the same tests.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    from anabranch.spark.session import session

    folder = tmp_path_factory.mktemp("spark")
    connect = os.environ.get("ANABRANCH_SPARK", "classic") == "connect"
    started = session(
        **{"remote" if connect else "master": "local[2]"},
        app_name="anabranch tests",
        config={
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
        log_path=folder / "spark.log",
    )
    yield started
    started.stop()


# One task per stage and checkpoints written by renaming: the same answers, much sooner.
QUICK = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


@pytest.fixture
def quick(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The same Spark, set for many small triggers."""
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)
