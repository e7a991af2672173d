"""Settings for all tests, and one Spark for all of a run.

`ANABRANCH_PROFILE` sets how hard Hypothesis tries: `fast` (default, for work at the keyboard),
`ci` or `deep`.  Spark is started by our own session(): local, few partitions;
`ANABRANCH_SPARK=connect` gives a session of Spark Connect instead, with the same tests.
"""

import contextlib
import gc
import os
import re
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
# examples are looked for at the keyboard and in the deep runs, by seed: eight times as many.
settings.register_profile(
    "ci", max_examples=12, derandomize=True, deadline=None, suppress_health_check=_SLOW
)
# Another SEED of `make test-deep` tries other streams; each run is counted (see resume.py).
# All laws with one seed take about half an hour of one core; more seeds find more than more
# examples of one seed.
settings.register_profile("deep", max_examples=100, deadline=None, suppress_health_check=_SLOW)
PROFILE = os.environ.get("ANABRANCH_PROFILE", "fast")
DEEP = PROFILE == "deep"
settings.load_profile(PROFILE)


# Small data in short runs: the second compiler and a parallel collector cost more than they
# bring, and they take the core of the tests that run beside these.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Checkpoints written by renaming, without checksums: a small trigger takes half the time.  The
# command line and the fault runs start sessions of their own, with Spark's defaults.
QUICK_CHECKPOINTS = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
}


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
                "spark.driver.extraJavaOptions": QUICK_JAVA,
                "spark.sql.shuffle.partitions": "2",
                **QUICK_CHECKPOINTS,
                "spark.sql.warehouse.dir": str(spark_folder / "warehouse"),
            },
            log_path=spark_folder / "spark.log",
        )
    yield started
    started.stop()


@contextlib.contextmanager
def configured(spark: "SparkSession", **settings: str) -> "Iterator[SparkSession]":
    """The same Spark with these settings (`__` for a dot); what starts meanwhile keeps them."""
    wanted = {name.replace("__", "."): value for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in wanted}
    for name, value in wanted.items():
        spark.conf.set(name, value)
    yield spark
    for name, old in before.items():
        if old is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, old)


@pytest.fixture
def quick(spark: "SparkSession") -> "Iterator[SparkSession]":
    """The same Spark, set for many small triggers: one task per stage."""
    with configured(spark, spark__sql__shuffle__partitions="1"):
        yield spark


GAPS = ("notimpl", "notyet", "never")
"""Why an engine does not do what a test asks: nobody has built it, it is about to be built, or
it cannot be."""


WORDS = {"spark": re.compile(r"mark\.spark|engine"), "process": re.compile(r"mark\.process")}
"""What a file with tests of a mark contains: `.ci/tests.py` finds a share's files by it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A gap of an engine is a strict failure: who closes it removes the mark."""
    for mark, words in WORDS.items():
        for path in {item.path for item in items if item.get_closest_marker(mark)}:
            assert words.search(path.read_text()), f"{path}: write pytest.mark.{mark}"
    for item in items:
        name = getattr(item, "callspec", None) and item.callspec.params.get("engine")
        for word in GAPS:
            for mark in item.iter_markers(word):
                if name in mark.args:
                    reason = f"{word}: {mark.kwargs['reason']}"
                    item.add_marker(pytest.mark.xfail(strict=True, reason=reason))


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not look at it time and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let the end of the process free it: DuckDB reports what it finds then as leaks."""
    gc.unfreeze()


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
        with configured(spark, spark__sql__shuffle__partitions="1"):
            return testing.engine(
                name, operator, **{"spark": spark, "lanes": spark_lanes, **options}
            )

    return start
