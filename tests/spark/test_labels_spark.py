"""Figure 5 of the paper on heartbeats, on Spark: who waits for a source that is silent."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import anabranch as ab
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark

COLUMNS = "kind string, start bigint, end bigint, old_end bigint, k string, {} bigint"


class Source:
    """A stream of elements in a folder, to which a trigger adds a file."""

    def __init__(self, spark: SparkSession, root: Path, name: str) -> None:
        self.name, self.column, self.files = name, f"v_{name}", 0
        self.folder = root / name
        self.folder.mkdir()
        self._stream = spark.readStream.schema(COLUMNS.format(self.column))

    @property
    def stream(self) -> ab.Stream:
        return ab.elements(self._stream.parquet(str(self.folder)), name=self.name, order="file")

    def send(self, first: int, last: int, *, copies: int = 1) -> None:
        """Events that live for 4, and a stable behind them."""
        rows: list[dict[str, Any]] = [
            {"kind": "insert", "start": start, "end": start + 4, "k": "k", self.column: number}
            for start in range(first, last)
            for number in range(copies)
        ]
        rows.append({"kind": "stable", "start": last})
        types = {"kind": pa.string(), "k": pa.string()}
        names = ["kind", "start", "end", "old_end", "k", self.column]
        schema = pa.schema([(name, types.get(name, pa.int64())) for name in names])
        self.files += 1
        place = self.folder / f"{self.files:03}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), place)


Sources = tuple[Source, Source, Source]


@pytest.fixture
def figure_5(spark: SparkSession, tmp_path: Path) -> tuple[Sources, Callable[..., Query]]:
    """S1, S2 and S3, and the plan that joins the first two, then the third."""
    made = tuple(Source(spark, tmp_path, name) for name in ("S1", "S2", "S3"))
    s1, s2, s3 = made

    def build(**declared: float) -> Query:
        first = s1.stream.join(s2.stream, on="k", id="O1")
        if declared:
            first = first.selectivity(declared["selectivity"])
        return first.join(s3.stream, on="k", id="O2")

    return made, build  # type: ignore[return-value]


def trigger(query: Query, at: Path) -> dict[str, dict[str, Any]]:
    """One more trigger, and its record of each step."""
    seen: list[Any] = []
    running = query.start(at, final=at.parent / "final", once=True, on_trigger=seen.append)
    assert running.wait(120)
    assert running.totals.adds_up
    [last] = ab.progress(running.query)
    return {one["step"]: one for one in last["steps"]}


def test_figure_5_what_joins_two_lively_sources_emits_stables_and_frees_its_state(
    figure_5: tuple[Sources, Callable[..., Query]], tmp_path: Path
) -> None:
    (s1, s2, s3), build = figure_5
    lines = build().explanation.splitlines()
    assert "    frontier follows S1, S2" in lines
    assert "    frontier follows S1, S2, S3" in lines
    s3.send(0, 1)
    live = []
    for first in (0, 20, 40):
        for one in (s1, s2):
            one.send(first, first + 20)
        steps = trigger(build(), tmp_path / "ck")
        live.append(steps["O1"]["live"])
        assert steps["O1"]["frontier"] == first + 20
        assert steps["O1"]["made"] > 20
        assert steps["O1"]["label"] == ["S1", "S2"]
        assert steps["O1"]["held_by"] == ["S1", "S2"]
        assert steps["O2"]["frontier"] == 1
        assert steps["O2"]["label"] == ["S1", "S2", "S3"]
        assert steps["O2"]["held_by"] == ["S3"]
        assert steps["S3"]["held_by"] == ["S3"]
    assert max(live) <= 2 * 5, f"{live} of O1, whose events live for 4"
