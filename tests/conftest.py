"""Settings for all tests, and one Spark for all of a run.

`ANABRANCH_PROFILE` says how hard Hypothesis tries: `fast` (default, for work at the keyboard),
`ci` or `deep`.  Spark is started by our own session(): local, few partitions;
`ANABRANCH_SPARK=connect` gives a session of Spark Connect instead, with the same tests.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.testing import Engine

    MakeEngine = Callable[..., Engine]

# Runs on shared machines: a slow example is no error, so there is no deadline.
_SLOW = (HealthCheck.too_slow,)

settings.register_profile("fast", max_examples=50, deadline=None, suppress_health_check=_SLOW)
# The same examples in every run: a change is judged by what it changed, not by luck. New
# examples are looked for at the keyboard and in the deep runs, by seed.
settings.register_profile(
    "ci", max_examples=100, derandomize=True, deadline=None, suppress_health_check=_SLOW
)
# Another SEED of `make test-deep` tries other streams; each run is counted (see resume.py).
settings.register_profile(
    "deep", max_examples=1_000, deadline=None, suppress_health_check=_SLOW
)
PROFILE = os.environ.get("ANABRANCH_PROFILE", "fast")
DEEP = PROFILE == "deep"
settings.load_profile(PROFILE)


@pytest.fixture(scope="session")
def spark_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Spark was started in: its relative paths begin there."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def spark(spark_folder: Path) -> "Iterator[SparkSession]":
    from anabranch.spark.session.start import session

    connect = os.environ.get("ANABRANCH_SPARK", "classic") == "connect"
    with contextlib.chdir(spark_folder):
        started = session(
            **{"remote" if connect else "master": "local[2]"},
            app_name="anabranch tests",
            config={
                "spark.driver.memory": "1g",
                "spark.sql.shuffle.partitions": "2",
                "spark.sql.warehouse.dir": str(spark_folder / "warehouse"),
            },
            log_path=spark_folder / "spark.log",
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


@contextlib.contextmanager
def set_quick(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The same Spark, set for many small triggers; what starts meanwhile stays so."""
    before = {name: spark.conf.get(name, None) for name in QUICK}
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture
def quick(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The same Spark, set for many small triggers."""
    with set_quick(spark):
        yield spark


GAPS = ("notimpl", "notyet", "never")
"""Why an engine does not do what a test asks: nobody has built it, it is about to be built, or
it cannot be."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A gap of an engine is a strict failure: who closes it removes the mark."""
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("engine")
        for word in GAPS:
            for mark in item.iter_markers(word):
                if name in mark.args:
                    reason = f"{word}: {mark.kwargs['reason']}"
                    item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


LOCAL = ("reference", "kernel", "lanes")


@pytest.fixture(
    scope="session", params=[*LOCAL, pytest.param("spark", marks=pytest.mark.spark)]
)
def engine(request: pytest.FixtureRequest) -> "MakeEngine":
    """Makes operators on one of the engines: `with engine("merge", case="r3") as merge`.

    On Spark in one lane, where a trigger is quickest; laws run there in two.
    """
    return _maker(request.param, request, spark_lanes=1)


@pytest.fixture(scope="session", params=LOCAL)
def local_engine(request: pytest.FixtureRequest) -> "MakeEngine":
    """The engines without Spark: for laws, which try many examples."""
    return _maker(request.param, request)


@pytest.fixture(scope="session")
def spark_engine(request: pytest.FixtureRequest) -> "MakeEngine":
    """Spark alone: for laws with a few fixed seeds."""
    return _maker("spark", request)


def _maker(name: str, request: pytest.FixtureRequest, *, spark_lanes: int = 2) -> "MakeEngine":
    from anabranch import testing

    if name != "spark":
        return partial(testing.engine, name, check_every=1 if DEEP else 4)
    spark = request.getfixturevalue("spark")

    def start(operator: str = "merge", **options: Any) -> "Engine":
        with set_quick(spark):
            return testing.engine(
                name, operator, **{"spark": spark, "lanes": spark_lanes, **options}
            )

    return start
