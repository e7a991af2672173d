"""A folder sink: readers see committed triggers only, each row once, at every moment."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import FileError
from anabranch.sinks import folder as folder_module
from anabranch.sinks.contract import Sink
from anabranch.sinks.folder import FolderSink, stage
from anabranch.sinks.function import FunctionSink
from anabranch.sinks.published import Ledger, committed_files, missing, pieces_in, tail_of


def table(*numbers: int) -> pa.Table:
    return pa.table({"kind": ["insert"] * len(numbers), "n": list(numbers)})


def read(files: Sequence[Path]) -> list[int]:
    return sorted(n for file in files for n in pq.read_table(file)["n"].to_pylist())


def published(folder: Path) -> list[int]:
    """What any reader sees: all files that are there are Parquet files."""
    return read(list(folder.iterdir())) if folder.exists() else []


def put(sink: FolderSink, trigger: int, *numbers: int) -> None:
    """One trigger with a lane for each number, up to Spark's commit."""
    files = {stage(sink.folder, [table(n)]): lane for lane, n in enumerate(numbers)}
    if files:
        sink.write(trigger, None, files)
    sink.commit(trigger)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def sink(place: Path, tmp_path: Path) -> FolderSink:
    return FolderSink(str(place), "abc", str(tmp_path / "ledger.json"))


def later(sink: FolderSink) -> FolderSink:
    return FolderSink(sink.folder, sink.run, sink.ledger, roll=3600)


def test_rows_are_published_when_spark_has_committed_them(
    sink: FolderSink, place: Path
) -> None:
    sink.open("run")
    put(sink, 0, 1, 2)
    assert published(place) == []
    assert committed_files(place) == []
    put(sink, 0, 2, 3)  # the trigger is repeated
    sink.committed(0)
    assert published(place) == [2, 3]
    assert [piece.name for piece in pieces_in(place)] == [
        "part-abc-000000000000-000000000000-001-of-001.parquet"
    ]


def test_a_repeated_trigger_without_rows_leaves_none(sink: FolderSink, place: Path) -> None:
    put(sink, 0, 1)
    sink.open("run")
    put(sink, 0)
    sink.committed(0)
    assert published(place) == []
    assert missing(place, Ledger.read(Path(str(sink.ledger))) or Ledger(), 0) == []


def test_small_triggers_become_one_file(sink: FolderSink, place: Path) -> None:
    slow = later(sink)
    for trigger in range(5):
        put(slow, trigger, *([] if trigger == 2 else [10 * trigger, 10 * trigger + 1]))
        slow.committed(trigger)
    assert published(place) == []
    assert read(committed_files(place)) == [0, 1, 10, 11, 30, 31, 40, 41]
    slow.publish()
    assert published(place) == read(committed_files(place))
    assert [(piece.first, piece.last) for piece in pieces_in(place)] == [(0, 4)]
    assert {entry.name for entry in tail_of(place).iterdir()} <= {"staged", ".lock"}


def test_large_files_are_published_as_they_are(
    sink: FolderSink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "LARGE_FILE", 1)
    put(sink, 0, 1, 2)
    written = {file.stat().st_ino for file in tail_of(place).rglob("lane-*")}
    sink.committed(0)
    assert {file.stat().st_ino for file in place.iterdir()} == written
    assert [(piece.piece, piece.pieces) for piece in pieces_in(place)] == [(1, 2), (2, 2)]


def test_a_large_tail_is_rolled_before_its_time(
    sink: FolderSink, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder_module, "LARGE_TAIL", 1)
    put(later(sink), 0, 1)
    later(sink).committed(0)
    assert published(place) == [1]


def test_without_links_files_are_renamed(sink: FolderSink, place: Path) -> None:
    put(sink, 0, 1, 2)
    with mock.patch.object(os, "link", side_effect=OSError("no links on this disk")):
        sink.committed(0)
    assert published(place) == [1, 2]


def test_a_published_trigger_is_not_written_again(sink: FolderSink, place: Path) -> None:
    """Spark's own note of it was lost, and it runs the trigger a second time."""
    put(sink, 0, 1)
    sink.committed(0)
    put(sink, 0, 1)
    sink.committed(0)
    put(sink, 1, 2)
    sink.committed(1)
    assert published(place) == [1, 2]


def test_what_an_aborted_start_staged_is_never_read(sink: FolderSink, place: Path) -> None:
    sink.write(3, None, {stage(sink.folder, [table(1)]): 0})
    stage(sink.folder, [table(2)])
    sink.open("run")
    sink.commit(3)
    sink.committed(3)
    assert published(place) == []


def test_a_staged_file_that_the_driver_does_not_see_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="not on a disk that all machines share"):
        FolderSink(str(tmp_path)).write(1, None, {"elsewhere.parquet": 0})


def lose(place: Path, sink: FolderSink, committed: int) -> list[str]:
    ledger = Ledger.read(Path(str(sink.ledger)))
    assert ledger is not None
    return missing(place, ledger, committed)


def test_every_file_that_is_gone_is_missed(sink: FolderSink, place: Path) -> None:
    for trigger in range(4):
        put(sink, trigger, trigger)
        sink.committed(trigger)
    slow = later(sink)
    put(slow, 4, 4)
    slow.committed(4)
    put(slow, 5, 5)  # not committed: Spark repeats it
    assert lose(place, sink, 4) == []
    for file in sorted(place.iterdir()):
        file.rename(place.parent / "held")
        [lost] = lose(place, sink, 4)
        assert file.name[:22] in lost.replace("*", "abc")
        (place.parent / "held").rename(file)
    waiting = tail_of(place) / "committed-000000000004"
    waiting.rename(place.parent / "held")
    assert lose(place, sink, 4) == [str(waiting)]
    place.rename(place.parent / "other")
    assert len(lose(place, sink, 4)) == 2


def test_a_sink_that_is_added_later_owes_nothing_from_before(
    sink: FolderSink, place: Path
) -> None:
    put(sink, 7, 1)
    sink.committed(7)
    assert lose(place, sink, 7) == []
    assert pieces_in(place)[0].first == 7


def test_retired_files_are_not_missed(sink: FolderSink, place: Path, tmp_path: Path) -> None:
    for trigger in range(4):
        put(sink, trigger, trigger)
        sink.committed(trigger)
    files = [place / piece.name for piece in pieces_in(place)]
    os.utime(files[0], (1, 1))
    os.utime(files[1], (2, 2))
    os.utime(files[3], (3, 3))  # later than one that is young
    old = sink.older_than(100.0)
    assert [piece.last for piece in old] == [0, 1]
    sink.retire(old[:1], tmp_path / "archive")
    assert published(tmp_path / "archive") == [0]
    sink.retire(old[1:])
    assert published(place) == [2, 3]
    assert lose(place, sink, 3) == []
    files[2].unlink()
    assert len(lose(place, sink, 3)) == 1


def test_a_day_of_triggers_leaves_few_files(sink: FolderSink, place: Path) -> None:
    """Every twentieth trigger rolls: files are rolls, and the tail is what waits."""
    triggers, each = 200, 20
    for trigger in range(triggers):
        now = sink if trigger % each == each - 1 else later(sink)
        put(now, trigger, trigger)
        now.committed(trigger)
        assert len(list(place.iterdir()) if place.exists() else []) == (trigger + 1) // each
        waits = [one for one in tail_of(place).iterdir() if one.name.startswith("committed")]
        assert len(waits) <= 2 * each
    assert published(place) == list(range(triggers))
    assert len(Path(str(sink.ledger)).read_text()) < 100


class KilledError(Exception):
    """The driver dies here."""


@contextmanager
def killed_after(calls: int, *, links: bool) -> Iterator[None]:
    """Every change of the disk counts; the one after that number does not happen."""
    left = iter(range(calls))

    def no_link(*_: Any) -> None:
        message = "no links on this disk"
        raise OSError(message)

    def counted(function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            if next(left, None) is None:
                raise KilledError
            return function(*args, **options)

        return call

    changed = {name: counted(getattr(os, name)) for name in ("rename", "link", "unlink")}
    if not links:
        changed["link"] = no_link
    with mock.patch.multiple(os, **changed):
        yield


TRIGGERS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 99), max_size=3),
        st.integers(0, 12),
        st.booleans(),
    ),
    min_size=1,
    max_size=6,
)


@given(triggers=TRIGGERS, large=st.booleans(), links=st.booleans())
def test_readers_see_each_committed_row_once_whatever_is_killed(
    triggers: list[tuple[list[int], int, bool]], *, large: bool, links: bool
) -> None:
    """Each trigger: its rows, after how many changes the driver dies, whether it is rolled.

    A driver that dies while it writes repeats the trigger, with its rows in another order; one
    that dies while it publishes opens the folder again.
    """
    with (
        TemporaryDirectory() as name,
        mock.patch.object(folder_module, "LARGE_FILE", 1 if large else 1 << 20),
    ):
        place, ledger = Path(name, "out"), str(Path(name, "ledger.json"))
        expected: list[int] = []
        for number, (rows, kills_after, rolls) in enumerate(triggers):
            sink = FolderSink(str(place), "abc", ledger, 0 if rolls else 3600)
            try:
                with killed_after(kills_after, links=links):
                    put(sink, number, *rows)
            except KilledError:
                assert set(published(place)) <= set(expected)
                sink.open("run")
                put(sink, number, *reversed(rows))
            expected += rows
            assert len(published(place)) <= len(expected) - len(rows)
            try:
                with killed_after(kills_after, links=links):
                    sink.committed(number)
            except KilledError:
                sink.open("run")
            sink.committed(number)
            assert read(committed_files(place)) == sorted(expected)
            known = Ledger.read(Path(ledger))
            assert known is None or missing(place, known, number) == []
        sink.publish()
        assert published(place) == sorted(expected)


def test_both_are_sinks_and_a_plain_function_is_none(tmp_path: Path) -> None:
    calls: list[tuple[object, int]] = []
    sink = FunctionSink(lambda rows, trigger: calls.append((rows, trigger)))
    assert isinstance(sink, Sink)
    assert isinstance(FolderSink(str(tmp_path)), Sink)
    assert not isinstance(calls.append, Sink)
    sink.write(4, "rows", {})
    sink.commit(4)
    assert calls == [("rows", 4)]
