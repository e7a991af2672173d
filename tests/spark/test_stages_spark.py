"""Two stages in one query on real Spark: as a batch and over restarts.

With kills: `faults/test_fault_stages.py`.
"""

import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chained import COLUMNS, LANES, run, stages
from test_dataframes_spark import history

import anabranch as ab
from anabranch.model import History
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.normal_form import normal_form
from anabranch.spark.lane.stage import in_lanes_once
from anabranch.spark.progress import TriggerRecord
from anabranch.spark.write.records import read_records, record_files
from anabranch.spark.write.views import Views

pytestmark = pytest.mark.spark

FOREVER = float("inf")


def streams(seed: int, size: int) -> dict[str, list[Element]]:
    """Two replicas of one history, in which events of a payload touch and overlap."""
    rng = random.Random(seed)
    events = [
        Insert(f"p{rng.randrange(6)}", start, start + rng.randint(1, 9))
        for start in range(0, size * 2, 2)
    ]
    made: dict[str, list[Element]] = {}
    for name in ("x", "y"):
        stream: list[Element] = []
        for at, event in enumerate(events):
            early = rng.random() < 0.4
            end = event.end + (rng.randint(1, 5) if early else 0)
            stream.append(Insert(event.payload, event.start, end))
            if early:
                stream.append(Adjust(event.payload, event.start, end, event.end))
            if at % 5 == 4:
                stream.append(Stable(event.start))
        made[name] = [*stream, Stable(FOREVER)]
    return made


def write_files(root: Path, given: dict[str, list[Element]], cut: int) -> list[Path]:
    """The elements of all replicas in files of `cut` each, in the order to give them."""
    (root / "held").mkdir(parents=True)
    (root / "in").mkdir()
    rows = [
        {**_row(one), "seq": at, "replica": name}
        for name, stream in given.items()
        for at, one in enumerate(stream)
    ]
    rows.sort(key=lambda row: (row["seq"] // cut, row["replica"]))
    names = [column.strip().partition(" ") for column in COLUMNS.split(",")]
    types = {"string": pa.string(), "bigint": pa.int64()}
    schema = pa.schema([(name, types[kind]) for name, _, kind in names])
    files = []
    for at in range(0, len(rows), cut):
        files.append(root / "held" / f"{at:06d}.parquet")
        pq.write_table(pa.Table.from_pylist(rows[at : at + cut], schema=schema), files[-1])
        # Spark takes files in the order of their times, in milliseconds: no two are the same.
        os.utime(files[-1], (at, at))
    return files


def _row(one: Element) -> dict[str, Any]:
    if isinstance(one, Stable):
        return {"kind": "stable", "start": None if one.time == FOREVER else one.time}
    row = {"start": one.start, "end": one.end, "name": one.payload}
    if isinstance(one, Adjust):
        return {"kind": "adjust", "old_end": one.old_end, **row}
    return {"kind": "insert", **row}


def give(root: Path, files: list[Path]) -> None:
    for file in files:
        file.rename(root / "in" / file.name)


def truth(given: dict[str, list[Element]]) -> History:
    return normal_form(History.of(given["x"]))


def found(spark: Any, root: Path) -> History:
    """The committed output; `seq` is unique."""
    rows = ab.read_output(spark, root / "out").collect()
    assert len({row.seq for row in rows}) == len(rows)
    return history(rows)


def test_a_batch_of_two_stages_has_the_normal_form(spark: Any) -> None:
    given = streams(1, 40)
    rows = [
        (one.get("kind"), one.get("start"), one.get("end"), one.get("old_end"),
         one.get("name"), at, name)
        for name, stream in given.items()
        for at, one in enumerate(map(_row, stream))
    ]  # fmt: skip
    merged = ab.merge(ab.elements(spark.createDataFrame(rows, COLUMNS)), lanes=LANES[0])
    made = in_lanes_once(merged.parcels(), *stages(merged, merged.schema))
    view = Views(merged.schema, LANES[1]).view("elements")
    assert history(view.of(made).collect()) == truth(given)
    assert made.where("channel = 'progress'").count() == sum(LANES)


@pytest.mark.parametrize("copies", ["0", pytest.param("1", marks=pytest.mark.deep)])
def test_a_restart_between_triggers_changes_nothing(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copies: str
) -> None:
    """Also where workers keep no copies of the states."""
    monkeypatch.setenv("ANABRANCH_WARM", copies)
    given = streams(2, 40)
    files = write_files(tmp_path, given, 30)
    for half in (files[: len(files) // 2], files[len(files) // 2 :]):
        give(tmp_path, half)
        run(spark, tmp_path)
    assert found(spark, tmp_path) == truth(given)
    folders = list(record_files(tmp_path / "out" / "progress").values())
    assert len(folders) == len(files)
    records = [TriggerRecord.of(read_records(one), at) for at, one in enumerate(folders)]
    assert sum(one.rows for one in records) == sum(map(len, given.values()))
    assert records[-1].frontier == "forever"
    assert {one.stage for one in read_records(folders[-1])} == {0, 1}
    assert not any(one.output["late"] + one.output["violations"] for one in records)
    later = [one for folder in folders[1:] for one in read_records(folder)]
    if copies == "0":
        assert all(one.cold and not one.warm for one in later)
