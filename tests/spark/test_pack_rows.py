"""Rows to parcels without Spark: all of them, in order, though the next ones are read ahead."""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from lanes_driver import SCHEMA

from anabranch.batch.codec import to_elements
from anabranch.clocks import Clock, disorder
from anabranch.model.element import Insert
from anabranch.spark.pack import rows
from anabranch.spark.pack.beats import Beating
from anabranch.spark.pack.parcels import BEAT, DATA, from_row
from anabranch.spark.pack.rows import RowsSpec, pack_rows

SPEC = RowsSpec(SCHEMA, order=(), lanes=1, names=("west",))
FIELDS = {"kind": pa.int32(), "start": pa.int64(), "end": pa.int64(), "old_end": pa.int64()}
FIELDS |= {"name": pa.string(), SPEC.word: pa.string()}


@pytest.fixture(autouse=True)
def each_batch_a_parcel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "_GATHERED_BYTES", 1)


def batch(first: int, count: int) -> pa.RecordBatch:
    """Inserts as they come from Spark."""
    found = [
        {"kind": 0, "start": number, "end": number + 9, "name": f"e{number}"}
        for number in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(found, schema=pa.schema(FIELDS))


def test_parcels_have_the_rows_in_the_order_in_which_they_came() -> None:
    crossed = [
        from_row(row, lambda _: SCHEMA, None)
        for b in pack_rows(SPEC, map(batch, range(0, 90, 10), [10] * 9))
        for row in b.to_pylist()
    ]
    full = [one for one in crossed if one.batch is not None]
    assert [one.part for one in full] == list(range(9))
    assert {(one.input, one.entry) for one in full} == {("west", DATA)}
    elements = [e for one in full if one.batch is not None for e in to_elements(one.batch)]
    assert elements == [Insert(f"e{n}", n, n + 9) for n in range(90)]
    facts = [one.facts for one in crossed if one.facts is not None]
    assert sum(one.rows for one in facts) == 90
    assert sum(one.size for one in facts) == 90 * rows.ROW_BYTES


def test_every_lane_gets_the_greatest_start_of_a_partition() -> None:
    spec = replace(SPEC, lanes=3)
    crossed = [
        from_row(row, lambda _: SCHEMA, None)
        for b in pack_rows(spec, iter([batch(20, 5), batch(0, 5)]))
        for row in b.to_pylist()
    ]
    found = {(one.lane, one.greatest) for one in crossed if one.greatest is not None}
    assert found == {(lane, greatest) for lane in range(3) for greatest in (24, 4)}


def test_no_rows_are_no_parcels() -> None:
    assert list(pack_rows(SPEC, iter([]))) == []


def test_what_fails_while_rows_are_read_ahead_ends_the_task() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield batch(0, 10)
        message = "the other side is gone"
        raise OSError(message)

    packed = pack_rows(SPEC, broken())
    assert next(packed).num_rows == 2  # a parcel, and what was read
    with pytest.raises(OSError, match="the other side is gone"):
        next(packed)


def test_a_task_that_stops_early_reads_no_further() -> None:
    taken: list[int] = []

    def coming() -> Iterator[pa.RecordBatch]:
        for first in range(0, 90, 10):
            taken.append(first)
            yield batch(first, 10)

    packed = pack_rows(SPEC, coming())
    next(packed)
    packed.close()  # type: ignore[attr-defined]
    assert taken == [0, 10]


def test_the_time_of_a_trigger_is_in_the_words_of_rows_that_are_of_a_kind() -> None:
    """A row of no kind has a word of its own there, which is its reason."""
    beating = (("west", Beating(Clock(disorder(2)))),)
    spec = replace(SPEC, names=("west",), beating=beating)
    marked = [
        {"kind": 3, "start": 1, "end": 9, "name": "a", SPEC.word: "upsert"},
        {"kind": 0, "start": 2, "end": 9, "name": "b", SPEC.word: f"{1000:X}"},
    ]
    for number, at in ((2, 1000), (1, 0)):
        given = pa.RecordBatch.from_pylist(marked[:number], schema=pa.schema(FIELDS))
        found = [
            from_row(row, lambda _: SCHEMA, None)
            for some in pack_rows(spec, iter([given]))
            for row in some.to_pylist()
        ]
        (refused,) = (one for parcel in found if parcel.facts for one in parcel.facts.refused)
        assert "upsert" in refused.reason
        assert {one.at for one in found if one.entry == BEAT} == ({at} if at else set())
