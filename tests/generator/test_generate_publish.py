"""An inbox as it is written: whole files only, the same bytes for a seed, live by a clock."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import FileError, UsageError
from anabranch.generator.publish import (
    Appeared,
    FileFormat,
    Inbox,
    publish,
    summarise,
    write_inbox,
    write_whole,
)
from anabranch.generator.schedule import Schedule, timetable
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase, StreamProperties

SMALL = Workload(events=200, payload_bytes=10)


class FakeTime:
    """A clock that moves only by sleeping (and by a fixed cost of each look at it)."""

    def __init__(self, *, watch: Callable[[float], None] = lambda _: None) -> None:
        self.now = 100.0
        self.watch = watch

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds
        self.watch(self.now - 100.0)

    def clock(self) -> float:
        return self.now


def files_in(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_an_inbox_has_a_folder_per_replica_with_what_it_promises(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "inbox"
    appeared = list(write_inbox(SMALL, Inbox(path=out, names=("east", "west", "north"))))
    assert sorted(path.name for path in out.iterdir()) == ["east", "north", "west"]
    about = json.loads((out / "west" / "_replica.json").read_text())
    assert about["guarantee"] is None
    assert about["attachment"] == 1
    assert StreamProperties.from_dict(about["properties"], where="x") == SMALL.properties
    assert [file.path for file in appeared] == [
        out / name / "part-00000.parquet" for name in ("east", "west", "north")
    ]


def test_files_together_are_the_replica(tmp_path: Path) -> None:
    files = list(write_inbox(SMALL, Inbox(path=tmp_path / "in", file_rows=50)))
    for replica in range(3):
        own = [file for file in files if file.replica == f"r{replica}"]
        tables = [pq.read_table(file.path) for file in own]
        assert pa.concat_tables(tables).to_pylist() == SMALL.replica(replica).to_pylist()
        assert [table.num_rows for table in tables] == [file.elements for file in own]
        assert {table.num_rows for table in tables[:-1]} == {50}
        assert all(file.bytes == file.path.stat().st_size for file in own)
        assert ElementSchema.of(tables[0].schema, where="x") == SMALL.schema


def test_the_summary_counts_what_is_in_the_files(tmp_path: Path) -> None:
    files = list(write_inbox(SMALL, Inbox(path=tmp_path / "in", file_rows=50)))
    rows = SMALL.replica(1)["kind"].to_pylist()
    line = summarise(["r0", "r1", "r2"], files)[1]
    assert line["elements"] == len(rows)
    for kind in ("insert", "adjust", "stable"):
        assert line[f"{kind}s"] == rows.count(kind)
    assert line["files"] == -(-len(rows) // 50)


@pytest.mark.parametrize("file_format", FileFormat)
def test_the_same_seed_gives_the_same_bytes(tmp_path: Path, file_format: FileFormat) -> None:
    for name in ("one", "two"):
        inbox = Inbox(
            path=tmp_path / name / "in",
            reference=tmp_path / name / "truth",
            file_format=file_format,
            file_rows=64,
        )
        list(write_inbox(SMALL, inbox))
    first, second = files_in(tmp_path / "one"), files_in(tmp_path / "two")
    assert first == second
    assert len(first) > 12


@pytest.mark.parametrize("time", TimeType)
def test_json_lines_have_the_same_as_the_columns(tmp_path: Path, time: TimeType) -> None:
    workload = Workload(events=100, payload_bytes=7, time=time, first=1_767_225_600_000_001)
    inbox = Inbox(path=tmp_path / "in", file_format=FileFormat.JSONL)
    files = list(write_inbox(workload, inbox))
    lines = [json.loads(line) for line in files[2].path.read_text().splitlines()]
    expected = workload.replica(2)
    if time is TimeType.TIMESTAMP:
        starts = [line["start"] for line in lines if line["kind"] == "insert"]
        assert min(starts) == "2026-01-01T00:00:00.000001Z"
    for name in ("start", "end", "old_end") if time is TimeType.TIMESTAMP else ():
        texts = pa.array([line.get(name) for line in lines], pa.string())
        got = texts.cast(pa.timestamp("us", tz="UTC"))
        assert got.equals(expected[name].combine_chunks())
        lines = [{key: value for key, value in line.items() if key != name} for line in lines]
        expected = expected.drop_columns([name])
    rows = [{k: v for k, v in row.items() if v is not None} for row in expected.to_pylist()]
    assert lines == rows


def test_the_reference_is_the_true_history(tmp_path: Path) -> None:
    list(write_inbox(SMALL, Inbox(path=tmp_path / "in", reference=tmp_path / "truth")))
    table = pq.read_table(tmp_path / "truth")
    assert table.column_names == ["start", "end", "value", "data"]
    assert table.equals(SMALL.history())


def test_a_file_is_renamed_into_place_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = []
    rename = Path.rename

    def spy(source: Path, target: Path) -> Path:
        assert source.name.startswith(".")
        assert source.parent == target.parent
        assert not target.exists()
        renamed.append((target, source.read_bytes()))
        return rename(source, target)

    monkeypatch.setattr(Path, "rename", spy)
    list(write_inbox(SMALL, Inbox(path=tmp_path / "in", file_rows=100)))
    found = [path for path in (tmp_path / "in").rglob("*") if path.is_file()]
    assert sorted(path for path, _ in renamed) == sorted(found)
    assert all(path.read_bytes() == content for path, content in renamed)


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        write_whole(tmp_path / "no folder" / "x.parquet", SMALL.history())
    blocked = tmp_path / "x.parquet"
    blocked.mkdir()
    with pytest.raises(FileError, match=r"x\.parquet: cannot be written"):
        write_whole(blocked, b"x")
    assert list(tmp_path.iterdir()) == [blocked]
    write_whole(tmp_path / "file", b"x")
    with pytest.raises(FileError, match="the folder cannot be made"):
        list(write_inbox(SMALL, Inbox(path=tmp_path / "file" / "in")))


@pytest.mark.parametrize("option", ["OUT", "--reference"])
def test_a_folder_with_something_in_it_is_refused(tmp_path: Path, option: str) -> None:
    full, other = tmp_path / "full", tmp_path / "other"
    full.mkdir()
    (full / "mine").write_text("precious")
    out, reference = (full, other) if option == "OUT" else (other, full)
    with pytest.raises(UsageError, match=f"{option} .*full is there already"):
        list(write_inbox(SMALL, Inbox(path=out, reference=reference)))
    assert files_in(tmp_path) == {"full/mine": b"precious"}
    with pytest.raises(UsageError, match="mine is there already"):
        list(write_inbox(SMALL, Inbox(path=full / "mine")))


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    assert len(list(write_inbox(SMALL, Inbox(path=tmp_path)))) == 3


@pytest.mark.parametrize("reference", ["in", "in/truth", "."])
def test_a_reference_in_the_way_of_the_inbox_is_refused(tmp_path: Path, reference: str) -> None:
    inbox = Inbox(path=tmp_path / "in", reference=tmp_path / reference)
    with pytest.raises(UsageError, match="lie in one another"):
        list(write_inbox(SMALL, inbox))
    assert files_in(tmp_path) == {}


def test_a_reference_in_the_inbox_may_hide(tmp_path: Path) -> None:
    list(write_inbox(SMALL, Inbox(path=tmp_path / "in", reference=tmp_path / "in" / "_truth")))
    assert (tmp_path / "in" / "_truth" / "part-00000.parquet").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("a", "b"), "--names has 2 names"),
        (("a", "b", "a/c"), "'a/c' cannot be a folder"),
        (("a", "b", "_c"), "'_c' cannot"),
        (("a", "b", "..",), "cannot"),
        (("a", "b", ""), "'' cannot"),
        (("a", "b", " c"), "' c' cannot"),
        (("a", "b", "B"), "two replicas have one name"),
    ],
)  # fmt: skip
def test_names_that_cannot_be_folders_are_refused(
    tmp_path: Path, names: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        list(write_inbox(SMALL, Inbox(path=tmp_path / "in", names=names)))
    assert not (tmp_path / "in").exists()


def test_impossible_requests_write_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--file-rows is 0"):
        list(write_inbox(SMALL, Inbox(path=tmp_path / "in", file_rows=0)))
    crowded = Workload(case=MergeCase.R1, events=500, max_gap=0)
    with pytest.raises(UsageError, match="raise --max-gap"):
        list(write_inbox(crowded, Inbox(path=tmp_path / "in")))
    assert not (tmp_path / "in").exists()


def live(
    path: Path, time: FakeTime, schedules: dict[str, Schedule] | None = None
) -> list[tuple[float, Appeared]]:
    inbox = Inbox(path=path, file_rows=20)
    files = publish(
        SMALL, inbox, rate=100, sleep=time.sleep, clock=time.clock, schedules=schedules
    )
    return [(round(time.now - 100.0, 9), file) for file in files]


def test_live_files_appear_when_they_are_due(tmp_path: Path) -> None:
    appeared = live(tmp_path, FakeTime(), {"r1": Schedule(lag=1.5)})
    rows = len(SMALL.present(0))
    full = [0.2 * number for number in range(1, rows // 20 + 1)]
    on_time = [at for at, file in appeared if file.replica == "r0"]
    assert on_time == pytest.approx([*full, rows / 100] if rows % 20 else full)
    late = [at for at, file in appeared if file.replica == "r1"]
    assert late[:3] == pytest.approx([1.7, 1.9, 2.1])


def test_live_and_at_once_write_the_same(tmp_path: Path) -> None:
    live(tmp_path / "live", FakeTime(), {"r0": Schedule(burst=0.3, silence=(0.2, 0.7))})
    list(write_inbox(SMALL, Inbox(path=tmp_path / "once", file_rows=20)))
    assert files_in(tmp_path / "live") == files_in(tmp_path / "once")


def test_a_silent_replica_returns_with_all_it_had(tmp_path: Path) -> None:
    appeared = live(tmp_path, FakeTime(), {"r2": Schedule(silence=(0.25, 0.75))})
    total = len(SMALL.present(2)) / 100
    times = [at for at, file in appeared if file.replica == "r2"]
    assert not [at for at in times if 0.25 * total <= at < 0.75 * total - 1e-6]
    assert times.count(pytest.approx(0.75 * total)) > 3
    assert [at for at, file in appeared if file.replica == "r0" and 0.3 < at / total < 0.7]


def test_only_whole_files_are_seen_at_any_moment(tmp_path: Path) -> None:
    seen = []

    def watch(now: float) -> None:
        for path in tmp_path.rglob("*"):
            assert not path.name.startswith(".")
            if path.name.startswith("part-"):
                seen.append((now, pq.read_table(path).num_rows))

    live(tmp_path, FakeTime(watch=watch))
    assert len({now for now, _ in seen}) > 10


def test_a_publisher_that_is_stopped_leaves_whole_files(tmp_path: Path) -> None:
    time = FakeTime()
    files = publish(
        SMALL, Inbox(path=tmp_path, file_rows=20), rate=100, sleep=time.sleep, clock=time.clock
    )
    first = [next(files) for _ in range(5)]
    files.close()
    assert sorted(tmp_path.rglob("part-*")) == sorted(file.path for file in first)


def test_a_slow_writer_catches_up_without_sleeping(tmp_path: Path) -> None:
    time = FakeTime()

    def slow_clock() -> float:
        time.now += 10.0
        return time.now

    def no_sleep(seconds: float) -> None:
        pytest.fail(f"slept {seconds} s though everything was due")

    files = publish(SMALL, Inbox(path=tmp_path), rate=1000, sleep=no_sleep, clock=slow_clock)
    assert len(list(files)) == 3


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_a_rate_that_is_none_is_refused(tmp_path: Path, rate: float) -> None:
    time = FakeTime()
    with pytest.raises(UsageError, match="--rate is"):
        list(
            publish(SMALL, Inbox(path=tmp_path), rate=rate, sleep=time.sleep, clock=time.clock)
        )


def test_a_schedule_for_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no replica r7"):
        live(tmp_path, FakeTime(), {"r7": Schedule()})
    assert files_in(tmp_path) == {}


@pytest.mark.parametrize(
    "wrong",
    [{"lag": -1}, {"burst": 2}, {"hold": -1}, {"silence": (0.7, 0.2)}, {"silence": (0, 2)}],
)
def test_schedules_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Schedule(**wrong)  # type: ignore[arg-type]


@given(
    st.lists(st.floats(0.01, 5), max_size=30),
    st.floats(0, 9),
    st.floats(0, 1),
    st.tuples(st.floats(0, 1), st.floats(0, 1)),
    st.integers(0, 9),
)
def test_a_timetable_puts_off_and_never_reorders(
    steps: list[float], lag: float, burst: float, silence: tuple[float, float], seed: int
) -> None:
    plain = np.cumsum(np.array(steps, np.float64))
    low, high = sorted(silence)
    schedule = Schedule(lag=lag, burst=burst, silence=(low, high))
    due = timetable(plain, schedule, np.random.default_rng(seed))
    assert (due >= plain + lag).all()
    assert (np.diff(due) >= 0).all()
    calm = timetable(plain, Schedule(silence=(low, high)), np.random.default_rng(seed))
    if len(plain):
        assert not ((calm >= low * plain[-1]) & (calm < high * plain[-1])).any()


def test_bursts_hold_files_back_and_release_them_together() -> None:
    plain = np.arange(1, 1001) * 0.1
    due = timetable(plain, Schedule(burst=0.02, hold=1.0), np.random.default_rng(1))
    together = np.count_nonzero(np.diff(due) == 0)
    assert 50 < together < 400
    assert 0.5 < (due - plain).max() < 3
