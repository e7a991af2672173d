"""What is special on Spark Connect; `test_connect.py` runs it in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from merge_place import Place

import anabranch as ab
from anabranch.errors import InputError
from anabranch.spark.progress import Totals
from anabranch.spark.session.connect import is_connect
from anabranch.spark.session.start import check_session, session

pytestmark = pytest.mark.spark

# What a process that started a server has in its environment, and another has not.
REMOTE = {"SPARK_LOCAL_REMOTE", "SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED"}


@pytest.fixture(autouse=True)
def on_connect(spark: Any) -> None:
    assert os.environ["ANABRANCH_SPARK"] == "connect"
    assert is_connect(spark)


def test_a_session_that_runs_is_used_again(spark: Any) -> None:
    assert session(remote="local[2]") is spark
    assert session() is spark
    check_session(spark)


def test_each_trigger_is_reported_to_who_started_it(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.generate(replicas=2)
    seen: list[dict[str, Any]] = []

    def report(totals: Totals) -> None:
        seen.append(json.loads(json.dumps(totals.to_dict())))

    query = place.prepare(lanes=2).start(spark, once=True, on_trigger=report)
    query.wait()
    assert [one["triggers"] for one in seen] == list(range(1, len(seen) + 1))
    assert seen[-1]["rows"] == query.totals.rows > 0
    assert query.totals.adds_up
    assert place.check().ok


def test_what_a_callback_raises_stops_the_query(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.generate(replicas=2)

    def fail(totals: Totals) -> None:
        raise InputError(f"enough after {totals.triggers}")

    query = place.prepare(lanes=2).start(spark, on_trigger=fail)
    with pytest.raises(InputError, match="enough after 1"):
        query.wait()


def test_a_sink_that_is_a_function_runs_beside_the_server(spark: Any, tmp_path: Path) -> None:
    here, called = os.getpid(), tmp_path / "called"
    called.mkdir()

    def note(df: Any, trigger: int) -> None:
        (called / str(trigger)).write_text(f"{os.getpid()} {df.count()}")

    rows = [("insert", 1, 5, 1, "a"), ("stable", 9, None, 2, None)]
    schema = "kind string, start long, end long, seq long, name string"
    spark.createDataFrame(rows, schema).coalesce(1).write.parquet(f"{tmp_path}/east")
    stream = spark.readStream.schema(schema).parquet(f"{tmp_path}/east")
    seen: list[int] = []
    merged = ab.merge(ab.elements(stream, name="east"), lanes=1)
    run = merged.start(
        tmp_path / "ck",
        final=note,
        once=True,
        on_trigger=lambda totals: seen.append(totals.rows),
    )
    run.wait()
    assert [path.name for path in called.iterdir()] == ["0"]
    process, count = (called / "0").read_text().split()
    assert (int(process) != here, count) == (True, "1")
    assert seen == [2]


@pytest.mark.deep
def test_the_command_on_a_server_that_runs(spark: Any, tmp_path: Path) -> None:
    """The server of this session, as another process sees it: by its address alone."""
    place = Place(tmp_path)
    place.generate(replicas=2)
    words = ["merge", str(place.inbox), "--once", "--output", str(place.output)]
    words += ["--checkpoint", str(place.checkpoint), "--master", "sc://localhost", "--json"]
    clean = {name: value for name, value in os.environ.items() if name not in REMOTE}
    ran = subprocess.run(
        [sys.executable, "-m", "anabranch", *words],
        capture_output=True,
        text=True,
        env=clean,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1])["adds_up"]
    assert place.check().ok
