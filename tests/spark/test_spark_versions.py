"""A Spark that is too old is rejected: when a session or a query starts."""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import anabranch as ab
from anabranch.errors import SetupError
from anabranch.spark.session import start, versions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOO_OLD = r"Anabranch needs Spark 4\.1 or newer, but the {} is 4\.0\.\d, which lacks"


def session_of(version: str) -> Any:
    return SimpleNamespace(version=version)


@pytest.fixture
def old_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "installed", lambda: "4.0.5")


@pytest.mark.usefixtures("old_client")
def test_an_old_pyspark_starts_no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        pytest.fail("Java was looked for, so Spark was about to start")

    monkeypatch.setattr(start, "java_home", never)
    with pytest.raises(SetupError, match=TOO_OLD.format("PySpark of this Python environment")):
        ab.session()


def test_an_old_server_is_rejected() -> None:
    with pytest.raises(SetupError, match=TOO_OLD.format("Spark of this session")):
        start.check_session(session_of("4.0.1"))


@pytest.mark.parametrize("version", ["4.1.0", "4.2.1", "4.3.0", "5.0.0-SNAPSHOT", "master"])
def test_others_are_not_refused(version: str) -> None:
    versions.require_release(session_of(version))


@pytest.mark.spark
@pytest.mark.filterwarnings("ignore:.*these streams have no stables:UserWarning")
def test_queries_of_a_users_own_session_are_rejected(
    spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that was not started by us is looked at before anything is written."""
    rows = spark.createDataFrame([(1, "a")], "ts bigint, name string")
    rows.write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(rows.schema).parquet(str(tmp_path / "in"))
    monkeypatch.setattr(versions, "installed", lambda: "4.0.5")
    for df in (rows, stream):
        merged = ab.merge(ab.events(df, start="ts", lifetime=5), lanes=1, gaps=True)
        with pytest.raises(SetupError, match=r"needs Spark 4\.1 or newer"):
            merged.elements()
    with pytest.raises(SetupError, match=r"needs Spark 4\.1 or newer"):
        merged.start(checkpoint=tmp_path / "ck", output=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
