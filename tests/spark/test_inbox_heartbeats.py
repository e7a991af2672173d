"""Heartbeats of an inbox of plain rows, from looks into folders to lanes, without Spark."""

import json
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes_driver import Runtime
from test_plain_lanes import put, trigger

import anabranch as ab
from anabranch.errors import SchemaError, UsageError
from anabranch.model.element import Stable
from anabranch.model.history import replay
from anabranch.model.time import FOREVER
from anabranch.spark.checkpoint.control_log import ControlLog, groups
from anabranch.spark.query.asked import Asked
from anabranch.spark.query.merge import build
from anabranch.spark.query.merged import Merged
from anabranch.spark.run import watch as watching
from anabranch.spark.run.prepare import prepare
from anabranch.spark.run.ticks import declared, is_due

SECOND = 1_000_000


class Place:
    """Inboxes, their log, their lanes, and a wall clock that is set by hand."""

    def __init__(
        self, *folders: Path, lanes: int = 2, empty: bool = True, **beats: object
    ) -> None:
        made = []
        for folder in folders:
            names = ("east", "west") if folder is folders[0] else ("north",)
            for name in names if empty else ():
                put(folder / name, [], "0.parquet")
            made.append(ab.inbox(folder, start="at", lifetime=5).heartbeats(**beats))  # type: ignore[arg-type]
        self.folder, self.merged = folders[0], build(made, Asked(lanes=lanes))
        self.runtime = Runtime(self.merged.spec(final=True))
        self.log, self.taken, self.now = ControlLog(None), 0, 1000 * SECOND

    def look(self, seconds: int = 1, limit: int = 1 << 20, *, polled: bool = True) -> int:
        """A look into the inbox some seconds later, and the triggers that follow from it."""
        self.now += seconds * SECOND
        watches = self.merged.watches(self.log, self.merged.copies.founders, limit)
        due = polled and is_due(self.now / SECOND, self.runtime.totals, self.log)
        with mock.patch.object(watching, "_now", return_value=self.now):
            watching.look_into(watches, due=due)
        entries = self.log.entries[self.taken :]
        self.taken = len(self.log.entries)
        found = list(groups(entries, limit))
        for group in found:
            trigger(self.runtime, self.merged, group)
        return len(found)

    @property
    def stables(self) -> list[float]:
        return [one.time for one in self.runtime.output() if isinstance(one, Stable)]


def test_disorder_makes_rows_final(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", disorder=10)
    put(place.folder / "east", [(100, "a"), (95, "b")], "1.parquet")
    put(place.folder / "west", [(100, "a"), (130, "c")], "1.parquet")
    place.look()
    assert place.stables == [90], "of the slowest replica, 10 behind its greatest"
    put(place.folder / "east", [(130, "c"), (140, "d")], "2.parquet")
    place.look()
    assert place.stables == [90, 120]
    assert sorted(one.start for one in place.runtime.final()) == [95, 100]
    put(place.folder / "west", [(99, "z")], "2.parquet")
    place.look()
    assert place.runtime.totals.bucket("late") == 1
    assert place.runtime.totals.adds_up


def test_a_replica_without_files_is_not_waited_for(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", disorder=10, idle_after="1 minute")
    put(place.folder / "east", [(100, "a")], "1.parquet")
    place.look()
    assert place.stables == [], "west promises nothing yet"
    for n in range(30):
        put(place.folder / "east", [(200 + n, "b")], f"e{n}.parquet")
        place.look(5)
    assert place.stables[-1] > 180, "west has been idle for a minute"
    looks = [place.look(5) for _ in range(60)]
    assert 0 < sum(looks) < 40, "ticks without files, until all are idle"
    assert looks[-10:] == [0] * 10
    assert place.stables[-1] == 230, "all idle: the greatest time"


def test_rows_that_wait_in_the_log_are_no_silence(tmp_path: Path) -> None:
    """A backlog in many triggers: no time passes before all of a look was taken."""
    place = Place(tmp_path / "in", disorder=0, idle_after="1 second")
    for n in range(6):
        put(place.folder / "east", [(10 * n, "a")], f"{n + 1}.parquet")
        put(place.folder / "west", [(10 * n, "a")], f"{n + 1}.parquet")
    assert place.look(100, limit=1) > 6
    assert place.runtime.totals.bucket("late") == 0
    assert len({one.start for one in place.runtime.final()}) == 5


@given(st.integers(0, 2**32).map(Random), st.integers(1, 2000), st.integers(1, 3))
def test_no_row_is_late_while_bounds_hold(chance: Random, limit: int, lanes: int) -> None:
    """Whatever the looks, pieces and lanes: stables are true, rows are in one bucket."""
    with TemporaryDirectory() as folder:
        place = Place(Path(folder), lanes=lanes, disorder=10)
        reached = dict.fromkeys(("east", "west"), 0)
        for n in range(1, chance.randrange(2, 7)):
            for name in reached:
                rows = []
                for _ in range(chance.randrange(4)):
                    time = max(0, reached[name] + chance.randrange(-10, 15))
                    reached[name] = max(reached[name], time)
                    rows.append((time, f"{name}{n}"))
                if rows:
                    put(place.folder / name, rows, f"{n}.parquet")
            place.look(chance.randrange(1, 90), limit)
        totals = place.runtime.totals
        assert totals.adds_up
        assert totals.bucket("late") == totals.bucket("violation") == 0
        assert replay(place.runtime.output()).violations == ()
        slowest = min(reached.values())
        assert not place.stables or place.stables[-1] <= slowest - 10 + 1


def test_a_file_paused_declares_that_a_replica_sends_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", disorder=0)
    put(place.folder / "east", [(100, "a")], "1.parquet")
    put(place.folder / "west", [(50, "a")], "1.parquet")
    place.look()
    put(place.folder / "east", [(120, "b")], "2.parquet")
    place.look()
    assert place.stables == [50], "west is not idle: nothing is assumed of its silence"
    (place.folder / "west" / "_paused").touch()
    place.look()
    assert place.stables == [50, 120]
    clock = place.runtime.totals.clock
    assert clock is not None
    assert clock.states["paused"] == 1
    assert place.look() == 0, "it is written down once"
    put(place.folder / "west", [(130, "c")], "2.parquet")
    (place.folder / "west" / "_paused").unlink()
    put(place.folder / "east", [(140, "d")], "3.parquet")
    place.look()
    assert place.stables == [50, 120, 130], "it counts again"
    assert place.runtime.totals.bucket("late") == 0
    assert declared(place.log, "west").paused == ()


@pytest.mark.parametrize("option", ["source", "group"])
def test_a_column_names_the_sources_of_a_replica(tmp_path: Path, option: str) -> None:
    place = Place(tmp_path / "in", disorder=0, idle_after="1 minute", **{option: "name"})
    for name in ("east", "west"):
        put(place.folder / name, [(100, "a"), (40, "b")], "1.parquet")
    place.look()
    assert place.stables == [40], "of the slowest source"
    for n in range(20):
        for name in ("east", "west"):
            put(place.folder / name, [(101 + n, "a")], f"a{n}.parquet")
        place.look(5)
    assert place.stables[-1] >= 110, "b is idle"
    put(place.folder / "east", [(30, "b")], "9.parquet")
    place.look()
    late = [one.origin for one in place.runtime.rows if one.channel == "late" and one.origin]
    (reason,) = late[0].column("reason").to_pylist()
    assert "source b, " in reason
    assert late[0].column("file").to_pylist() == ["east/9.parquet"]
    assert late[0].column("row").to_pylist() == [1]
    assert place.runtime.totals.adds_up


def test_replicas_end_also_where_a_column_names_their_sources(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", disorder=0, source="name")
    put(place.folder / "east", [(100, "a")], "1.parquet")
    watches = place.merged.watches(place.log, place.merged.copies.founders)
    watching.look_into(watches, complete=True)
    trigger(place.runtime, place.merged, place.log.entries)
    assert place.stables[-1] == FOREVER


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_a_column_of_arrivals_is_no_payload_and_ends_waits(tmp_path: Path, suffix: str) -> None:
    """Slack: ten seconds after a row arrived nothing older comes; its file may come late."""

    def put_arrived(folder: Path, time: int, arrived: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        row, came = {"at": time, "name": "a"}, datetime.fromtimestamp(arrived, UTC)
        file = folder / f"{time}.{suffix}"
        if suffix == "parquet":
            pq.write_table(pa.Table.from_pylist([row | {"came": came}]), file)
        else:
            file.write_text(json.dumps(row | {"came": f"{came:%Y-%m-%dT%H:%M:%SZ}"}) + "\n")

    folder = tmp_path / "in"
    for name in ("east", "west"):
        put_arrived(folder / name, 100, 980)
    place = Place(folder, empty=False, bounds=ab.clocks.slack(10 * SECOND), arrival="came")
    assert place.merged.schema.payload.names == ["name"]
    assert "arrival by came" in place.merged.explanation
    place.look()
    place.look()
    assert place.stables == [100], "it arrived twenty seconds ago, by its column"


def test_several_inboxes_have_one_clock(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", tmp_path / "more", disorder=0, idle_after="1 minute")
    put(place.folder / "east", [(100, "a")], "1.parquet")
    put(place.folder / "west", [(90, "a")], "1.parquet")
    place.look()
    assert place.stables == [], "north promises nothing yet"
    put(tmp_path / "more" / "north", [(50, "a")], "1.parquet")
    place.look()
    assert place.stables == [50]
    for n in range(30):
        put(place.folder / "east", [(200 + n, "b")], f"e{n}.parquet")
        put(place.folder / "west", [(200 + n, "b")], f"w{n}.parquet")
        place.look(5)
    assert place.stables[-1] > 210, "north is idle"
    assert place.runtime.totals.adds_up


def test_once_ticks_only_behind_files(tmp_path: Path) -> None:
    place = Place(tmp_path / "in", disorder=10, idle_after="1 second")
    put(place.folder / "east", [(100, "a")], "1.parquet")
    assert place.look(1, polled=False) == 1
    assert place.look(100, polled=False) == 0


def test_what_cannot_be_is_rejected(tmp_path: Path) -> None:
    put(tmp_path / "in" / "east", [(1, "a")], "1.parquet")
    put(tmp_path / "other" / "west", [(1, "a")], "1.parquet")

    def merged(**beats: object) -> Merged:
        made = ab.inbox(tmp_path / "in", start="at").heartbeats(**beats)  # type: ignore[arg-type]
        return build([made], Asked(lanes=1))

    explained = merged(disorder=3, idle_after="1 minute").explanation
    assert "stables are inferred: every replica: disorder 3, idle after 1 minute" in explained
    assert "no stables" not in explained
    assert "rows that a source does not report as waiting count as not there" in explained
    run = prepare(merged(disorder=3), str(tmp_path / "ck"), {}).run
    assert run.clocks == ((0, "every replica: disorder 3"),)
    with pytest.raises(UsageError, match=r"give disorder= .* or 'adaptive'"):
        merged(idle_after="1 minute")
    with pytest.raises(UsageError, match="delay needs timestamps"):
        merged(delay="1 minute")
    with pytest.raises(UsageError, match="bounds that count rows are not for an inbox"):
        merged(bounds=ab.clocks.k_ordered(3))
    beating = ab.inbox(tmp_path / "in", start="at").heartbeats(disorder=3)
    other = ab.inbox(tmp_path / "other", start="at")
    for second in (other, other.heartbeats(disorder=4)):
        with pytest.raises(UsageError, match=r"one clock reads all inboxes of a query; give"):
            build([beating, second], Asked(lanes=1))
    for option in ("source", "group", "arrival"):
        with pytest.raises(SchemaError, match=rf"--{option} .*: there is no column 'at'"):
            merged(disorder=3, **{option: "at"})
    with pytest.raises(SchemaError, match="'name' is string, expected timestamp"):
        merged(disorder=3, arrival="name")
    with pytest.raises(UsageError, match="rows are counted by group"):
        merged(disorder=3, source="name", group="name")
