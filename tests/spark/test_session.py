"""A session is set up right, reports what it cannot do, and leaves the process as it was."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anabranch.errors import SetupError
from anabranch.spark.session import start
from anabranch.spark.session.java import java_home
from anabranch.spark.session.sockets import socket_settings
from anabranch.spark.session.start import (
    ROCKSDB,
    STATE_STORE,
    TIME_ZONE,
    check_session,
    defaults,
    log_file,
    session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_settings_that_streams_need_are_in_force(spark: "SparkSession") -> None:
    for name, value in defaults(local=True).items():
        if name not in {"spark.driver.memory", "spark.sql.shuffle.partitions"}:
            assert spark.conf.get(name) == value, name
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    check_session(spark)


def test_workers_run_this_python(spark: "SparkSession") -> None:
    def name(batches):
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"name": [sys.prefix]})

    rows = spark.range(1).mapInArrow(name, "name string").collect()
    assert rows[0]["name"] == sys.prefix


def test_the_running_session_is_used_again(spark: "SparkSession") -> None:
    assert session() is spark
    assert session(master="local[2]") is spark


def test_the_running_session_is_found_from_another_thread(spark: "SparkSession") -> None:
    found: list[SparkSession] = []
    thread = threading.Thread(target=lambda: found.append(session()))
    thread.start()
    thread.join()
    assert found == [spark]


@pytest.mark.parametrize(
    "asked",
    [{"master": "local[7]"}, {"config": {"spark.driver.memory": "77g"}}],
    ids=["master", "memory"],
)
def test_a_running_session_with_other_settings_is_refused(
    spark: "SparkSession", asked: dict[str, object]
) -> None:
    with pytest.raises(SetupError, match=r"a session runs already.*stop it first"):
        session(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "wrong", "right"),
    [
        (TIME_ZONE, "America/Los_Angeles", "UTC"),
        (STATE_STORE, ROCKSDB.replace("RocksDB", "HDFSBacked"), ROCKSDB),
    ],
)
def test_the_error_of_a_session_that_cannot_carry_streams_names_the_settings(
    spark: "SparkSession", name: str, wrong: str, right: str
) -> None:
    spark.conf.set(name, wrong)
    try:
        with pytest.raises(SetupError) as raised:
            session()
        assert f'spark.conf.set("{name}", "{right}")' in str(raised.value)
        assert wrong in str(raised.value)
    finally:
        spark.conf.set(name, right)
    assert session() is spark


def test_the_log_file_holds_what_spark_logs(spark: "SparkSession") -> None:
    path = log_file()
    assert path is not None

    def speak(batches):
        print("a word from the worker", file=sys.stderr)
        yield from batches

    spark.range(1).mapInArrow(speak, "id long").count()
    assert "a word from the worker" in path.read_text()


def test_a_connect_address_is_not_mixed_with_a_running_session(spark: "SparkSession") -> None:
    for asked in ({"master": "sc://somewhere"}, {"remote": "sc://somewhere"}):
        with pytest.raises(SetupError, match=r"sc://somewhere.*runs already in this process"):
            session(**asked)  # type: ignore[arg-type]


def run_python(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANABRANCH_CACHE_DIR": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (
            "config={'spark.driver.extraJavaOptions': '-XX:+UseSerialGC -XX:+UseParallelGC'}",
            "Multiple garbage collectors",
        ),
        ("master='locall'", "locall"),
    ],
    ids=["java option", "master"],
)
def test_a_spark_that_does_not_start_is_explained(
    tmp_path: Path, arguments: str, word: str
) -> None:
    ran = run_python(
        f"""
from anabranch.errors import SetupError
from anabranch.spark.session import start
from anabranch.spark.session.start import session
try:
    session({arguments})
except SetupError as error:
    print(error)
""",
        tmp_path,
    )
    assert ran.stdout.startswith("Spark did not start"), ran
    assert str(tmp_path / "cache" / "logs") in ran.stdout
    assert word in ran.stdout
    assert "anabranch doctor" in ran.stdout


@pytest.mark.process
def test_a_path_with_blanks_and_a_second_session_work(tmp_path: Path) -> None:
    folder = tmp_path / "with blank"
    folder.mkdir()
    ran = run_python(
        """
from pathlib import Path
from anabranch.spark.session import host
from anabranch.spark.session.start import session, log_file
ours, mine = host.heap_options("600m").split(), "-XX:MaxHeapFreeRatio=50"
options = {"spark.driver.extraJavaOptions": mine, "spark.ui.port": "4999"}
usual = {"spark.driver.memory": "600m", "spark.ui.port": "4998"}
spark = session(master="local[1]", log_path=Path("a log"), config=options, usual=usual)
assert spark.conf.get("spark.driver.memory") == "600m"
assert spark.conf.get("spark.ui.port") == "4999"
assert spark.conf.get("spark.driver.extraJavaOptions").split()[-3:] == [*ours, mine]
first = log_file()
spark.stop()
spark = session(master="local[1]", config={"spark.sql.shuffle.partitions": "3"})
assert spark.range(3).count() == 3
assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
assert log_file() == first
print(first, first.stat().st_size > 0)
""",
        folder,
    )
    assert ran.stdout.split("\n")[0] == f"{folder / 'a log'} True", ran.stderr


@pytest.mark.process
def test_the_options_of_spark_submit_win_over_our_defaults(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from anabranch.cli.settings import load\n"
        "spark = load(folder=__import__('pathlib').Path('/')).start_session()\n"
        "names = ['spark.master', 'spark.ui.enabled', 'spark.sql.session.timeZone']\n"
        "print('has', *map(spark.conf.get, names))\n"
    )
    import pyspark

    home = Path(pyspark.__file__).parent
    shown = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
    variables = {name: text for name, text in os.environ.items() if "ANABRANCH" not in name}
    variables |= {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
    variables |= {"JAVA_HOME": str(java_home().path), "SPARK_LOCAL_IP": "127.0.0.1"}
    ran = subprocess.run(
        [home / "bin" / "spark-submit", *shown, program],
        capture_output=True,
        text=True,
        env=variables,
        check=False,
    )
    assert "has local[1] false UTC" in ran.stdout, ran.stderr


def test_sockets_of_workers_lie_where_only_the_user_can_enter() -> None:
    settings = socket_settings()
    folder = Path(settings["spark.python.unix.domain.socket.dir"])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert socket_settings() == settings
    assert settings["spark.python.unix.domain.socket.enabled"] == "true"


def test_where_a_socket_cannot_be_a_file_spark_keeps_its_own_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("socket.AF_UNIX")
    assert socket_settings() == {}


@pytest.mark.parametrize(
    ("given", "asked", "local", "python"),
    [
        (None, {}, False, sys.executable),
        (None, {"spark.pyspark.python": "./env/bin/python"}, False, "./env/bin/python"),
        ("/opt/python", {}, False, None),
        ("/opt/python", {}, True, sys.executable),
    ],
)
def test_workers_of_a_cluster_run_the_drivers_python_unless_one_is_named(
    given: str | None,
    asked: dict[str, str],
    local: bool,
    python: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if given is None:
        monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    else:
        monkeypatch.setenv("PYSPARK_PYTHON", given)
    assert start._quiet_variables(asked, local=local).get("PYSPARK_PYTHON") == python
