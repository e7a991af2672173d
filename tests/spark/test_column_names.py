"""Columns with dots and backticks in their names, from DataFrames to outputs."""

from pathlib import Path
from typing import Any

import pytest

import anabranch as ab

pytestmark = pytest.mark.spark

DOTTED = (
    "kind string, start bigint, end bigint, old_end bigint, `o.rder` bigint, "
    "`a.b` string, `c``d` string"
)
ELEMENTS = [
    ("insert", 1, 9, None, 1, "x", "p"),
    ("adjust", 1, 7, 9, 2, "x", "p"),
    ("insert", 2, 5, None, 3, "y", "q"),
]
PLAIN = "`ts.start` bigint, `a.b` bigint, `c``d` string, `k.ey` string"
ROWS = [(1, 5, "x", "k"), (2, 6, "y", "k")]


def test_a_stream_with_such_names_is_merged_written_and_read(
    spark: Any, tmp_path: Path
) -> None:
    spark.createDataFrame(ELEMENTS, DOTTED).coalesce(1).write.parquet(str(tmp_path / "in"))
    source = spark.readStream.schema(DOTTED).parquet(str(tmp_path / "in"))
    copies = [ab.elements(source, order="o.rder", name=name) for name in ("east", "west")]
    started = ab.merge(*copies, lanes=2).start(
        tmp_path / "ck", output=tmp_path / "out", changes=tmp_path / "changes", once=True
    )
    started.wait()
    out = ab.read_output(spark, tmp_path / "out")
    assert out.columns[-2:] == ["a.b", "c`d"]
    now = ab.read_output(spark, tmp_path / "out", what="current")
    assert sorted(map(tuple, now.collect())) == [(1, 7, "x", "p"), (2, 5, "y", "q")]
    assert spark.read.parquet(str(tmp_path / "changes")).columns[4:6] == ["a.b", "c`d"]


@pytest.mark.parametrize(
    ("options", "ends"),
    [
        ({"lifetime": 3}, [4, 5]),
        ({"end": "a.b"}, [5, 6]),
        ({"replaced_by": "k.ey"}, [2, None]),
        ({"lifetime": 3, "order": "c`d"}, [4, 5]),
        ({"lifetime": 3, "order": ["k.ey", "a.b"]}, [4, 5]),
        ({"lifetime": 3, "replica": "k.ey", "seq": "a.b"}, [4, 5]),
        ({"lifetime": 3, "rename": {"a.b": "x.`y"}}, [4, 5]),
    ],
)
def test_every_option_of_events_takes_such_names(
    spark: Any, options: dict[str, Any], ends: list[int | None]
) -> None:
    df = spark.createDataFrame(ROWS, PLAIN)
    final = ab.merge(ab.events(df, start="ts.start", **options), lanes=1).final()
    rows = sorted(map(tuple, final.collect()))
    assert [row[:2] for row in rows] == [(1, ends[0]), (2, ends[1])]
    if "rename" in options:
        assert final.columns == ["start", "end", "x.`y", "c`d", "k.ey"]


def test_the_groups_of_a_window_query_may_have_such_names(spark: Any) -> None:
    df = spark.createDataFrame(ROWS, PLAIN)
    ran = ab.windows_run(
        df, like="spark-update", time="ts.start", size=4, slide=4, value="a.b", agg="sum",
        group_by=["c`d", "k.ey"],
    )  # fmt: skip
    assert ran.results().columns[:2] == ["c`d", "k.ey"]
    assert sorted(row[0] for row in ran.results().collect()) == ["x", "y"]
