"""Events in the order of their starts, on Spark: batches, streams, restarts, folders."""

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from test_heartbeats_spark import FIRST, copies, put
from test_running_query import forget_commit

import anabranch as ab
from anabranch.cli.main import cli
from anabranch.errors import StateError, UsageError
from anabranch.sinks.published import pieces_in

pytestmark = pytest.mark.spark

COLUMNS = "at bigint, name string"
HEARTBEATS = {"disorder": "20 seconds", "idle_after": "1 hour"}


def shuffled(count: int, seed: int) -> list[int]:
    """Seconds out of order, none more than 15 behind the greatest before it."""
    rng = random.Random(seed)
    return sorted(range(count), key=lambda second: second + rng.randint(0, 14))


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """The rows of a folder as any reader finds them: file by file, row by row."""
    found: list[dict[str, Any]] = []
    for piece in pieces_in(folder):
        found += pq.read_table(folder / piece.name).to_pylist()
    return found


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_batch_comes_in_the_order_of_starts(spark: Any, lanes: int) -> None:
    rng = random.Random(lanes)
    rows = [(at, f"n{rng.randrange(5)}") for at in range(200)]
    frames = []
    for name in ("east", "west"):
        mine = [one for one in rows if rng.random() < 0.8]
        rng.shuffle(mine)
        df = spark.createDataFrame(mine, COLUMNS)
        frames.append((set(mine), ab.events(df, start="at", lifetime=10, name=name)))
    merged = ab.merge(*(events for _, events in frames), lanes=lanes).align()
    expected = sorted(set.union(*(mine for mine, _ in frames)))
    assert [(row.start, row.name) for row in merged.final().collect()] == expected
    elements = merged.elements().orderBy("seq").collect()
    assert [(one.start, one.name) for one in elements[:-1]] == expected
    assert [one.kind for one in elements] == ["insert"] * len(expected) + ["stable"]
    assert merged.totals().adds_up
    assert "align: events in order of start" in merged.explanation


@pytest.mark.parametrize("lanes", [1, 3])
def test_a_union_comes_in_the_order_of_starts(spark: Any, lanes: int) -> None:
    """Equal events of two inputs stay two, side by side."""
    rng = random.Random(lanes)
    inputs = {
        name: [(rng.randrange(60), f"n{rng.randrange(3)}") for _ in range(80)] for name in "ab"
    }
    streams = [
        ab.events(spark.createDataFrame(rows, COLUMNS), start="at", lifetime=10, name=name)
        for name, rows in inputs.items()
    ]
    united = ab.union(*streams, lanes=lanes).align()
    expected = sorted(row for rows in inputs.values() for row in rows)
    final = [(row.start, row.name) for row in united.final().collect()]
    assert [start for start, _ in final] == [start for start, _ in expected]
    assert sorted(final) == expected
    elements = united.elements().orderBy("seq").collect()
    assert [one.start for one in elements[:-1]] == [start for start, _ in expected]
    assert [one.kind for one in elements] == ["insert"] * len(expected) + ["stable"]
    assert united.totals().adds_up


@pytest.mark.parametrize("lanes", [1, 2])
def test_a_stream_out_of_order_is_released_in_order_over_restarts(
    spark: Any, tmp_path: Path, lanes: int
) -> None:
    """A trigger is repeated, another process goes on, and a late row is kept apart."""
    seconds = {name: shuffled(90, seed) for seed, name in enumerate(("east", "west"))}
    ck, final, out = tmp_path / "ck", tmp_path / "final", tmp_path / "elements"

    def give(number: int, more: tuple[int, ...] = ()) -> None:
        for name, mine in seconds.items():
            some = [*mine[30 * number : 30 * (number + 1)], *more]
            put(tmp_path / name, number, [(second, f"r{second:03d}") for second in some])

    def start() -> Any:
        merged = ab.merge(*copies(spark, tmp_path, **HEARTBEATS), lanes=lanes).align()
        query = merged.start(ck, final=final, elements=out, once=True)
        query.wait()
        assert query.totals.adds_up
        return query

    give(0)
    start()
    give(1)
    start()
    forget_commit(ck)
    give(2, (200,))
    query = start()
    put(tmp_path / "east", 3, [(5, "too late")])
    put(tmp_path / "west", 3, [(201, "r201")])
    query = start()
    assert query.totals.bucket("late") == 1
    reached = (query.totals.frontier - int(FIRST.timestamp()) * 1_000_000) / 1_000_000
    assert reached == 180
    found = rows_in(final)
    assert [row["id"] for row in found] == [f"r{second:03d}" for second in range(90)]
    elements = rows_in(out)
    by_seq = sorted(elements, key=lambda row: row["seq"])
    assert elements == by_seq, "files are in the order of seq as well"
    inserts = [row["id"] for row in elements if row["kind"] == "insert"]
    assert inserts == [row["id"] for row in found]
    assert spark.read.parquet(str(final)).count() == 90


@pytest.mark.parametrize(("call", "times"), [("merge", 1), ("union", 2)])
def test_sparks_own_writer_gets_the_rows_in_order(
    spark: Any, tmp_path: Path, call: str, times: int
) -> None:
    """One trigger for each file; the last rows wait for a stable; a union has both copies."""
    for seed, name in enumerate(("east", "west")):
        seconds = shuffled(60, seed)
        for number in range(2):
            some = seconds[30 * number : 30 * (number + 1)]
            put(tmp_path / name, number, [(second, f"r{second:03d}") for second in some])
    place = str(tmp_path / "kept")
    streams = copies(spark, tmp_path, **HEARTBEATS)
    merged = getattr(ab, call)(*streams, lanes=2, quarantine=place)
    found = tmp_path / "found"  # on Connect the function runs in a process of the server

    def keep(df: Any, _: int) -> None:
        with found.open("a") as file:
            file.writelines(f"{row.id}\n" for row in df.collect())

    stream = merged.align().final().writeStream.foreachBatch(keep).trigger(availableNow=True)
    query = stream.option("checkpointLocation", str(tmp_path / "ck")).start()
    query.awaitTermination()
    expected = [f"r{second:03d}" for second in range(39) for _ in range(times)]
    assert found.read_text().split() == expected


def test_a_run_keeps_its_order_and_its_lanes(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "east", 0, [(0, "a"), (30, "b")])
    put(tmp_path / "west", 0, [(0, "a")])
    merged = ab.merge(*copies(spark, tmp_path, **HEARTBEATS), lanes=2)
    query = merged.align().start(tmp_path / "ck", final=tmp_path / "final", once=True)
    query.wait()
    with pytest.raises(
        StateError, match=r"started with align = in order of start, but .*align"
    ):
        merged.start(tmp_path / "ck", final=tmp_path / "final", once=True)
    with pytest.raises(UsageError, match=r"releases events in order of start \(align\)"):
        ab.upgrade(tmp_path / "ck", lanes=3, spark=spark)


def test_the_command_writes_in_order(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_MASTER", "local[2]")
    monkeypatch.setenv("ANABRANCH_DRIVER_MEMORY", "1g")
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("east", "west")):
        put(Path("in", name), 0, [(second, f"r{second:03d}") for second in shuffled(60, seed)])
    words = ["merge", "in", "--time", "ts", "--lifetime", "1 second", "--once", "--complete"]
    words += ["--align", "--lanes", "2", "--output", "out", "--checkpoint", "ck", "--json"]
    ran = CliRunner().invoke(cli, words)
    assert ran.exit_code == 0, ran.output
    inserts = [one["id"] for one in rows_in(Path("out/elements")) if one["kind"] == "insert"]
    assert inserts == [f"r{second:03d}" for second in range(60)]
