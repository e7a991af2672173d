"""A Spark session with the settings that streams of elements need, started with one call.

`session()` gives a local Spark that keeps its state in RocksDB, uses UTC, listens on loopback
only, runs its Python workers with this interpreter, and writes its log to a
file (`log_file()`) instead of the terminal. A session that runs already is used as it is, if
its settings fit; `check_session` names the settings that do not, with the values to set.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import SetupError
from anabranch.spark.session import connect, host, workers
from anabranch.spark.session.java import LOG_VARIABLE, java_home
from anabranch.spark.session.sockets import socket_settings
from anabranch.spark.session.versions import require_client, require_release

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

TIME_ZONE = "spark.sql.session.timeZone"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"
PYTHON = "PYSPARK_PYTHON"
"""Where Spark reads which Python its workers run."""

_STREAMING = "org.apache.spark.sql.execution.streaming"
ROCKSDB = f"{_STREAMING}.state.RocksDBStateStoreProvider"

# Names under which Java knows a clock without offset and without summer time.
_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "Z", "GMT", "Etc/GMT", "+00:00", "UCT", "Zulu"})


@dataclass(slots=True)
class _Started:
    """What this process chose when it started its one JVM: a later session cannot change it."""

    log: Path | None = None
    session: "SparkSession | None" = None


_started = _Started()


def session(
    *,
    master: str | None = None,
    remote: str | None = None,
    app_name: str = "anabranch",
    config: Mapping[str, str] | None = None,
    log_path: Path | None = None,
    cache: Path | None = None,
    usual: Mapping[str, str] | None = None,
) -> "SparkSession":
    """The running session if there is one that can carry streams, else a new one.

    `master` is `local[*]` unless given; `config` takes any Spark setting and wins over ours.
    `usual` replaces some of our own settings, where a session is started.
    `remote` asks for a Spark Connect session: on a server that runs (`sc://host:15002`, also as
    `master`), or, as in `local[2]`, on one that is started here.
    Raises SetupError if PySpark is too old, if there is no Java, if Spark does not start (its
    log is named), or if the running session has settings that contradict what was asked for or
    what streams need.
    """
    require_client()
    asked = dict(config or {})
    if master is not None:
        asked["spark.master"] = master
    if connect.is_remote(asked.get("spark.master", "")):
        remote = asked.pop("spark.master")
    running = _running()
    if running is not None:
        if remote is not None:
            connect.require_connect(running, remote)
        _compare(running, asked)
        check_session(running)
        return running
    if remote is not None and connect.is_remote(remote):
        ours = {k: v for k, v in defaults(local=False).items() if k.startswith("spark.sql.")}
        spark = connect.join(remote, app_name, asked, ours)
        check_session(spark)
        return spark
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _join(app_name, asked)
    if remote is not None:
        connect.require_packages()
        connect.require_port(asked)
        asked = {connect.ADDRESS: "127.0.0.1", **asked, "spark.remote": remote}
    place = cache or host.cache_dir()
    return _start(app_name, asked, dict(usual or {}), log_path, place)


def _running() -> "SparkSession | None":
    """The session of this process, also one that another thread started."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        active = SparkSession.active()
    except PySparkRuntimeError:
        return None
    ours = _started.session
    # A streaming query works on a clone of its session, and Spark may call that clone the
    # active one long after: settings made there would be lost on whoever has the real one.
    is_clone = ours is not None and _application(active) == _application(ours)
    return ours if is_clone else active


def _application(spark: "SparkSession") -> str:
    return str(spark.conf.get("spark.app.id"))


def log_file() -> Path | None:
    """Spark's log file of this process; None if Anabranch started no Spark here."""
    path = _started.log
    return path if path is not None and path.exists() else None


def check_session(spark: "SparkSession") -> None:
    """Raise SetupError, with the lines to run, if a session cannot carry streams."""
    require_release(spark)
    wrong: list[str] = []
    if spark.conf.get(TIME_ZONE) not in _UTC_NAMES:
        wrong.append(_remedy(spark, TIME_ZONE, "UTC", "times of elements are UTC"))
    if spark.conf.get(STATE_STORE) != ROCKSDB:
        wrong.append(_remedy(spark, STATE_STORE, ROCKSDB, "stateful steps need RocksDB"))
    if wrong:
        lines = "\n".join(wrong)
        message = f"the Spark session that runs cannot carry streams of elements:\n{lines}"
        raise SetupError(message)


def _remedy(spark: "SparkSession", name: str, wanted: str, why: str) -> str:
    came = spark.conf.get(name)
    return f'  {name} is {came!r}, but {why}; run: spark.conf.set("{name}", "{wanted}")'


def _compare(running: "SparkSession", asked: Mapping[str, str]) -> None:
    """Reject a running session with other settings: Spark would silently return it."""
    for name, wanted in asked.items():
        came = running.conf.get(name, None)
        if came != wanted:
            message = (
                f"session(): {name}={wanted!r} was requested, but a session runs already in "
                f"this process with {came!r}; stop it first (spark.stop()), or leave it out"
            )
            raise SetupError(message)


def defaults(*, local: bool) -> dict[str, str]:
    """Our settings for a new session; `local` adds those that only suit one host."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": host.driver_memory(),
        TIME_ZONE: "UTC",
        STATE_STORE: ROCKSDB,
        # A restart needs the last trigger; Spark would keep the files of a hundred.
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Two files a trigger, which Spark would keep for ten minutes after they are compacted.
        "spark.sql.streaming.fileSource.log.cleanupDelay": "60000",
        # Upload what changed at each trigger, not every file of the store.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        # While Python works on a batch, Spark makes the next one ready.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        # Spark would add up the bytes of a batch at every row, which takes as long as writing
        # narrow rows; at this value it does not. The rows of a batch are bound above.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
    }
    if local:
        settings |= {
            "spark.sql.shuffle.partitions": str(max(2, min(8, host.cores()))),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            **socket_settings(),
            # The default manager forks a process per file on a local disk: a state commit
            # takes 150-240 ms with it and 16-34 ms with this one. Both rename into place.
            "spark.sql.streaming.checkpointFileManagerClass": (
                f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
            ),
        }
    return settings


def _start(
    app_name: str,
    asked: Mapping[str, str],
    usual: Mapping[str, str],
    log_path: Path | None,
    cache: Path,
) -> "SparkSession":
    from pyspark.sql import SparkSession

    java = java_home(cache=cache)
    log.info("Java %s (%s): %s", java.version, java.origin, java.java)
    # A second session of this process meets the JVM of the first, and with it its log.
    spark_log = _started.log or _new_log(log_path, cache)
    where = "spark.remote" if "spark.remote" in asked else "spark.master"
    if where == "spark.master":
        # A program that has a Connect session leaves this mark to those that it starts.
        os.environ.pop("SPARK_CONNECT_MODE_ENABLED", None)
    local = asked.get(where, "local[*]").startswith("local")
    # Code that Spark itself hands to the workers is not there yet when their daemon starts.
    is_installed = "spark.submit.pyFiles" not in asked
    preloading = workers.settings() if is_installed and workers.is_switched_on() else {}
    ours = {**defaults(local=local), **usual, **preloading}
    settings = {where: "local[*]", **ours, **asked}
    given = asked.get(JAVA_OPTIONS, "")
    heap = host.heap_options(settings["spark.driver.memory"], given)
    options = (_log_options(spark_log), heap, given)
    settings[JAVA_OPTIONS] = " ".join(filter(None, options))  # the last word is the user's
    builder = SparkSession.builder.appName(app_name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    _started.log = spark_log
    variables = {"JAVA_HOME": str(java.path), LOG_VARIABLE: str(spark_log)}
    try:
        with _environment(variables | _quiet_variables(asked, local=local)), connect.quiet():
            spark = builder.getOrCreate()
    except Exception as problem:
        raise SetupError(_explain(problem, spark_log)) from problem
    log.info("Spark %s on %s; its log: %s", spark.version, settings[where], spark_log)
    _started.session = spark
    return spark


def _join(app_name: str, asked: Mapping[str, str]) -> "SparkSession":
    """The session of a program that `spark-submit` started: its own settings win over ours.

    Its JVM runs already, with its own Java, log and memory.
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(app_name)
    for name, value in asked.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    given = spark.conf.getAll
    master = str(given["spark.master"])
    for name, value in defaults(local=master.startswith("local")).items():
        if name.startswith("spark.sql.") and name not in given:
            spark.conf.set(name, value)
    log.info("Spark %s on %s, by spark-submit", spark.version, master)
    check_session(spark)
    _started.session = spark
    return spark


def _quiet_variables(asked: Mapping[str, str], *, local: bool) -> dict[str, str]:
    """Environment for a new JVM, where the user has not decided otherwise."""
    import pyspark

    wanted = {"SPARK_HOME": str(Path(pyspark.__file__).parent)}  # saves Spark a search
    if local:
        wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
        # RocksDB frees memory in other threads than it allocates it in: with an arena for
        # each of them the C library keeps memory that is not in use.
        wanted["MALLOC_ARENA_MAX"] = "2"
    variables = {name: value for name, value in wanted.items() if name not in os.environ}
    if local:
        # Workers on this machine must be this Python, whatever `python3` on the PATH is.
        variables[PYTHON] = sys.executable
    elif PYTHON not in os.environ:
        # Spark would take any `python3` of the workers, and this setting only in spark-submit.
        variables[PYTHON] = asked.get("spark.pyspark.python", sys.executable)
        log.info("workers run %s; set %s if theirs is elsewhere", variables[PYTHON], PYTHON)
    return variables


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables while the JVM starts, and put back what was there."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _new_log(asked: Path | None, cache: Path) -> Path:
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    path = (asked or cache / "logs" / f"spark-{now}-{os.getpid()}.log").absolute()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    except OSError as problem:
        message = (
            f"Spark's log file {path} cannot be written: {problem}; name another with the "
            "setting log_file, or another folder with ANABRANCH_CACHE_DIR"
        )
        raise SetupError(message) from problem
    return path


def _log_options(spark_log: Path) -> str:
    """Java options that make Spark log to our file; quoted, as paths may hold blanks."""
    layout = Path(__file__).with_name("log4j2.properties")
    return f'"-Dlog4j2.configurationFile={layout.as_uri()}" "-Danabranch.log={spark_log}"'


def _explain(problem: Exception, spark_log: Path) -> str:
    """Why Spark did not start: its own words, the end of its log, and where the rest is."""
    lines = spark_log.read_text(errors="replace").splitlines()
    last = [line for line in lines if not line.startswith("\tat ")][-8:]
    tail = "\n".join(f"  | {line}" for line in last) or "  | (nothing)"
    # A Java error has its message on the second line; pages of stack and causes follow.
    first = [line.strip(" :") for line in str(problem).splitlines() if line.strip()]
    reason = " ".join(line for line in first[:2] if not line.startswith("\tat"))
    return (
        f"Spark did not start: {reason or type(problem).__name__}\n"
        f"The end of its log {spark_log}:\n{tail}\n"
        "See what this machine lacks with: anabranch doctor"
    )
