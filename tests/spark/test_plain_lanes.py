"""Plain rows of an inbox, from files to lanes, without Spark: watch, log, packers and lanes."""

import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lanes_driver import SCHEMA, Runtime

from anabranch.errors import StateError, UsageError
from anabranch.model.element import Event, Stable
from anabranch.model.history import History
from anabranch.model.time import FOREVER
from anabranch.operators.route import Routing
from anabranch.sources.inbox import inbox
from anabranch.sources.plain import PlainRows
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.columns import reshape_of
from anabranch.spark.checkpoint.control_log import ControlLog, Entry, groups
from anabranch.spark.pack.files import FilesSpec, pack_files
from anabranch.spark.pack.parcels import from_row
from anabranch.spark.query.asked import Asked
from anabranch.spark.query.merge import build
from anabranch.spark.query.merged import Merged
from anabranch.spark.run.prepare import Prepared, prepare

COLUMNS = pa.schema({"at": pa.int64(), "name": pa.string()})
ROW = st.tuples(st.integers(0, 20), st.sampled_from("abc"))


def put(folder: Path, rows: list[tuple[int | None, str]], file: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    named = [dict(zip(COLUMNS.names, row, strict=True)) for row in rows]
    if file.endswith(".parquet"):
        table = pa.Table.from_pylist(named, schema=COLUMNS)
        pq.write_table(table, folder / file, row_group_size=2)
    else:
        (folder / file).write_text("".join(json.dumps(row) + "\n" for row in named))


def merge_of(folder: Path, lanes: int = 2, **options: Any) -> Merged:
    return build([inbox(folder, start="at", **options)], Asked(lanes=lanes))


def trigger(runtime: Runtime, merged: Merged, entries: list[Entry]) -> None:
    """What one trigger does with these entries of the log."""
    files = tuple(merged.copies._files(one) for one in merged.copies.inboxes)
    spec = FilesSpec(files, merged.schema, merged.lanes, Routing.of(merged.operator))
    rows = pa.RecordBatch.from_pylist([asdict(one) for one in entries])
    packed = [row for batch in pack_files(spec, iter([rows])) for row in batch.to_pylist()]
    runtime.commit([from_row(row, lambda _: SCHEMA, None) for row in packed])


@given(
    rows=st.lists(ROW, min_size=1, max_size=12),
    cut=st.integers(0, 12),
    lifetime=st.integers(1, 9),
    limit=st.integers(1, 400),
    lanes=st.integers(1, 3),
    suffix=st.sampled_from(["parquet", "jsonl"]),
)
def test_copies_of_plain_rows_become_final_when_they_are_complete(
    rows: list[tuple[int, str]], cut: int, lifetime: int, limit: int, lanes: int, suffix: str
) -> None:
    """Two copies with gaps, in pieces of any size: each event once, then all of them final."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        put(folder / "east", list(rows[: max(1, cut)]), f"1.{suffix}")
        put(folder / "west", list(reversed(rows)), f"1.{suffix}")
        merged = merge_of(folder, lanes, lifetime=lifetime)
        runtime = Runtime(merged.spec(final=True))
        log = ControlLog(None)
        (watch,) = merged.watches(log, merged.copies.founders, limit)
        watch.advance()
        for group in groups(log.entries, limit):
            trigger(runtime, merged, group)
        assert not any(isinstance(one, Stable) for one in runtime.output())
        assert runtime.final() == []
        taken = len(log.entries)
        watch.advance(complete=True)
        watch.advance(complete=True)  # what has ended does not end again
        assert len(log.entries) == taken + 2
        trigger(runtime, merged, log.entries[taken:])
        expected = [Event(name, at, at + lifetime) for at, name in rows]
        assert sorted(runtime.final(), key=repr) == sorted(expected, key=repr)
        assert runtime.output()[-1] == Stable(FOREVER)
        assert sorted(History.of(runtime.output()).events(), key=repr) == sorted(
            expected, key=repr
        )
        assert runtime.totals.adds_up
        assert runtime.totals.rows == max(1, min(cut, len(rows))) + len(rows) + 2


def test_rows_after_the_end_are_violations(tmp_path: Path) -> None:
    put(tmp_path / "east", [(1, "a")], "1.parquet")
    merged = merge_of(tmp_path)
    log, runtime = ControlLog(None), Runtime(merged.spec(final=True))
    (watch,) = merged.watches(log, merged.copies.founders)
    watch.advance(complete=True)
    put(tmp_path / "east", [(2, "b"), (None, "c")], "2.parquet")
    watch.advance()
    trigger(runtime, merged, log.entries)
    assert [one.payload for one in runtime.final()] == ["a"]
    assert runtime.totals.bucket("violation") == 2
    assert runtime.totals.adds_up
    kept = [row.origin for row in runtime.rows if row.channel == "violations"]
    found = pa.concat_tables(kept).to_pylist()
    assert {one["raw"] for one in found} == {None, '{"at": null, "name": "c"}'}
    assert [one["file"] for one in found] == ["east/2.parquet"] * 2


def test_plain_rows_may_have_gaps_and_are_kept_twice(tmp_path: Path) -> None:
    put(tmp_path / "in" / "east", [(1, "a"), (1, "a")], "1.parquet")
    merged = merge_of(tmp_path / "in")
    assert merged.copies.keep_duplicates
    assert "copies may have gaps" in merged.explanation
    assert "nothing becomes final unless complete=True ends the replicas" in merged.explanation
    prepared = prepare(merged, str(tmp_path / "ck"), {})
    prepared.require_completable(once=True)
    with pytest.raises(UsageError, match=r"--complete .* needs --once"):
        prepared.require_completable(once=False)


def test_a_restart_with_other_times_is_rejected_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "in" / "east"
    folder.mkdir(parents=True)
    times = dict.fromkeys(("at", "to", "until"), pa.int64())
    pq.write_table(
        pa.schema({**times, "name": pa.string()}).empty_table(), folder / "1.parquet"
    )

    def start(**columns: Any) -> Prepared:
        merged = build([inbox(tmp_path / "in", **columns)], Asked(lanes=2))
        return prepare(merged, str(tmp_path / "ck"), {})

    (tmp_path / "ck").mkdir()
    runs.write(start(start="at", lifetime=5).run, tmp_path / "ck")
    start(start="at", lifetime="5")
    for columns, message in [
        ({"start": "to", "lifetime": 5}, r"starts = at, but .* has to; the column of --time"),
        ({"start": "at", "lifetime": 6}, r"lengths = 5, but .* has 6; --lifetime"),
        ({"start": "at", "end": "to"}, r"ends = nothing, but .* has to; the column of --end"),
    ]:
        with pytest.raises(StateError, match=message):
            start(**columns)
    run = runs.read(tmp_path / "ck")
    assert run is not None
    assert run.plain(0) == PlainRows("at")
    with pytest.raises(UsageError, match="'at' is the column of the rows' times"):
        reshape_of(run, {"at": "bigint"}, ())
