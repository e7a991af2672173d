"""Positions in Kafka over upgrades: each row is taken once, or the reader is refused.

No Spark: partitions are lists of offsets with holes, cut into triggers and tables in any way.
An upgrade may come between any two triggers; the reader then begins at any offset.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes_driver import Runtime, lane_spec

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import REPLICA
from anabranch.errors import StateError
from anabranch.model import Insert
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.kafka import EndsNoted, KafkaOffsets, ends_of, starting_offsets
from anabranch.spark.pack.parcels import ATTACH, CURRENT, DETACH
from anabranch.spark.pack.positions import Positions, Span, restarted, without_consumed

ORDER = ("__order_0", "__order_1", "__order_2")
NAMES = ("east", "west")
Row = tuple[int | None, str | None, int, int]

PARTITIONS = st.tuples(
    st.integers(0, 1), st.sampled_from(["orders", "trades"]), st.integers(0, 2)
)
OFFSETS = st.lists(st.integers(0, 40), min_size=1, max_size=12, unique=True).map(sorted)
LOGS = st.dictionaries(PARTITIONS, OFFSETS, min_size=1, max_size=4)


def table(rows: list[Row]) -> pa.Table:
    columns = [list(one) for one in zip(*rows, strict=True)] or [[], [], [], []]
    kinds = [pa.int32(), pa.string(), pa.int32(), pa.int64()]
    arrays = [pa.array(one, kind) for one, kind in zip(columns, kinds, strict=True)]
    return pa.table(dict(zip((REPLICA, *ORDER), arrays, strict=True)))


def taken(table: pa.Table) -> list[Row]:
    return [tuple(row.values()) for row in table.to_pylist()]


class Reader:
    """A run: packers that skip, a lane that adds up, and an upgrade between two of them."""

    def __init__(self) -> None:
        self.lane = Positions()
        self.consumed: dict[Any, int] = {}
        self.rows: list[Row] = []

    def trigger(self, tables: list[list[Row]]) -> None:
        made, spans = [], dict[str, list[Span]]()
        for rows in tables:
            kept, found = without_consumed(table(rows), ORDER, NAMES, self.consumed)
            made += taken(kept)
            for name, some in found.items():
                spans.setdefault(str(name), []).extend(some)
        self.lane.take(spans)
        self.lane = Positions.from_list(json.loads(json.dumps(self.lane.to_list())))
        self.rows += made

    def upgrade(self) -> None:
        stale = Positions(
            dict(list(self.lane.last.items())[:1])
        )  # of a lane that counts nothing
        self.lane = restarted([stale, self.lane])
        self.consumed = dict(self.lane.last)


def cut(data: st.DataObject, rows: list[Row]) -> list[list[Row]]:
    """Rows in pieces, in their order."""
    at = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return [rows[a:b] for a, b in zip([0, *at], [*at, len(rows)], strict=True)]


def rows_of(logs: dict[Any, list[int]]) -> list[Row]:
    """All rows, as offsets grow: each partition is read in its order."""
    found = [(*key, offset) for key, offsets in logs.items() for offset in offsets]
    return sorted(found, key=lambda row: row[3])


def give(data: st.DataObject, reader: Reader, rows: list[Row]) -> None:
    for some in cut(data, rows):
        tables = [data.draw(st.permutations(one)) for one in cut(data, some)]
        reader.trigger([list(one) for one in tables])


@given(LOGS, st.integers(0, 60), st.integers(1, 2), st.data())
def test_a_reader_that_begins_early_enough_takes_each_row_once(
    logs: dict[Any, list[int]], stop: int, upgrades: int, data: st.DataObject
) -> None:
    reader, rows = Reader(), rows_of(logs)
    give(data, reader, rows[:stop])
    for _ in range(upgrades):
        reader.upgrade()
    begins = {
        key: data.draw(
            st.integers(0, max([r[3] for r in rows[:stop] if r[:3] == key], default=0))
        )
        for key in logs
    }
    again = [row for row in rows if row[3] >= begins[row[:3]]]
    give(data, reader, again)
    assert sorted(reader.rows) == sorted(rows)
    assert not reader.lane.unmet


@given(LOGS.filter(lambda logs: max(map(len, logs.values())) > 1), st.data())
def test_a_reader_that_begins_too_late_is_refused_before_a_row_is_taken(
    logs: dict[Any, list[int]], data: st.DataObject
) -> None:
    reader, rows = Reader(), rows_of(logs)
    late = data.draw(st.sampled_from(sorted(key for key in logs if len(logs[key]) > 1)))
    places = [at for at, row in enumerate(rows) if row[:3] == late]
    stop = data.draw(st.integers(places[0] + 1, places[-1]))  # it has rows before and behind
    give(data, reader, rows[:stop])
    reader.upgrade()
    seen = max(row[3] for row in rows[:stop] if row[:3] == late)
    again = [row for row in rows if row[:3] != late or row[3] > seen]
    with pytest.raises(StateError, match=r"begins at offset \d+ of partition .* would be lost"):
        give(data, reader, again)
    later = [row for row in reader.rows if row[:3] == late]
    assert sorted(later) == [row for row in rows[:stop] if row[:3] == late]


def test_rows_without_a_position_are_left_as_they_are() -> None:
    rows: list[Row] = [(0, None, 0, 5), (None, "orders", 0, 5), (1, "orders", 0, 6)]
    consumed = {("None", "orders", 0): 5, ("west", "orders", 0): 3}
    kept, spans = without_consumed(table(rows), ORDER, NAMES, consumed)
    assert taken(kept) == [rows[0], rows[2]]
    assert spans == {None: [Span("orders", 0, 5, 5)], "west": [Span("orders", 0, 6, 6)]}


def test_rows_of_a_replica_that_returns_do_not_wait_for_the_log() -> None:
    """Its entries may lie behind others: the rows have its number, and take effect by it."""
    runtime = Runtime(lane_spec("r3", 2))
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 9)], "y": [Insert("a", 1, 9)]}))
    runtime.commit(runtime.control(DETACH, "x"))
    rows: dict[str, Any] = {"attachment": CURRENT, "log": int(FOREVER_UNITS)}
    runtime.commit(runtime.parcels({"x": [Insert("b", 2, 9)]}, **rows))
    assert runtime.totals.bucket("violation") == 1, "without a number they are of who left"
    runtime.commit(runtime.parcels({"x": [Insert("c", 3, 9)]}, **rows, least=2))
    assert runtime.totals.replicas["x"].standing != "detached"
    runtime.commit(runtime.control(DETACH, "x"))
    assert runtime.totals.replicas["x"].standing != "detached", "it was about 1"
    runtime.commit(runtime.control(ATTACH, "x", attachment=2))
    runtime.commit(runtime.parcels({"x": [Insert("d", 4, 9)]}, **rows, least=2))
    assert runtime.totals.bucket("violation") == 1
    names = [one.payload for one in runtime.output() if isinstance(one, Insert)]
    assert names == ["a", "c", "d"]


def test_a_replica_that_left_begins_again() -> None:
    lane = restarted([Positions({("east", "orders", 0): 7, ("west", "orders", 0): 7})])
    lane.forget("west")
    lane.take({"west": [Span("orders", 0, 9, 9)]})
    assert lane.last["west", "orders", 0] == 9
    with pytest.raises(StateError, match="replica 'east'"):
        lane.take({"east": [Span("orders", 0, 9, 9)]})


class Source:
    def __init__(self, end: object) -> None:
        self.endOffset = None if end is None else json.dumps(end)


class Query:
    """What is read of a query of Spark's."""

    def __init__(self, *ends: object) -> None:
        self.sources = [Source(end) for end in ends]

    @property
    def lastProgress(self) -> "Query":  # noqa: N802
        return self


def test_ends_are_noted_for_partitions_without_rows(tmp_path: Path) -> None:
    assert ends_of(Query({"logOffset": 3}, None, 7, {"orders": {"0": 4}})) == [
        {"orders": {"0": 4}}
    ]
    assert ends_of(None) == []
    noted = EndsNoted(tmp_path)
    noted.note(Query({"orders": {"0": 4}}))
    noted.note(Query({"orders": {"0": 5}}))
    assert KafkaOffsets.read(tmp_path).ends == [{"orders": {"0": 4}}], "too soon again"
    noted.note(Query({"orders": {"0": 6, "1": 0}}))
    assert KafkaOffsets.read(tmp_path).ends == [{"orders": {"0": 6, "1": 0}}]
    noted.note(Query({"orders": {"0": 9, "1": 0}}), last=True)
    assert KafkaOffsets.read(tmp_path).ends == [{"orders": {"0": 9, "1": 0}}]


def test_readers_begin_at_the_last_row_that_was_consumed(tmp_path: Path) -> None:
    assert starting_offsets(tmp_path / "none", "orders") == "earliest"
    run = runs.Run("run", 2, "r3", "bigint", (), ("east",), positions=True, generation=1)
    runs.write(run, tmp_path)
    assert starting_offsets(tmp_path, "orders", default="latest") == "latest"
    consumed = {("east", "orders", 0): 17, ("west", "trades", 0): 3}
    ends = [{"orders": {"0": 10, "1": 5}}, {"trades": {"0": 9}}, {"trades": {"0": 2}}]
    KafkaOffsets(consumed, ends).write(runs.home(tmp_path, run))
    found = json.loads(starting_offsets(tmp_path, "orders", "trades"))
    assert found == {"orders": {"0": 17, "1": 5}, "trades": {"0": 2}}
    assert starting_offsets(tmp_path, "orders", "new") == "earliest"
    runs.write(replace(run, generation=0), tmp_path)
    assert starting_offsets(tmp_path, "orders") == "earliest"
