"""An upgrade that stops after any change of the disk: the run is as it was, or upgraded.

No Spark: lanes are real, and what Spark would have committed is played by hand.  Each change
of the disk is the last one once, counted by Python's own audit events.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from lanes_driver import SCHEMA, Runtime, lane_spec

from anabranch.errors import StateError, UsageError
from anabranch.model import Adjust, History, Insert, Stable
from anabranch.sources.pieces import FilePiece
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.consumed import consumed
from anabranch.spark.checkpoint.control_log import FOLDER, ControlLog, read_entries
from anabranch.spark.checkpoint.generations import remove_former, restart_generation
from anabranch.spark.checkpoint.kafka import KafkaOffsets, starting_offsets
from anabranch.spark.checkpoint.lock import DriverLock
from anabranch.spark.lane.exported import LANES, TOO_LATE, lane_file, read_lane
from anabranch.spark.lane.state import NO_COPIES, store
from anabranch.spark.pack.parcels import Facts, Parcel, in_every_lane
from anabranch.spark.pack.positions import Positions, Span
from anabranch.spark.run import export
from anabranch.spark.run import upgrade as upgrades
from anabranch.testing.in_lanes import Parts

FOREVER = float("inf")
TRIGGERS = [
    {"x": [Insert(f"e{n}", n, n + 9) for n in range(12)], "y": [Insert("e3", 3, 5)]},
    {"x": [Stable(6), Adjust("e7", 7, 16, 11)], "y": [Insert("late", 1, 30), Stable(1)]},
    {"x": [Insert("new", 9, 12), Adjust("e9", 9, 18, 9)], "y": []},
    {"x": [Insert("last", 20, 25), Stable(FOREVER)], "y": [Insert("e3", 3, 12)]},
]
DONE = 2
"""The number of triggers that were committed before the upgrade; a third was begun."""


class Killed(BaseException):
    """The process is gone: nothing that it would still do happens."""


class Killer:
    """Lets a number of changes of the disk below a folder happen, and no more."""

    CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.utime", "os.link")

    def __init__(self) -> None:
        self.root: str | None = None
        self.left = 0
        self.seen = 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if self.root is not None and self.changes(event, args):
            self.seen += 1
            if self.seen > self.left:
                raise Killed

    def changes(self, event: str, args: tuple[Any, ...]) -> bool:
        """Whether it changes something there; a name in an open folder is relative."""
        place = str(args[0]) if args else ""
        is_there = place.startswith(str(self.root))
        if event == "open":
            return is_there and any(letter in str(args[1]) for letter in "wax+")
        return event in self.CHANGES and (is_there or not place.startswith("/"))


KILLER = Killer()
sys.addaudithook(KILLER)


@contextmanager
def killed_after(root: Path, changes: int) -> Iterator[Killer]:
    KILLER.root, KILLER.left, KILLER.seen = str(root), changes, 0
    try:
        yield KILLER
    finally:
        KILLER.root = None


class World:
    """A checkpoint with a control log, and lanes that have taken the first triggers of it."""

    def __init__(self, root: Path) -> None:
        self.checkpoint = root / "ck"
        spec = lane_spec("r4", 2)
        payload = SCHEMA.payload.serialize().to_pybytes().hex()
        fixed: dict[str, Any] = {"case": "r4", "time": "bigint", "payload": payload}
        self.run = runs.Run(
            run="run", lanes=2, columns=(), founders=("x", "y"), inboxes=("/in",), **fixed
        )
        runs.write(self.run, self.checkpoint)
        log = ControlLog(self.checkpoint / FOLDER)
        for name in ("x", "y"):
            log.attach(name, None, inbox=0)
        for number in range(len(TRIGGERS)):
            log.add_piece("x", str(number), (1, number), FilePiece(0, 1, 0, 1))
        self.logs = {e.file: e.log for e in read_entries(self.checkpoint / FOLDER) if e.file}
        self.runtime = Runtime(spec)
        for number in range(DONE):
            self.take(self.runtime, number)
            self.note("commits", number)
        for number in range(DONE + 1):
            self.note("offsets", number)

    def note(self, log: str, number: int, home: Path | None = None) -> None:
        folder = (home or self.checkpoint) / log
        folder.mkdir(exist_ok=True)
        (folder / str(number)).touch()

    def take(self, runtime: Runtime, number: int) -> None:
        runtime.commit(runtime.parcels(TRIGGERS[number], log=self.logs[str(number)]))

    def export(self, _: Any, job: export.Export) -> Any:
        """What Spark's jobs do, in this process."""
        rows = [export._split_lane(job, parts) for parts in self.runtime.stores]
        made = [export._unite_lane(job, lane) for lane in range(job.lanes)]
        reports = [
            export._reports([row.to_pylist()[0] for row in some]) for some in (rows, made)
        ]
        return reports[0], sum(one.live for one in reports[1])

    def finish(self) -> Runtime:
        """Go on from what is on the disk, to the end."""
        run = runs.read(self.checkpoint)
        assert run is not None
        home = runs.home(self.checkpoint, run)
        then = Runtime(replace(self.runtime.spec, lanes=run.lanes))
        then.written, then.seq = list(self.runtime.written), self.runtime.seq
        if run.generation == 0:
            then.stores = [Parts(store) for store in self.runtime.stores]
            taken = self.logs[str(DONE - 1)]
        else:
            taken = -1
            for number in range(run.lanes):
                lane = read_lane(lane_file(home / LANES, number), then.which(number))
                store(then.stores[number], then.which(number), lane, NO_COPIES)
            assert (run.first_trigger, run.begun) == (DONE, DONE)
        entries = read_entries(home / FOLDER)
        waiting = [int(e.file) for e in entries if e.log > taken and e.file is not None]
        assert waiting == [DONE, DONE + 1]
        for number in waiting:
            self.take(then, number)
        return then


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(tmp_path)
    monkeypatch.setattr(upgrades, "export_lanes", made.export)
    return made


def upgrade(world: World, lanes: int, **columns: Any) -> upgrades.Upgraded:
    asked = upgrades.Asked(lanes, **columns)
    return upgrades.upgrade_in(lambda: None, world.checkpoint, asked)  # type: ignore[arg-type,return-value]


def truth() -> History:
    inputs = [element for trigger in TRIGGERS for element in trigger["x"]]
    return History.of(inputs)


@pytest.mark.parametrize("lanes", [3, pytest.param(1, marks=pytest.mark.deep)])
def test_killed_after_any_change_of_the_disk(world: World, tmp_path: Path, lanes: int) -> None:
    """What goes on has the truth, whichever generation it is; the upgrade can be repeated."""
    expected, generations = truth(), set()
    whole, copy = world.checkpoint, tmp_path / "copy"
    shutil.copytree(whole, copy)
    for changes in range(200):
        shutil.rmtree(whole)
        shutil.copytree(copy, whole)
        with killed_after(whole, changes) as killer, suppress(Killed):
            upgrade(world, lanes)
        run = runs.read(whole)
        assert run is not None
        generations.add(run.generation)
        assert History.of(world.finish().output()) == expected
        again = upgrade(world, lanes)
        assert (again.lanes, again.triggers) == (lanes, DONE)
        assert History.of(world.finish().output()) == expected
        if killer.seen <= changes:
            break
    assert killer.seen <= changes, "not all changes were tried"
    assert changes > 10
    assert generations == {0, 1}


def test_killed_at_any_change_positions_in_kafka_go_with_the_lanes(
    world: World, tmp_path: Path
) -> None:
    """What packers skip, what the lanes expect and where readers begin is of one moment."""
    last = {("x", "orders", 0): 7, ("x", "orders", 2): 4, ("y", "trades", 0): 9}
    spans = {
        "x": [Span("orders", 0, 3, 7), Span("orders", 2, 4, 4)],
        "y": [Span("trades", 0, 9, 9)],
    }
    world.run = replace(world.run, replicas=("x", "y"), attachments=(1, 1), positions=True)
    runs.write(world.run, world.checkpoint)
    facts = {name: Facts(0, spans=tuple(some)) for name, some in spans.items()}
    bases = {name: Parcel(lane=0, input=name) for name in spans}
    made = [one for name in spans for one in in_every_lane(bases[name], 2, facts[name])]
    world.runtime.commit(made)
    world.note("commits", DONE)
    KafkaOffsets(ends=[{"orders": {"0": 8, "1": 2, "2": 5}}]).write(world.checkpoint)
    whole, copy = world.checkpoint, tmp_path / "copy"
    shutil.copytree(whole, copy)
    for changes in range(200):
        shutil.rmtree(whole)
        shutil.copytree(copy, whole)
        with killed_after(whole, changes) as killer, suppress(Killed):
            upgrade(world, 3)
        for again in (False, True):
            if again:
                upgrade(world, 3)
            run = runs.read(whole)
            assert run is not None
            if run.generation == 0:
                assert starting_offsets(whole, "orders") == "earliest"
                continue
            home = runs.home(whole, run)
            assert KafkaOffsets.read(home).consumed == last
            spec = replace(world.runtime.spec, lanes=3)
            for number in range(3):
                lane = read_lane(lane_file(home / LANES, number), spec.lane_id(number))
                assert lane.positions == Positions(last, set(last))
            begins = json.loads(starting_offsets(whole, "orders"))
            assert begins == {"orders": {"0": 7, "1": 2, "2": 4}}
        if killer.seen <= changes:
            break
    assert changes > 10


def test_killed_while_the_former_generation_is_removed(world: World, tmp_path: Path) -> None:
    upgrade(world, 3)
    run, whole, copy = runs.read(world.checkpoint), world.checkpoint, tmp_path / "copy"
    assert run is not None
    remove_former(whole, run)
    assert (whole / "offsets").exists(), "removed before a trigger was committed"
    home = runs.home(whole, run)
    for number in range(2):
        world.note("commits", number, home)
    kept = {path.name for path in home.iterdir()} - {LANES}
    shutil.copytree(whole, copy)
    for changes in range(200):
        shutil.rmtree(whole)
        shutil.copytree(copy, whole)
        with killed_after(whole, changes) as killer, suppress(Killed):
            remove_former(whole, run)
        assert runs.read(whole) == run
        assert runs.last_commit(whole, run) == DONE + 1
        remove_former(whole, run)
        assert {path.name for path in home.iterdir()} == kept
        assert {path.name for path in whole.iterdir()} <= {home.name, runs.FILE, "_driver.lock"}
        if killer.seen <= changes:
            break
    assert changes > 10


def test_a_generation_without_a_commit_begins_again_if_its_readers_began_too_late(
    world: World,
) -> None:
    upgrade(world, 3)
    run = runs.read(world.checkpoint)
    assert run is not None
    home = runs.home(world.checkpoint, run)
    began = home / "sources" / "0"
    for number, mark, kept in ((None, False, False), (0, False, True), (0, True, False)):
        began.mkdir(parents=True)
        if number is not None:
            world.note("offsets", number, home)
        if mark:
            (home / TOO_LATE).touch()
        restart_generation(home)
        assert began.exists() is kept
        shutil.rmtree(home / "sources", ignore_errors=True)
    assert (home / LANES).exists()
    assert not (home / TOO_LATE).exists()
    world.note("commits", 0, home)
    began.mkdir(parents=True)
    (home / TOO_LATE).touch()
    restart_generation(home)
    assert began.exists(), "Spark has committed what was read"
    assert upgrades.is_refused(world.checkpoint, run), "so the same lanes are upgraded too"


def test_files_that_the_new_lanes_have_not_taken_are_not_consumed(world: World) -> None:
    """`anabranch clean --inbox` goes by the log of the generation in force."""
    upgrade(world, 3)
    run = runs.read(world.checkpoint)
    assert run is not None
    found = consumed(runs.home(world.checkpoint, run), 0)
    assert sorted(found) == [str(number) for number in range(DONE)]


def test_what_cannot_be_upgraded_is_refused_by_name(world: World, tmp_path: Path) -> None:
    before = asdict(world.run)
    with pytest.raises(UsageError, match="is not the checkpoint of a merge"):
        upgrades.upgrade(tmp_path / "nowhere", lanes=2)
    with pytest.raises(UsageError, match="is not the checkpoint of a merge"):
        upgrades.upgrade("s3://bucket/ck", lanes=2)
    with pytest.raises(UsageError, match="at least one lane"):
        upgrade(world, 0)
    assert upgrade(world, 2).events == 0, "as many lanes as it has: nothing to do"
    lock = DriverLock(world.checkpoint)
    with pytest.raises(StateError, match="another merge works on this checkpoint"):
        upgrade(world, 3)
    lock.release()
    frames = {"lifetimes": ("0: as its elements end",), "inboxes": ()}
    runs.write(replace(world.run, **frames), world.checkpoint)
    with pytest.raises(UsageError, match="this run reads DataFrames; how far"):
        upgrade(world, 3)
    runs.write(replace(world.run, case="normalise"), world.checkpoint)
    with pytest.raises(UsageError, match="is a normalise, which cannot change its lanes"):
        upgrade(world, 3)
    runs.write(world.run, world.checkpoint)
    shutil.rmtree(world.checkpoint / "commits")
    with pytest.raises(StateError, match="nothing has been merged here yet"):
        upgrade(world, 3)
    found = runs.read(world.checkpoint)
    assert found is not None
    assert asdict(found) == before
