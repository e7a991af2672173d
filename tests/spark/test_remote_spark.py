"""A checkpoint that only Spark reaches: the run and its records by Spark's readers and writers.

Here the folder is on the disk, and nothing but Spark looks at it; `test_object_store_deep` has
one in S3.
"""

from pathlib import Path
from time import sleep
from typing import Any

import pytest
from test_heartbeats_spark import FIRST, copies, final, put, wait_until

import anabranch as ab
from anabranch.errors import FileError, StateError, UsageError
from anabranch.spark.checkpoint import remote
from anabranch.spark.checkpoint.remote import RemoteFolder
from anabranch.spark.checkpoint.run_record import Run
from anabranch.spark.run import prepare, running
from anabranch.spark.write import reports

pytestmark = pytest.mark.spark

RUN = Run("abcdef", 2, "r3", "bigint", ("n: int64",), ("east",), key=("n",))


def test_a_run_is_recorded_once_and_compared_with_what_spark_committed(
    spark: Any, tmp_path: Path
) -> None:
    folder = RemoteFolder(spark, f"file://{tmp_path}/ck")
    assert remote.find(folder) is None
    assert remote.read_totals(folder).triggers == 0
    remote.record(RUN, folder)
    assert remote.find(folder) == RUN
    with pytest.raises(Exception, match="PATH_ALREADY_EXISTS"):
        remote.record(RUN, folder)
    for log in ("offsets", "commits"):
        (tmp_path / "ck" / log).mkdir()
        (tmp_path / "ck" / log / "9").write_text("v1")
        (tmp_path / "ck" / log / "10").write_text("v1")
    assert remote.last_commit(folder) == 10
    with pytest.raises(StateError, match="committed trigger 10, but its records are not in"):
        remote.find(folder)
    for trigger in (9, 10, 11):
        rows = spark.createDataFrame([(0, "{}")], "lane int, record string").coalesce(1)
        rows.write.parquet(f"{folder.uri}/progress/trigger-{trigger:012d}")
    assert list(folder.records()) == [9, 10, 11]
    with pytest.raises(StateError, match=r"its last trigger is 10, but .* of trigger 11"):
        remote.find(folder)


def test_a_checkpoint_of_another_user_is_rejected(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "0").write_text("v1")
    with pytest.raises(StateError, match=r"a checkpoint that is not of a run of ours"):
        remote.find(RemoteFolder(spark, f"file://{tmp_path}"))


def test_what_is_overwritten_holds_one_text(spark: Any, tmp_path: Path) -> None:
    folder = RemoteFolder(spark, f"file://{tmp_path}")
    assert folder.lines("note") is None
    for text in ("first", "second"):
        folder.write("note", text, replace=True)
    assert folder.lines("note") == ["second"]


def test_outputs_and_inboxes_on_an_object_store_are_rejected_by_name(
    spark: Any, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=r"an inbox is a folder on a disk .* this is a URI"):
        ab.inbox("s3a://bucket/in")
    (tmp_path / "in").mkdir()
    columns = "id bigint, ts bigint"
    source = spark.readStream.schema(columns).parquet(str(tmp_path / "in"))
    with pytest.warns(UserWarning, match="no stables"):
        merged = ab.merge(ab.events(source, start="ts", lifetime=5), lanes=1)
    with pytest.raises(UsageError, match=r"output=s3a:/bucket/out is not a local path"):
        merged.start(tmp_path / "ck", output="s3a://bucket/out")
    with pytest.raises(
        UsageError, match=r"s3a://bucket/ck is not a local path, but output= needs"
    ):
        merged.start("s3a://bucket/ck", output=tmp_path / "out")


def test_time_passes_also_without_a_control_log(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of two sources is silent: ticks of the query's own source let time pass."""

    known = reports.local

    def far(path: str) -> Path | None:
        return None if path.startswith("file://") else known(path)

    for module in (prepare, running, reports):
        monkeypatch.setattr(module, "local", far)
    at = int(FIRST.timestamp()) * 1_000_000
    put(tmp_path / "east", 0, [(0, "a"), (30, "b")])
    put(tmp_path / "west", 0, [(0, "a")])
    beats = {"disorder": "10 seconds", "idle_after": "3 seconds"}
    merged = ab.merge(*copies(spark, tmp_path, **beats), lanes=2)
    query = merged.start(f"file://{tmp_path}/ck", final=tmp_path / "final")
    try:
        assert not (tmp_path / "ck" / "control").exists()
        wait_until(query, lambda totals: totals.frontier == at + 30_000_001)
        triggers = query.totals.triggers
        sleep(4)
        assert query.totals.triggers == triggers  # nothing is due
    finally:
        query.stop()
    assert query.totals.adds_up
    assert final(spark, tmp_path / "final") == ["a", "b"]
