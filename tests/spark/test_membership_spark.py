"""Replicas that leave, return and are expelled, by the control log, in all lanes at once."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merge_place import Place

from anabranch.errors import UsageError
from anabranch.sources.pieces import FilePiece
from anabranch.spark.checkpoint.control_log import ControlLog, read_entries
from anabranch.spark.run.watch import InboxWatch
from anabranch.spark.write.read_output import read_output

A = {"kind": "insert", "start": 1, "end": 5, "name": "a"}
B = {"kind": "insert", "start": 2, "end": 6, "name": "b"}
C = {"kind": "insert", "start": 3, "end": 7, "name": "c"}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def stable(time: int | None) -> dict[str, Any]:
    return {"kind": "stable", "start": time}


def write(file: Path, *rows: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    times = {name: pa.int64() for name in ("start", "end", "old_end")}
    schema = pa.schema({"kind": pa.string(), **times, "name": pa.string()})
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), file)


@pytest.mark.spark
def test_a_mark_detaches_and_a_greater_number_returns(spark: Any, place: Place) -> None:
    write(place.inbox / "x" / "1.parquet", A, stable(2))
    write(place.inbox / "y" / "1.parquet", A)
    place.merge(spark)
    (place.inbox / "y" / "_detached").touch()
    write(place.inbox / "y" / "2.parquet", B)
    write(place.inbox / "x" / "2.parquet", C)
    totals = place.merge(spark)
    assert totals.replicas["y"].rows == 1
    names = {row.name for row in read_output(spark, place.output).collect()}
    assert names == {"a", "c", None}
    (place.inbox / "y" / "_detached").unlink()
    (place.inbox / "y" / "_replica.json").write_text(json.dumps({"attachment": 2}))
    write(place.inbox / "y" / "3.parquet", A, B, C, stable(None))
    totals = place.merge(spark)
    assert totals.frontier == "forever"
    assert totals.adds_up
    assert totals.replicas["y"].joined


@pytest.mark.spark
def test_a_policy_detaches_in_all_lanes_at_the_next_trigger(spark: Any, place: Place) -> None:
    adjust = {"kind": "adjust", "start": 1, "end": 4, "old_end": 9, "name": "nobody"}
    write(place.inbox / "x" / "1.parquet", A, stable(2))
    write(place.inbox / "y" / "1.parquet", adjust, B)
    totals = place.merge(spark, policy="violations=detach")
    assert totals.bucket("violation") == 1
    write(place.inbox / "y" / "2.parquet", C, stable(None))
    write(place.inbox / "x" / "2.parquet", stable(3))
    totals = place.merge(spark, policy="violations=detach")
    assert totals.frontier == 3
    assert totals.adds_up
    files = sorted((place.output / "progress").iterdir())[1:]
    texts = [text for file in files for text in pq.read_table(file)["record"].to_pylist()]
    shown = [one for text in texts if (one := json.loads(text)["replicas"].get("y"))]
    assert len(shown) == 2, "one for each lane, in the trigger of the entry"
    assert not any(one["attached"] for one in shown)


@pytest.mark.spark
def test_a_run_keeps_its_policy_and_a_promotion_is_reported(
    spark: Any, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    write(place.inbox / "x" / "1.parquet", A, B, stable(2))
    write(place.inbox / "y" / "1.parquet", A)
    (place.inbox / "y" / "_replica.json").write_text(json.dumps({"guarantee": 9}))
    policy = "inserts=quorum(1),promote=true"
    totals = place.merge(spark, policy=policy, case="r3")
    assert (totals.alarm, totals.stretches, totals.frontier) == (None, [], 2)
    assert place.prepare(policy="stable_lag=2").run.policy == "stable_lag=2"
    (place.inbox / "x" / "_detached").touch()
    write(place.inbox / "y" / "2.parquet", B, C, stable(3))
    again = place.prepare()  # no policy: that of the run
    assert str(again.merged.operator.policy) == "inserts=quorum(1.0),promote=true"
    totals = place.merge(spark, policy=f"{policy},violations=detach")
    assert totals.stretches == [[2, 9, "y"]]
    assert (totals.frontier, totals.leader) == (3, "y")
    assert totals.adds_up
    assert "from 2 to before 9: 'y' was promoted" in caplog.text
    names = [row.name for row in read_output(spark, place.output).orderBy("seq").collect()]
    assert sorted(filter(None, names)) == ["a", "b", "c"]


def test_a_policy_that_the_kernels_have_not_is_refused_by_name(place: Place) -> None:
    write(place.inbox / "x" / "1.parquet", A)
    with pytest.raises(UsageError, match=r"no choice 'insert'"):
        place.prepare(policy="insert=always")
    with pytest.raises(UsageError, match=r"inserts=leader needs case R3, but"):
        place.prepare(policy="inserts=leader")
    assert place.prepare(policy="inserts=leader", case="r3").is_new


def test_the_log_is_read_again_and_has_only_what_is_new(tmp_path: Path) -> None:
    write(tmp_path / "inbox" / "x" / "1.parquet", A)

    def look() -> InboxWatch:
        return InboxWatch(tmp_path / "inbox", ControlLog(tmp_path / "control"), ("x",))

    look().advance()
    before = sorted((tmp_path / "control").iterdir())
    look().advance()
    assert sorted((tmp_path / "control").iterdir()) == before
    (tmp_path / "inbox" / "x" / "_replica.json").write_text(json.dumps({"guarantee": 4}))
    inbox = look()
    inbox.advance()
    assert inbox.log.members["x"].guarantee == 4
    assert len(list((tmp_path / "control").iterdir())) == len(before) + 1


def test_a_log_that_is_compacted_adds_up_to_the_same(tmp_path: Path) -> None:
    folder, consumed = tmp_path / "control", tmp_path / "consumed" / "any" / "path"
    log = ControlLog(folder)
    for name in ("x", "y"):
        log.attach(name, None, inbox=0)
        log.add_piece(name, f"{name}/1.parquet", (7, 8), FilePiece(0, 1, 1, 50, until=6))
        log.add_piece(name, f"{name}/2.parquet", (9, 10), FilePiece(0, 1, 1, 50))
    log.detach("x")
    files = sorted(folder.iterdir())
    consumed.mkdir(parents=True)
    assert len(files) == 7
    for file in files[:3]:  # as Spark does when it has committed their trigger
        file.rename(consumed / file.name)
    for one in (ControlLog(folder), log):
        one.compact(at_least=4)
        assert len(list(consumed.iterdir())) == 3
    log.compact()
    assert not list(consumed.iterdir())
    again = ControlLog(folder)
    assert (again.members, again.files) == (log.members, log.files)
    again.attach("x", 5)
    assert ControlLog(folder).members["x"].attachment == 2
    assert sorted(folder.iterdir())[:4] == files[3:]


def piece(size: int, until: int) -> FilePiece:
    return FilePiece(0, 1, 1, size, until)


def test_a_look_is_one_file_of_the_log_unless_it_is_too_much(tmp_path: Path) -> None:
    log = ControlLog(tmp_path / "control")
    with log.together(100):
        log.attach("x", None)
        for number, size in enumerate((60, 30, 50, 500, 10)):
            log.add_piece("x", f"x/{number}.parquet", (1, 1), piece(size, number))
    files = sorted((tmp_path / "control").iterdir())
    sizes = [
        [json.loads(line)["size"] for line in file.read_text().splitlines()] for file in files
    ]
    assert sizes == [[None, 60, 30], [50], [500], [10]]
    times = [file.stat().st_mtime_ns // 1_000_000 for file in files]
    assert times == sorted(set(times)), "Spark would take them in any order"
    again = ControlLog(tmp_path / "control")
    assert again.members["x"].until == 4
    again.detach("x")
    last = max((tmp_path / "control").iterdir())
    assert last.stat().st_mtime_ns // 1_000_000 > times[-1]


def test_the_replica_that_is_least_far_comes_next(tmp_path: Path) -> None:
    """Also where one of them has many small files, and the other large ones."""
    for number in range(6):
        at = {"kind": "insert", "start": 10 * number, "end": None, "name": "a"}
        write(tmp_path / "inbox" / "x" / f"{number}.parquet", at)
    for number in range(2):
        at = {"kind": "insert", "start": 30 * number + 5, "end": None, "name": "a"}
        write(tmp_path / "inbox" / "y" / f"{number}.parquet", at)
    log = ControlLog(tmp_path / "control")
    InboxWatch(tmp_path / "inbox", log, ("x", "y"), limit=1).advance()
    entries = [entry for entry in read_entries(tmp_path / "control") if entry.file]
    taken = [(entry.replica, entry.until) for entry in entries]
    assert taken == [
        ("x", 0), ("y", 5), ("x", 10), ("y", 35), ("x", 20), ("x", 30), ("x", 40), ("x", 50),
    ]  # fmt: skip


def test_a_newcomer_is_joining_until_it_declares_a_guarantee(tmp_path: Path) -> None:
    write(tmp_path / "inbox" / "new" / "1.parquet", A)
    inbox = InboxWatch(tmp_path / "inbox", ControlLog(tmp_path / "control"), founders=())
    inbox.advance()
    assert inbox.log.members["new"].guarantee == 2**63 - 1
