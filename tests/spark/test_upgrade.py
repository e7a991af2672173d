"""A run goes on in another number of lanes: the same history, totals that add up, one `seq`."""

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from merge_place import Place

import anabranch as ab
from anabranch.errors import StateError
from anabranch.sources.commits import committed

pytestmark = pytest.mark.spark

SHAPES: dict[str, dict[str, Any]] = {
    "r1": {},
    "r3": {"disorder": 0.3, "revisions": 0.3, "stable_freq": 0.02},
    "r4": {"disorder": 0.3, "revisions": 0.3, "stable_freq": 0.02},
}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def held_back(place: Place, kept: int) -> list[tuple[Path, Path]]:
    """All files but the first ones of each replica, put aside."""
    moved = []
    for folder in sorted(place.inbox.iterdir()):
        for file in sorted(folder.glob("part-*"))[kept:]:
            aside = place.root / "held" / folder.name / file.name
            aside.parent.mkdir(parents=True, exist_ok=True)
            moved.append((file.rename(aside), file))
    return moved


def give(files: list[tuple[Path, Path]], count: int) -> None:
    """Let the next files appear in the inbox."""
    for now, file in files[:count]:
        now.rename(file)
    del files[:count]


def judge(place: Place, rows: int) -> None:
    assert place.check().ok
    files = committed(place.output / "elements")
    seqs = [seq for file in files for seq in pq.read_table(file)["seq"].to_pylist()]
    assert len(set(seqs)) == len(seqs)
    assert rows == sum(pq.read_metadata(file).num_rows for file in place.inbox.glob("*/part-*"))


def forget_last_commit(place: Place) -> None:
    """A crash after the last trigger was written, before Spark has noted it."""
    last = max(int(one.name) for one in (place.checkpoint / "commits").glob("[0-9]*"))
    for name in (str(last), f".{last}.crc"):
        (place.checkpoint / "commits" / name).unlink(missing_ok=True)


@pytest.mark.parametrize(
    "case",
    ["r3", *(pytest.param(case, marks=pytest.mark.deep) for case in ("r1", "r4"))],
)
def test_a_run_goes_on_in_other_lanes(spark: Any, place: Place, case: str) -> None:
    """In 2, 4 and at once 3 lanes; the last trigger before was written and not committed."""
    place.generate(case, events=400, file_rows=60, **SHAPES[case])
    files = held_back(place, 2)
    place.merge(spark, case=case, lanes=2)
    give(files, 3)
    before = place.merge(spark, case=case)
    forget_last_commit(place)
    shutil.copytree(place.checkpoint, place.root / "copy")
    prepared = place.prepare(case=case)
    done = ab.upgrade(place.checkpoint, lanes=4, spark=spark)
    with pytest.raises(StateError, match="was upgraded from 2 to 4 lanes meanwhile"):
        prepared.start(spark, once=True)
    assert (done.was, done.lanes, done.triggers) == (2, 4, before.triggers - 1)
    again = ab.upgrade(place.checkpoint, lanes=3, spark=spark)
    assert (again.was, again.events) == (4, done.events)
    with pytest.raises(StateError, match=r"lanes = 3, .* has 2; `anabranch upgrade"):
        place.prepare(case=case, lanes=2)
    for _ in range(3):
        give(files, len(files) // 2 + 1)
        query = place.prepare(case=case).start(spark, once=True)
        query.wait()
        totals = query.totals
        assert totals.adds_up
        assert [one["trigger"] for one in ab.progress(query)] == [totals.next_trigger - 1]
    assert totals.triggers == totals.next_trigger == before.triggers + 3
    judge(place, totals.rows)
    with pytest.raises(StateError, match="from before an upgrade from 2 to 3 lanes"):
        place.prepare(case=case, checkpoint=place.root / "copy")
    place.prepare(case=case).start(spark, once=True).wait()
    names = {path.name for path in place.checkpoint.iterdir()}
    assert "generation-2" in names
    assert not names & {"offsets", "commits", "state", "control", "generation-1"}
    assert not (place.checkpoint / "generation-2" / "lanes").exists()


@pytest.mark.deep
def test_a_union_with_final_events_goes_on_in_other_lanes(spark: Any, place: Place) -> None:
    place.generate("r3", events=300, file_rows=60, **SHAPES["r3"])
    files = held_back(place, 2)

    def run() -> Any:
        union = ab.union(ab.inbox(place.inbox), lanes=None)
        final = place.root / "final"
        query = union.start(place.checkpoint, output=place.output, final=final, once=True)
        query.wait()
        return query.totals

    run()
    ab.upgrade(place.checkpoint, lanes=3, spark=spark)
    give(files, len(files))
    totals = run()
    assert totals.adds_up
    final = spark.read.parquet(str(place.root / "final")).count()
    truth = spark.read.parquet(str(place.truth)).count()
    assert final == truth * len(totals.replicas)
