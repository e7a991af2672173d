"""`anabranch upgrade` without Spark: what it refuses, and what is done already."""

import json
from pathlib import Path

from click.testing import CliRunner

from anabranch.cli.main import cli
from anabranch.errors import UsageError
from anabranch.spark.checkpoint.run_record import Run, write

RUN = Run("r", 2, "r3", "bigint", (), ("a",), inboxes=("/in",), generation=1, first_trigger=7)


def upgrade(*words: object) -> tuple[str, BaseException | None]:
    found = CliRunner().invoke(cli, ["upgrade", *map(str, words)])
    return found.stdout, found.exception


def test_as_many_lanes_as_it_has_is_done_already(tmp_path: Path) -> None:
    """So it may be called again after a kill."""
    write(RUN, tmp_path)
    printed, error = upgrade(tmp_path, "--lanes", 2)
    assert error is None
    assert printed == f"{tmp_path}: the run is like that already; nothing to do\n"
    printed, _ = upgrade(tmp_path, "--lanes", 2, "--json")
    assert json.loads(printed) == {
        "checkpoint": str(tmp_path),
        "was": 2,
        "lanes": 2,
        "events": 0,
        "triggers": 7,
        "added": [],
        "dropped": [],
    }


def test_what_is_no_checkpoint_is_refused_before_spark_starts(tmp_path: Path) -> None:
    _, error = upgrade(tmp_path / "nowhere", "--lanes", 2)
    assert isinstance(error, UsageError)
    assert "is not the checkpoint of a merge" in str(error)
    assert not list(tmp_path.iterdir())


def test_a_column_has_a_name_and_a_type(tmp_path: Path) -> None:
    write(RUN, tmp_path)
    found = CliRunner().invoke(cli, ["upgrade", str(tmp_path), "--add-column", "price"])
    assert found.exit_code == 2
    assert "expected NAME:TYPE, such as price:double" in found.output
    _, error = upgrade(tmp_path)
    assert isinstance(error, UsageError)
    assert "name lanes, or columns to add or to drop" in str(error)
