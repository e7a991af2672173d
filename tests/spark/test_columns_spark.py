"""A run whose payload columns come and go: by an upgrade, with the inbox as it then is."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merge_place import Place

import anabranch as ab
from anabranch.checker.compare import check
from anabranch.errors import SchemaError, StateError, UsageError

pytestmark = pytest.mark.spark


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def write(file: Path, *rows: dict[str, Any], columns: dict[str, pa.DataType]) -> None:
    """An element file with these payload columns; `end` None of an insert is FOREVER."""
    times = {"kind": pa.string(), "start": pa.int64(), "end": pa.int64(), "old_end": pa.int64()}
    schema = pa.schema({**times, **columns})
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}")
    pq.write_table(pa.Table.from_pylist(list(rows), schema=schema), beside)
    beside.rename(file)


def insert(start: int, end: int | None, **payload: Any) -> dict[str, Any]:
    return {"kind": "insert", "start": start, "end": end, **payload}


def adjust(start: int, old_end: int, end: int, **payload: Any) -> dict[str, Any]:
    return {"kind": "adjust", "start": start, "old_end": old_end, "end": end, **payload}


def stable(time: int | None) -> dict[str, Any]:
    return {"kind": "stable", "start": time}


NAME = {"name": pa.string()}
PRICED = {**NAME, "price": pa.float64()}


def current(spark: Any, place: Place, *columns: str) -> list[tuple[Any, ...]]:
    rows = ab.read_output(spark, place.output, what="current").collect()
    return sorted(tuple(row[name] for name in ("start", "end", *columns)) for row in rows)


def test_a_column_is_added(spark: Any, place: Place) -> None:
    """Live and final events stay those that they were; files without it have null in it."""
    files = (insert(1, 3, name="a"), insert(2, 20, name="b"))
    write(place.inbox / "x" / "1.parquet", *files, stable(5), columns=NAME)
    write(place.inbox / "y" / "1.parquet", insert(2, 20, name="b"), columns=NAME)
    place.merge(spark, case="r3", lanes=3)
    done = ab.upgrade(place.checkpoint, add_columns={"price": "double"}, spark=spark)
    assert (done.added, done.dropped, done.was, done.lanes) == (("price",), (), 3, 3)
    assert (
        ab.upgrade(place.checkpoint, add_columns={"price": "double"}, spark=spark).added == ()
    )
    later = (adjust(2, 20, 30, name="b"), insert(6, 9, name="c", price=2.5))
    write(place.inbox / "y" / "2.parquet", insert(1, 3, name="a"), *later, columns=PRICED)
    write(place.inbox / "x" / "2.parquet", adjust(2, 20, 30, name="b"), columns=NAME)
    write(place.inbox / "x" / "3.parquet", insert(6, 9, name="c", price=2.5), columns=PRICED)
    totals = place.merge(spark)
    assert totals.adds_up
    assert (totals.bucket("late"), totals.bucket("violation")) == (0, 0)
    write(place.inbox / "y" / "3.parquet", stable(None), columns=PRICED)
    place.merge(spark)
    truth = [(1, 3, "a", None), (2, 30, "b", None), (6, 9, "c", 2.5)]
    assert current(spark, place, "name", "price") == sorted(truth, key=str)
    rows = [dict(zip(("start", "end", "name", "price"), one, strict=True)) for one in truth]
    types = {"start": pa.int64(), "end": pa.int64(), **PRICED}
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(types)), place.root / "truth.parquet")
    assert check(place.output, place.root / "truth.parquet").ok


def test_a_column_is_dropped_and_files_may_still_have_it(spark: Any, place: Place) -> None:
    rows = (insert(1, 3, name="a", price=1.0), insert(2, 20, name="b", price=2.0))
    write(place.inbox / "x" / "1.parquet", *rows, stable(5), columns=PRICED)
    place.merge(spark, case="r3", lanes=2)
    done = ab.upgrade(place.checkpoint, drop_columns=["price"], lanes=3, spark=spark)
    assert (done.added, done.dropped, done.lanes) == ((), ("price",), 3)
    write(place.inbox / "x" / "2.parquet", adjust(2, 20, 30, name="b"), columns=NAME)
    write(place.inbox / "y" / "1.parquet", insert(2, 30, name="b"), columns=NAME)
    other = insert(6, 9, name="c", price=7.0)
    write(place.inbox / "x" / "3.parquet", other, stable(None), columns=PRICED)
    totals = place.merge(spark)
    assert totals.adds_up
    assert totals.bucket("violation") == 0
    assert current(spark, place, "name") == [(1, 3, "a"), (2, 30, "b"), (6, 9, "c")]
    assert "price" not in ab.read_output(spark, place.output).columns
    assert check(place.output).ok


def put_lines(place: Place, file: str, *rows: dict[str, Any]) -> None:
    path = place.inbox / "x" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


def test_a_number_of_json_lines_keeps_the_type_of_the_run(spark: Any, place: Place) -> None:
    """Whole numbers at the first start: a later fraction is kept apart, with the reason."""
    put_lines(place, "1.jsonl", insert(1, 3, name="a", price=1), insert(2, 20, name="b"))
    place.merge(spark, case="r3", lanes=1)
    half = insert(3, 9, name="c", price=2.5)
    put_lines(place, "2.jsonl", half, insert(4, 9, name="d", price=2), stable(None))
    totals = place.merge(spark)
    assert totals.adds_up
    assert totals.bucket("violation") == 1
    assert current(spark, place, "name", "price") == [
        (1, 3, "a", 1),
        (2, 20, "b", None),
        (4, 9, "d", 2),
    ]
    [kept] = ab.read_output(spark, place.output, what="violations").collect()
    assert (kept.row, json.loads(kept.raw)) == (1, half)
    assert kept.reason.startswith("column 'price': 2.5 is not a whole number, but")


def test_lines_of_json_may_have_a_dropped_column_too(spark: Any, place: Place) -> None:
    def put(file: str, *rows: dict[str, Any]) -> None:
        put_lines(place, file, *rows)

    put("1.jsonl", insert(1, 3, name="a", price=1.5), insert(2, 20, name="b", price=2.5))
    place.merge(spark, case="r3", lanes=2)
    ab.upgrade(place.checkpoint, drop_columns=["price"], spark=spark)
    put("2.jsonl", adjust(2, 20, 30, name="b", price=2.5), stable(None))
    totals = place.merge(spark)
    assert totals.adds_up
    assert totals.bucket("violation") == 0
    assert current(spark, place, "name") == [(1, 3, "a"), (2, 30, "b")]


def test_events_that_become_equal_are_refused_and_the_run_goes_on(
    spark: Any, place: Place
) -> None:
    twins = (insert(2, 20, name="b", price=1.0), insert(2, 21, name="b", price=2.0))
    write(place.inbox / "x" / "1.parquet", *twins, stable(3), columns=PRICED)
    place.merge(spark, case="r3", lanes=2)
    with pytest.raises(Exception, match=r"without the column 'price' events .* become equal"):
        ab.upgrade(place.checkpoint, drop_columns=["price"], spark=spark)
    write(place.inbox / "x" / "2.parquet", stable(None), columns=PRICED)
    totals = place.merge(spark)
    assert totals.adds_up
    assert len(current(spark, place, "name", "price")) == 2


def test_what_cannot_change_is_refused_by_name(spark: Any, place: Place) -> None:
    write(place.inbox / "x" / "1.parquet", insert(2, 20, name="b"), stable(3), columns=NAME)
    place.merge(spark, case="r3", lanes=1)
    write(place.inbox / "x" / "2.parquet", insert(4, 20, name="b", price=1), columns=PRICED)
    with pytest.raises(SchemaError, match=r"1\.parquet: no column 'price', which .*2\.parquet"):
        place.prepare()
    write(place.inbox / "x" / "1b.parquet", stable(3), columns=NAME)
    for wrong, words in (
        (
            {"add_columns": {"name": "int"}},
            "a column 'name' of type string, and int is another",
        ),
        ({"add_columns": {"start": "int"}}, "'start' is the name of a column of elements"),
        ({"add_columns": {"x": "money"}}, "money"),
        ({"drop_columns": ["prise"]}, "no column 'prise' to drop; the run has name"),
        ({"drop_columns": ["name"]}, "the last payload column cannot be dropped"),
        ({}, "nothing to change"),
    ):
        with pytest.raises((UsageError, SchemaError), match=words):
            ab.upgrade(place.checkpoint, spark=spark, **wrong)
    (place.inbox / "x" / "1.parquet").rename(place.root / "1.parquet")
    (place.inbox / "x" / "1b.parquet").unlink()
    with pytest.raises(StateError, match=r"columns = name: string, .*--add-column NAME:TYPE"):
        place.prepare()
    assert "added" in json.loads((place.checkpoint / "_run.json").read_text())
