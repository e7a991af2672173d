"""Views of queries: update pairs by key, every version, ends that are found, refusals."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import anabranch as ab
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.pictures import draw_query

pytestmark = pytest.mark.spark

ROWS = [("a", 1, 9, 1.0), ("b", 2, 8, 2.0), ("a", 4, 6, 3.0), ("a", 4, 12, 5.0)]
COLUMNS = "k string, s bigint, e bigint, v double"


def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(ROWS, COLUMNS)


def in_triggers(spark: SparkSession, folder: Path):  # type: ignore[no-untyped-def]
    """A stream of the rows, one file more at each step."""
    folder.mkdir()
    stream = spark.readStream.schema(COLUMNS).parquet(str(folder))
    for row in ROWS:
        spark.createDataFrame([row], COLUMNS).coalesce(1).write.mode("append").parquet(
            str(folder)
        )
        yield stream


@pytest.mark.filterwarnings("ignore:query. these streams have no stables")
def test_with_a_key_a_changed_value_is_an_update_pair(
    spark: SparkSession, tmp_path: Path
) -> None:
    for stream in in_triggers(spark, tmp_path / "in"):
        counted = ab.events(stream, start="s", end="e").group_by("k").aggregate(n=ab.count())
        counted.start(
            tmp_path / "ck", changes=tmp_path / "changes", output=tmp_path / "out", once=True,
            key="k",
        ).wait(120)  # fmt: skip
    found = spark.read.parquet(str(tmp_path / "changes")).orderBy("seq").collect()
    last = max(row._commit_version for row in found)
    at_last = [
        (r._change_type, r.k, r.start, r.end, r.n) for r in found if r._commit_version == last
    ]
    # [4, 6) had two events and now has three; [6, 9) had one, now two; [9, 12) is new.
    assert ("update_preimage", "a", 4, 6, 2) in at_last
    assert ("update_postimage", "a", 4, 6, 3) in at_last
    assert ("update_preimage", "a", 6, 9, 1) in at_last
    assert ("update_postimage", "a", 6, 9, 2) in at_last
    assert ("insert", "a", 9, 12, 1) in at_last
    assert Counter(word for word, *_ in at_last)["update_preimage"] == 2
    versions = ab.read_output(spark, tmp_path / "out", what="history")
    now = ab.read_output(spark, tmp_path / "out", what="current")
    kept = versions.where("_to_version is null").drop("_from_version", "_to_version")
    assert sorted(map(tuple, kept.collect())) == sorted(map(tuple, now.collect()))
    gone = versions.where("k = 'a' and start = 4 and n = 2").first()
    assert gone._from_version < gone._to_version == last
    assert versions.where("_from_version is null").count() == 0


def test_a_key_that_is_not_that_of_the_last_group_by_is_rejected(spark: SparkSession) -> None:
    stream = ab.events(rows(spark), start="s", end="e")
    counted = stream.group_by("k").aggregate(n=ab.count())
    with pytest.raises(UsageError, match=r"key=\['n'\], and the last step groups by \['k'\]"):
        counted.changes(key="n")
    with pytest.raises(SchemaError, match="no column 'nope' for key="):
        counted.changes(key="nope")
    with pytest.raises(UsageError, match="does not group by columns"):
        stream.where("v > 0").changes(key="k")


def test_rows_of_a_stream_live_until_the_next_of_their_key(
    spark: SparkSession, tmp_path: Path
) -> None:
    for stream in in_triggers(spark, tmp_path / "in"):
        priced = ab.events(stream.drop("e"), start="s", replaced_by="k").select("k", "v")
        with pytest.warns(UserWarning, match="query: these streams have no stables"):
            query = priced.start(tmp_path / "ck", output=tmp_path / "out", once=True)
        query.wait(120)
        assert "source source has no stables, so nothing becomes final" in priced.explanation
        with pytest.raises(UsageError, match="is a stream with replaced_by"):
            ab.merge(ab.events(stream.drop("e"), start="s", replaced_by="k"))
    now = ab.read_output(spark, tmp_path / "out", what="current").collect()
    assert [(r.start, r.end, r.k, r.v) for r in now if r.end is not None] == [(1, 4, "a", 1.0)]
    assert sorted((r.k, r.start, r.v) for r in now if r.end is None) == [
        ("a", 4, 5.0),
        ("b", 2, 2.0),
    ]


def test_a_filter_may_change_only_where_nothing_before_it_remembers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An adjust would meet an event that the old filter dropped; plain rows have no adjusts."""
    (tmp_path / "in").mkdir()
    stream = spark.readStream.schema(COLUMNS).parquet(str(tmp_path / "in"))
    elements = stream.selectExpr(
        "'insert' kind", "s start", "e end", "cast(null as bigint) old_end", "k", "v"
    )
    rows(spark).coalesce(1).write.mode("append").parquet(str(tmp_path / "in"))
    for name, made in {
        "el": ab.elements(elements),
        "ev": ab.events(stream, start="s", end="e"),
    }.items():
        made.where("v > 2").start(
            tmp_path / name, changes=tmp_path / f"{name}-out", once=True
        ).wait(120)
        other = made.where("v > 1")
        if name == "el":
            with pytest.raises(StateError, match=r"steps = .*where"):
                other.start(tmp_path / name, changes=tmp_path / f"{name}-out", once=True)
        else:
            other.start(tmp_path / name, changes=tmp_path / f"{name}-out", once=True).wait(120)


def test_functions_that_do_not_depend_on_the_row_alone_are_rejected(
    spark: SparkSession,
) -> None:
    stream = ab.events(rows(spark), start="s", end="e")
    is_even = f.udf(lambda v: v % 2 == 0, "boolean")
    assert "<lambda>(...)" in stream.where(is_even("v")).explanation
    for given in (is_even.asNondeterministic()("v"), f.expr("length(uuid()) > 3")):
        with pytest.raises(UsageError, match="random or nondeterministic function"):
            stream.where(given)
    with pytest.raises(UsageError, match="calls unix_timestamp"):
        stream.where("unix_timestamp() > 5")


def test_durations_are_rejected_by_the_name_of_their_call(spark: SparkSession) -> None:
    stream = ab.events(rows(spark), start="s", end="e")
    with pytest.raises(UsageError, match="alter_lifetime: lifetime is -1; it must be greater"):
        stream.alter_lifetime(lifetime=-1)
    with pytest.raises(UsageError, match=r"round_to=5 moves starts back .* longer_by= of at"):
        stream.alter_lifetime(round_to=5)
    with pytest.raises(UsageError, match="permit it with gaps_between=True"):
        stream.window(2, 4)
    apart = stream.window(2, 4, gaps_between=True).group_by("k").aggregate(n=ab.count())
    assert sorted((r.start, r.k, r.n) for r in apart.final().collect()) == [
        (0, "a", 1),
        (4, "a", 2),
    ]
    with pytest.raises(UsageError, match="hop: slide is 0; it must be greater than 0"):
        stream.hop(4, 0)
    timed = spark.createDataFrame([("a", 1)], "k string, n int").selectExpr(
        "timestamp'2026-01-01 00:00:10' t", "k"
    )
    earlier = ab.events(timed, start="t", lifetime="5 seconds").alter_lifetime(
        shift="-10 seconds"
    )
    assert earlier.final().first().start.second == 0


def test_a_select_keeps_windows_if_it_keeps_the_column_as_it_is(spark: SparkSession) -> None:
    windows = ab.events(rows(spark), start="s", end="e").window(4, 2)
    assert windows.where("v > 0").node.in_windows
    for kept in ("window", f.col("window"), "`window`"):
        counted = windows.select("v as w", kept).group_by("w").aggregate(n=ab.count())
        assert counted.columns == ["w", "window", "n"]
    for changed in (
        f.col("window.start").alias("at"),
        f.col("window").alias("at"),
        "v as window",
    ):
        assert not windows.select("k", changed).node.in_windows


def test_two_streams_of_one_name_are_rejected(spark: SparkSession) -> None:
    one, two = (ab.events(rows(spark), start="s", end="e", name="trades") for _ in range(2))
    with pytest.raises(UsageError, match="two streams of this query are called trades"):
        one.union(two).changes()


def test_a_query_is_drawn_with_its_stages(spark: SparkSession) -> None:
    stream = ab.events(rows(spark), start="s", end="e", name="trades")
    query = stream.where("v > 0").group_by("k").aggregate(n=ab.count())
    picture = draw_query(query)
    assert picture.startswith("<svg")
    assert all(word in picture for word in ("trades", "aggregate", "where", "merge by R3"))


def test_explain_has_what_sources_and_steps_promise(spark: SparkSession) -> None:
    def promised(query: ab.Query) -> dict[str, str]:
        lines = query.explanation.splitlines()
        found = {}
        for line in lines:
            if line.startswith("  ") and line[2] != " ":
                step = line.split(":")[0].strip()
            if "promises" in line:
                found[step] = line.strip()
        return found

    plain = ab.events(rows(spark), start="s", end="e", name="trades")
    keyed = ab.events(rows(spark), start="s", end="e", name="trades", key=["k", "v"])
    counted = promised(plain.group_by("k").aggregate(n=ab.count()))
    assert counted == {
        "trades": "promises insert_only; replicas of it merge by case R4",
        "aggregate": "promises keyed; replicas of it merge by case R3",
    }
    only = "promises insert_only, keyed; replicas of it merge by case R3"
    assert promised(keyed.select("k", "v", one_to_one=True)) == {"trades": only, "output": only}
    assert promised(keyed.select("k"))["output"].startswith("promises insert_only; ")
    both = ab.merge(plain, replace(plain, name="copy"), gaps=True).where("v > 0")
    assert promised(both)["merge"] == "promises nothing; replicas of it merge by case R4"
