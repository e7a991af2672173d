"""Replicas of queries on Spark: one history from other plans, triggers and sources."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from test_queries_spark import COLUMNS, events_of, frame

import anabranch as ab
from anabranch.errors import SchemaError, UsageError
from anabranch.model import StreamProperties
from anabranch.spark.query.query import Query

pytestmark = pytest.mark.spark

SEQ = f"{COLUMNS}, seq bigint"


def counted(stream: ab.Stream | Query | ab.Merged) -> Query:
    return stream.group_by("k").aggregate(n=ab.count(), total=ab.sum("v"))


def filtered_late(stream: ab.Stream) -> Query:
    """The same snapshots as those of `filtered_early`, by another plan."""
    return counted(stream).where("k <> 'c'")


def filtered_early(stream: ab.Stream) -> Query:
    return counted(stream.where("k <> 'c'"))


def test_replicas_of_batches_have_the_history_of_each(spark: SparkSession) -> None:
    stream = ab.elements(frame(spark), name="rows")
    one, two = filtered_early(stream), filtered_late(stream)
    both = ab.merge(one, two.select("total", "k", "n"), names=["early", "late"])
    assert both.columns == one.columns
    expected = events_of(one.normalise().changes().collect())
    assert events_of(both.changes().collect()) == expected
    assert len(both.final().collect()) == len(expected) > 0
    same = ab.merge(counted(stream), counted(stream), remember=100)
    assert "normalise" not in same.explanation
    assert events_of(same.changes(key="k").collect()) == events_of(
        counted(stream).changes().collect()
    )


PIECES = {
    # of each reader: the rows of its files, before and after a restart
    "points": (((0, 8),), ((8, 13),)),
    "runs": (((0, 2), (2, 5)), ((5, 9), (9, 13))),
}


def test_in_triggers_of_other_sizes_with_a_restart_they_have_the_history_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two readers of the same rows in other files, of which each trigger takes one of each."""
    build = {"points": counted, "runs": lambda stream: counted(stream).normalise()}
    expected = counted(ab.elements(frame(spark))).normalise()
    rows = frame(spark).orderBy("seq").collect()
    for attempt in range(2):
        replicas = []
        for name, made in build.items():
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            for first, last in PIECES[name][attempt]:
                some = spark.createDataFrame(rows[first:last], SEQ).coalesce(1)
                some.write.mode("append").parquet(str(folder))
            stream = spark.readStream.schema(SEQ).option("maxFilesPerTrigger", 1)
            replicas.append(made(ab.elements(stream.parquet(str(folder)), name=name)))
        query = ab.merge(*replicas, names=list(build))
        assert "    case R3: every plan promises keyed" in query.explanation
        running = query.start(
            tmp_path / "ck", changes=tmp_path / "changes", final=tmp_path / "final", once=True
        )
        assert running.wait(120)
        assert running.totals.adds_up
        output = running.totals.output
        assert (output["conflicts"], output["late"], output["violations"]) == (0, 0, 0)
        assert running.totals.triggers >= 2
    changes = spark.read.parquet(str(tmp_path / "changes")).orderBy("seq").collect()
    assert events_of(changes) == events_of(expected.changes().collect())
    final = spark.read.parquet(str(tmp_path / "final")).collect()
    assert sorted(map(str, final)) == sorted(map(str, expected.final().collect()))


def test_in_one_lane_ordered_streams_merge_by_r0(spark: SparkSession) -> None:
    """LMerge IV-G, example 1: what sources publish goes through the plan."""
    rows = [("insert", at, at + 2, "ab"[at % 2], at) for at in range(8)]
    rows.append(("stable", None, None, None, 8))
    df = spark.createDataFrame(
        rows, "kind string, start bigint, end bigint, k string, seq bigint"
    )
    known = StreamProperties(insert_only=True, strictly_increasing=True)

    def windows(name: str, lanes: int) -> Query:
        read = ab.elements(df, name=name, properties=known)
        return ab.merge(read, gaps=False, lanes=lanes).window(3)

    both = ab.merge(windows("east", 1), windows("west", 1))
    assert (
        "case R0: every plan promises insert_only and strictly_increasing" in both.explanation
    )
    expected = windows("east", 1).changes().collect()
    assert events_of(both.changes().collect()) == events_of(expected)
    assert len(both.final().collect()) == 8
    others = ab.merge(windows("east", 2), windows("west", 2))
    assert "case R3: every plan promises keyed" in others.explanation


def test_steps_that_are_called_alike_get_the_name_of_their_replica(spark: SparkSession) -> None:
    def build(stream: ab.Stream) -> Query:
        return stream.where("v > 0", id="good").group_by("k").aggregate(n=ab.count(), id="n_k")

    stream = ab.elements(frame(spark), name="rows")
    both = ab.merge(build(stream), build(stream), names=["one", "two"])
    for name in ("n_k_one", "n_k_two"):
        assert f"  {name}: " in both.explanation
    common = build(stream)
    both = ab.merge(common, common.where("n > 0", id="all"), names=["one", "two"])
    assert "  n_k: " in both.explanation
    assert both.join(common, on="k", how="semi").columns == ["k", "n"]


WRONG = [
    (lambda a, b: (a, counted(b)), {}, SchemaError, "'0' has the columns .* '1' has .*select"),
    (
        lambda a, b: (a, b.select("k", "cast(v as string) as v")),
        {"names": ["one", "two"]},
        SchemaError,
        "column 'v' is double in replica 'one', string in 'two'.*cast one in a select",
    ),
    (lambda a, b: (a, b), {"names": ["one"]}, UsageError, "for 2 queries; give a list"),
    (lambda a, b: (a, b), {"names": ["x", "x"]}, UsageError, "'x' is empty or there twice"),
    (
        lambda a, b: (a, b),
        {"gaps": True, "lanes": 2},
        UsageError,
        "gaps=, lanes= is for",
    ),
    (
        lambda a, b: (a, b),
        {"policy": "gaps=true"},
        UsageError,
        "gaps=true is for copies",
    ),
    (lambda a, b: (a, b), {"case": "r3"}, UsageError, "plan of replica '0' does not promise"),
    (lambda a, b: (a, b), {"policy": "adjusts=always"}, UsageError, "case R4 has no adjusts"),
]


@pytest.mark.parametrize(("inputs", "how", "error", "shown"), WRONG)
def test_queries_that_cannot_be_replicas_are_rejected_when_they_are_built(
    inputs, how, error, shown, spark: SparkSession
) -> None:  # type: ignore[no-untyped-def]
    one, two = (ab.elements(frame(spark), name=name).where("v > 0") for name in "ab")
    with pytest.raises(error, match=shown):
        ab.merge(*inputs(one, two), **how)


def test_inputs_of_other_kinds_are_rejected(spark: SparkSession, tmp_path: Path) -> None:
    rows = frame(spark)
    rows.coalesce(1).write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema(SEQ).parquet(str(tmp_path / "in"))
    query = ab.elements(stream, name="live").where("v > 0")
    with pytest.raises(UsageError, match="source 'table' is a batch beside streams"):
        ab.merge(query, ab.elements(rows, name="table").where("v > 0"))
    with pytest.raises(UsageError, match="two streams of this query are called live"):
        ab.merge(query, ab.elements(stream, name="live").where("v > 0"))
    at = "timestamp_seconds(start) as at"
    timed = ab.events(
        rows.where("start > 0").selectExpr(at, "k", "v"), start="at", lifetime="1 second"
    )
    with pytest.raises(SchemaError, match="times are bigint in replica '0', timestamp in '1'"):
        ab.merge(ab.elements(rows).where("v > 0"), timed)
    with pytest.raises(UsageError, match=r"names=\['x'\] is for queries"):
        ab.merge(ab.elements(rows), names=["x"])
    with pytest.raises(UsageError, match="an input"):
        ab.merge(query, "rows")
