"""DataFrames that come and go between two starts of a run, where Spark has them by name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import anabranch as ab
from anabranch.errors import StateError
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.query import sources

pytestmark = pytest.mark.spark

ROWS = "kind string, start bigint, end bigint, old_end bigint, name string"
STABLE = "stable"
needs_names = pytest.mark.skipif(
    not sources.has_names(), reason="sources have names from PySpark 4.2 on"
)


@contextmanager
def by_name(spark: Any) -> Iterator[Any]:
    spark.conf.set(sources.CONF, "true")
    yield spark
    spark.conf.unset(sources.CONF)


class World:
    """Folders of element files, and merges of some of them over one checkpoint."""

    def __init__(self, spark: Any, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.files = 0

    def put(self, replica: str, *names: str, stable: int | None = None) -> None:
        """A file of inserts, whose start is their number, and perhaps a stable."""
        self.files += 1
        rows = [
            {"kind": "insert", "start": int(name), "end": int(name) + 5, "name": name}
            for name in names
        ]
        rows += [] if stable is None else [{"kind": STABLE, "start": stable}]
        types = {name: pa.int64() for name in ("start", "end", "old_end")}
        schema = pa.schema({"kind": pa.string(), **types, "name": pa.string()})
        file = self.root / replica / f"{self.files:03d}.parquet"
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)

    def feed(self, replica: str, name: str | None = None, *, named: bool = True) -> Any:
        reader = self.spark.readStream.schema(ROWS)
        reader = reader.name(name or replica) if named else reader
        source = reader.parquet(str(self.root / replica))
        return ab.elements(source, name=replica)

    def run(self, *replicas: str, **options: Any) -> Any:
        named = options.pop("named", True)
        merged = ab.merge(*(self.feed(one, named=named) for one in replicas), **options)
        query = merged.start(self.root / "ck", output=self.root / "out", once=True)
        query.wait()
        return query

    def names(self) -> list[str]:
        rows = ab.read_output(self.spark, self.root / "out").where("kind = 'insert'").collect()
        return sorted(row.name for row in rows)


@pytest.fixture
def world(quick: Any, tmp_path: Path) -> Iterator[World]:
    with by_name(quick):
        yield World(quick, tmp_path)


@needs_names
def test_dataframes_come_go_and_return(world: World) -> None:
    """North joins, gets its guarantee and leads; west leaves and comes back with number 2."""
    for name in ("east", "west"):
        world.put(name, "1", "2", stable=2)
    world.run("east", "west", lanes=1)
    world.put("north", "2", "3", stable=4)
    world.put("east", "3")
    query = world.run("north", "east", "west")
    north = query.totals.replicas["north"]
    assert (north.rows, north.joined, query.totals.frontier) == (3, False, 2)
    query.attach("north", guarantee=2)
    query = world.run("north", "west", "east")
    assert query.totals.replicas["north"].joined
    assert (query.totals.frontier, query.totals.leader) == (4, "north")
    world.put("west", "5", stable=6)
    world.put("east", "4", stable=5)
    query = world.run("east", "north")
    west = query.totals.replicas["west"]
    assert (west.standing, west.rows) == ("detached", 3)
    assert query.totals.frontier == 5
    world.put("west", "6", stable=8)
    world.put("east", "6", stable=7)
    query = world.run("west", "east", "north")
    west = query.totals.replicas["west"]
    assert (west.standing, west.buckets["violation"]) == ("joining", 0)
    assert query.totals.frontier == 7, "it is joining: its stables do not count"
    run = runs.read(world.root / "ck")
    assert run is not None
    assert (run.replicas, run.attachments, run.left) == (
        ("west", "east", "north"),
        (2, 1, 1),
        (),
    )
    assert query.totals.adds_up
    assert world.names() == ["1", "2", "3", "4", "6"], "the leader has no 5"


@needs_names
def test_a_newcomer_may_be_complete(world: World) -> None:
    world.put("east", "1", stable=2)
    world.run("east", lanes=1)
    world.put("north", "1", "3", stable=5)
    query = world.run("east", "north", assume_complete=True)
    assert query.totals.replicas["north"].joined
    assert query.totals.frontier == 5


@needs_names
def test_a_start_that_was_killed_is_completed_by_the_next(world: World) -> None:
    """The record names who left and came; entries of the control log follow from it."""
    for name in ("east", "west"):
        world.put(name, "1", stable=2)
    query = world.run("east", "west", lanes=1)
    world.put("north", "1", "2")
    merged = ab.merge(world.feed("east"), world.feed("north"))
    prepared = sources_prepared(merged, world.root)
    runs.write(prepared.run, world.root / "ck")
    runs.write(prepared.run, world.root / "out")
    query = world.run("east", "north")
    assert query.totals.replicas["west"].standing == "detached"
    assert query.totals.replicas["north"].standing == "joining"
    again = prepared.control_log()
    prepared.write_changes(again)
    before = sorted((world.root / "ck" / "control").iterdir())
    prepared.write_changes(again)
    assert sorted((world.root / "ck" / "control").iterdir()) == before


def sources_prepared(merged: Any, root: Path) -> Any:
    from anabranch.spark.run.prepare import prepare

    return prepare(merged, str(root / "ck"), {}, output=root / "out")


@needs_names
def test_without_names_it_is_refused_with_the_call(quick: Any, tmp_path: Path) -> None:
    world = World(quick, tmp_path)
    for name in ("east", "west", "north"):
        world.put(name, "1", stable=2)
    world.run("east", "west", lanes=1, named=False)
    refused = (
        r"started with the DataFrames east, west, now it has east, west, north; .*"
        r"enableSourceEvolution', 'true'.*spark.readStream.name\('east'\)"
    )
    with pytest.raises(StateError, match=refused):
        world.run("east", "west", "north", named=False)
    with pytest.raises(StateError, match="now it has east;"):
        world.run("east", named=False)
    with by_name(quick), pytest.raises(StateError, match="started without names of sources"):
        world.run("east", "west", "north")


def test_a_release_that_has_no_names_is_named(
    quick: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "has_names", lambda: False)  # as on PySpark 4.1
    world = World(quick, tmp_path)
    for name in ("east", "west", "north"):
        world.put(name, "1", stable=2)
    world.run("east", "west", lanes=1, named=False)
    with pytest.raises(StateError, match=r"this PySpark finds .* PySpark 4\.2 and later"):
        world.run("east", "west", "north", named=False)


@needs_names
def test_a_replica_keeps_its_source(world: World) -> None:
    """Else a source with another name would be read again, and its rows doubled."""

    def start(feed: Any) -> None:
        ab.merge(world.feed("east"), feed).start(world.root / "ck", once=True).wait()

    for name in ("east", "west", "north"):
        world.put(name, "1", stable=2)
    start(world.feed("west", "second"))
    with pytest.raises(StateError, match=r"'west' was read from the source second, now from w"):
        start(world.feed("west"))
    with pytest.raises(StateError, match="second of replica 'north' was that of replica"):
        start(world.feed("north", "second"))
    start(world.feed("north"))
    run = runs.read(world.root / "ck")
    assert run is not None
    assert run.sources == {"east": ["east"], "west": ["second"], "north": ["north"]}
    start(world.feed("west", "second"))


@needs_names
def test_an_inbox_alone_has_no_names_whatever_is_set(world: World) -> None:
    world.put("in/east", "1", stable=2)
    for _ in range(2):
        query = ab.merge(ab.inbox(world.root / "in"), lanes=1).start(
            world.root / "ck", output=world.root / "out", once=True
        )
        query.wait()
        world.spark.conf.set(sources.CONF, "false")
        world.put("in/east", "3")
    assert query.totals.rows == 3
