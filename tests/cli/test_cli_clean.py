"""Cleaning lists first, removes only on request, and keeps what a running process uses."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from anabranch.cli import clean
from anabranch.errors import FileError, UsageError
from anabranch.sinks.folder import stage
from anabranch.sinks.published import Ledger, missing
from anabranch.sources.files import look
from anabranch.sources.pieces import FilePiece
from anabranch.spark.checkpoint.consumed import removable
from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.checkpoint.run_record import Run, read, write
from anabranch.spark.run.prepare import Folders
from anabranch.spark.run.watch import InboxWatch, look_into

GONE = 2**22 + 1  # above the largest process id of Linux and macOS


@pytest.fixture
def littered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    paths = {
        "home": cache / "java" / "17-abc" / "bin" / "java",
        "log": cache / "logs" / f"spark-20260101-000000-{GONE}.log",
        "own log": cache / "logs" / f"spark-20260101-000000-{os.getpid()}.log",
        "temporary": temporary / f"anabranch-demo-{GONE}-ab12" / "file",
        "own temporary": temporary / f"anabranch-demo-{os.getpid()}-cd34" / "file",
        "young": temporary / "anabranch-demo-x1y2" / "file",
        "foreign": temporary / "another_user" / "file",
    }
    for path in paths.values():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    monkeypatch.setenv("ANABRANCH_CACHE_DIR", str(cache))
    monkeypatch.setattr(clean.tempfile, "gettempdir", lambda: str(temporary))
    return paths


def invoke(*arguments: str) -> str:
    return CliRunner().invoke(clean.command, list(arguments), catch_exceptions=False).stdout


def test_nothing_goes_without_yes(littered: dict[str, Path]) -> None:
    shown = invoke()
    assert "nothing was removed" in shown
    assert "17-abc" in shown
    assert all(path.exists() for path in littered.values())


def test_yes_removes_exactly_what_was_listed(littered: dict[str, Path]) -> None:
    answer = json.loads(invoke("--json"))
    assert answer["removed"] is False
    assert [(row["kind"], row["bytes"]) for row in answer["leftovers"]] == [
        ("java home", 5),
        ("spark log", 5),
        ("temporary", 5),
    ]
    assert json.loads(invoke("--yes", "--json")) == {**answer, "removed": True}
    left = {name for name, path in littered.items() if path.exists()}
    assert left == {"own log", "own temporary", "young", "foreign"}
    assert "nothing was left behind" in invoke()


def test_what_does_not_name_its_owner_goes_when_it_is_old(littered: dict[str, Path]) -> None:
    young = littered["young"].parent
    assert str(young) not in invoke()
    os.utime(young, (0, 0))
    assert str(young) in invoke("--yes")
    assert not young.exists()


def test_a_link_is_removed_and_not_followed(littered: dict[str, Path], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("x")
    link = littered["home"].parents[2] / "link"
    link.symlink_to(outside)
    invoke("--yes")
    assert not link.is_symlink()
    assert (outside / "precious").exists()


def test_old_files_of_an_output_go_by_command_alone(tmp_path: Path) -> None:
    output, checkpoint = tmp_path / "out", tmp_path / "ck"
    run = Run("abcdefgh", 2, "r3", "bigint", ("n: int64",), ("east",), has_output=True)
    for folder in (output, checkpoint):
        write(run, folder)
    sink = Folders(run.run[:8], checkpoint, 0.0).sink(
        str(output / "elements"), "output-elements"
    )
    for trigger in (0, 1):
        sink.write(trigger, None, {stage(sink.folder, [pa.table({"n": [trigger]})]): 0})
        sink.commit(trigger)
        sink.committed(trigger)
    first, second = sorted(sink.place.iterdir())
    os.utime(first, (1, 1))
    asked = ("--output", str(output), "--checkpoint", str(checkpoint), "--older", "7 days")
    answer = json.loads(invoke(*asked, "--json"))
    assert [row["path"] for row in answer["leftovers"]] == [str(first)]
    assert first.exists()
    moved = invoke(*asked, "--archive", str(tmp_path / "old"), "--yes")
    assert moved.endswith(f"moved to {tmp_path / 'old'}\n")
    assert sorted(sink.place.iterdir()) == [second]
    assert [file.name for file in (tmp_path / "old" / "elements").iterdir()] == [first.name]
    ledger = Ledger.read(Path(str(sink.ledger)))
    assert ledger is not None
    assert missing(sink.place, ledger, 1) == []
    refused = CliRunner().invoke(clean.command, ["--output", str(output)])
    assert "needs --checkpoint" in refused.output


INBOX_SCHEMA = pa.schema(
    [("kind", pa.string()), ("start", pa.int64()), ("end", pa.int64()), ("n", pa.int32())]
)


class Consumed:
    """An inbox with a run that has consumed the files of its first looks."""

    def __init__(self, root: Path) -> None:
        self.inbox, self.checkpoint = root / "inbox", root / "ck"
        columns = ("n: int64",)
        run = Run("abcdefgh", 2, "r3", "bigint", columns, ("east",), (str(self.inbox),))
        write(run, self.checkpoint)
        (self.inbox / "east").mkdir(parents=True)

    @property
    def watch(self) -> InboxWatch:
        return InboxWatch(self.inbox, ControlLog(self.checkpoint / "control"), ("east",))

    def look(self, *names: str, schema: pa.Schema = INBOX_SCHEMA) -> None:
        """These files come, and the driver writes them into the log for one trigger."""
        for name in names:
            rows = {"kind": ["insert"], "start": [1], "end": [2], "n": [3]}
            file = self.inbox / "east" / name
            if file.suffix == ".parquet":
                pq.write_table(pa.table(rows, schema), file)
            else:
                file.write_text(json.dumps({name: one[0] for name, one in rows.items()}))
        look_into([self.watch])

    def consume(self, triggers: int) -> None:
        """Spark moves the first files of the log away."""
        target = self.checkpoint / "consumed"
        target.mkdir(exist_ok=True)
        for file in sorted((self.checkpoint / "control").glob("[0-9]*"))[:triggers]:
            file.rename(target / file.name)

    def clean(self, *words: str) -> list[str]:
        asked = ("--inbox", str(self.inbox), "--checkpoint", str(self.checkpoint), "--json")
        found = json.loads(invoke(*asked, *words))["leftovers"]
        return [Path(row["path"]).name for row in found]

    @property
    def there(self) -> list[str]:
        return sorted(file.name for file in (self.inbox / "east").iterdir())


@pytest.fixture
def consumed(tmp_path: Path) -> Consumed:
    return Consumed(tmp_path)


def test_files_go_that_spark_needs_no_more_but_the_last_of_a_replica(
    consumed: Consumed, tmp_path: Path
) -> None:
    for name in ("0.parquet", "1.parquet", "2.parquet", "3.parquet"):
        consumed.look(name)
    assert consumed.clean() == []
    consumed.consume(2)
    assert consumed.clean() == ["0.parquet", "1.parquet"]
    assert consumed.clean("--older", "1 day") == []
    consumed.consume(4)
    listed = consumed.clean("--archive", str(tmp_path / "old"), "--yes")
    assert listed == ["0.parquet", "1.parquet", "2.parquet"]
    assert consumed.there == ["3.parquet"]
    archived = sorted(file.name for file in (tmp_path / "old" / "east").iterdir())
    assert archived == listed
    ControlLog(consumed.checkpoint / "control").compact()
    consumed.watch.require_unchanged()
    with pytest.raises(FileError, match="a file name is used once"):
        consumed.look("0.parquet")


def test_a_file_of_which_a_piece_waits_stays(consumed: Consumed) -> None:
    consumed.look("0.parquet", "1.parquet")
    log = ControlLog(consumed.checkpoint / "control")
    file = consumed.inbox / "east" / "0.parquet"
    facts = file.stat().st_size, file.stat().st_mtime_ns // 1_000_000
    log.add_piece("east", "east/0.parquet", facts, FilePiece(1, 2, 1, 10))
    consumed.look("2.parquet")
    consumed.consume(1)
    assert consumed.clean() == ["1.parquet"]


def test_a_file_without_which_the_columns_were_others_stays(consumed: Consumed) -> None:
    wide = pa.schema([*list(INBOX_SCHEMA)[:3], ("n", pa.int64())])
    for name, schema in (("0", INBOX_SCHEMA), ("1", wide), ("2", wide), ("3", INBOX_SCHEMA)):
        consumed.look(f"{name}.parquet", schema=schema)
    before = look(consumed.inbox).schema
    consumed.consume(4)
    assert consumed.clean("--yes") == ["1.parquet"]
    assert look(consumed.inbox).schema == before


def test_a_file_that_was_replaced_is_left_to_the_merge(consumed: Consumed) -> None:
    consumed.look("0.json", "1.json", "2.json")
    consumed.consume(1)
    first = consumed.inbox / "east" / "0.json"
    first.write_text(first.read_text() + "\n" + first.read_text())
    assert consumed.clean() == ["1.json"]


def test_an_interrupted_archive_is_completed_and_nothing_else_overwritten(
    consumed: Consumed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumed.look("0.parquet", "1.parquet", "2.parquet")
    consumed.consume(1)
    archive = tmp_path / "old" / "east"
    archive.mkdir(parents=True)
    first = consumed.inbox / "east" / "0.parquet"
    shutil.copy2(first, archive / first.name)  # copied, and not yet removed
    (archive / "1.parquet").write_text("of another inbox")
    with pytest.raises(UsageError, match="nothing is overwritten"):
        consumed.clean("--archive", str(tmp_path / "old"), "--yes")
    assert consumed.there == ["1.parquet", "2.parquet"]
    (archive / "1.parquet").unlink()
    renamed, copied = Path.replace, []

    def replace(self: Path, target: Path) -> Path:
        if self.suffix != ".part":
            raise OSError(errno.EXDEV, "another file system")
        copied.append(self.name)
        return renamed(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    consumed.clean("--archive", str(tmp_path / "old"), "--yes")
    assert copied == [".1.parquet.part"]
    assert sorted(file.name for file in archive.iterdir()) == ["0.parquet", "1.parquet"]
    assert consumed.there == ["2.parquet"]


def test_after_an_upgrade_the_log_of_the_new_generation_decides(
    consumed: Consumed, tmp_path: Path
) -> None:
    consumed.look("0.parquet")
    consumed.look("1.parquet")
    consumed.consume(1)
    log = ControlLog(consumed.checkpoint / "control")
    log.carry_over(consumed.checkpoint / "generation-1" / "control", 1)
    run = read(consumed.checkpoint)
    assert run is not None
    write(replace(run, generation=1), consumed.checkpoint)
    shutil.rmtree(consumed.checkpoint / "control")
    shutil.rmtree(consumed.checkpoint / "consumed")
    assert [path.name for path in removable(consumed.inbox, consumed.checkpoint, run)] == []
    assert consumed.clean("--yes") == ["0.parquet"]
    assert consumed.there == ["1.parquet"]


def test_an_inbox_is_cleaned_by_its_own_run_alone(consumed: Consumed, tmp_path: Path) -> None:
    consumed.look("0.parquet")
    other = tmp_path / "other"
    other.mkdir()
    words = ("--inbox", str(other), "--checkpoint", str(consumed.checkpoint))
    with pytest.raises(UsageError, match="does not read this inbox, but"):
        invoke(*words)
    refused = CliRunner().invoke(clean.command, ["--inbox", str(other)])
    assert "--inbox needs --checkpoint" in refused.output
    refused = CliRunner().invoke(clean.command, [*words, "--output", str(other)])
    assert "name one of them" in refused.output
