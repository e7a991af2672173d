"""What a silent copy may still mention is remembered for a while: on Spark, over restarts."""

from pathlib import Path
from typing import Any

import pytest
from test_heartbeats_spark import copies, put

import anabranch as ab
from anabranch.batch.schema import TimeType
from anabranch.batch.times import MICROSECONDS
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.policy import Policy
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.query.asked import Asked

HEARTBEATS = {"disorder": "10 seconds", "idle_after": "1 hour"}


def remembered(time: TimeType = TimeType.TIMESTAMP, *, gaps: bool = True, **asked: Any) -> Any:
    kept = asked.pop("kept", None)
    return Asked(**asked).settle(time, gaps=gaps, kept=kept).remember


def test_a_new_run_remembers_a_day_where_copies_have_gaps_and_timestamps() -> None:
    assert remembered() == MICROSECONDS["day"]
    assert remembered(policy=Policy.parse("stable_lag=2")) == MICROSECONDS["day"]
    assert remembered(gaps=False) is None
    assert remembered(TimeType.BIGINT) is None
    assert remembered(case=MergeCase.R0) is None
    assert remembered(remember="forever") is None
    assert remembered(remember="7 days") == 7 * MICROSECONDS["day"]
    assert remembered(TimeType.BIGINT, gaps=False, remember=20) == 20
    assert remembered(policy=Policy(gaps=True, remember=5)) == 5
    with pytest.raises(UsageError, match="remember '5': for timestamps a duration is"):
        remembered(remember=5)


def test_a_restart_keeps_what_the_run_remembers_unless_it_names_another() -> None:
    kept = Policy(gaps=True, remember=50)
    assert remembered(kept=kept) == 50
    assert remembered(kept=kept, policy=Policy.parse("stable_lag=2")) == 50
    assert remembered(kept=kept, gaps=True) == 50
    assert remembered(kept=kept, remember="forever") is None
    assert remembered(kept=Policy(gaps=True)) is None


@pytest.mark.spark
def test_a_copy_that_returns_is_recognised_as_far_as_is_remembered(
    spark: Any, tmp_path: Path
) -> None:
    ck = tmp_path / "ck"
    put(tmp_path / "east", 0, [(0, "r0"), (40, "r40")])
    put(tmp_path / "west", 0, [(0, "r0")])

    def start(**more: Any) -> Any:
        merged = ab.merge(*copies(spark, tmp_path, **HEARTBEATS), lanes=2, **more)
        return merged.start(ck, final=tmp_path / "final", interval="0 seconds")

    query = start(remember="100 seconds")
    try:
        query.query.processAllAvailable()
        query.pass_over("west")
        query.query.processAllAvailable()
        put(tmp_path / "east", 1, [(280, "r280"), (300, "r300"), (400, "r400")])
        query.query.processAllAvailable()
        # The frontier is 390: what ended before 290 is forgotten.
        put(tmp_path / "west", 1, [(40, "r40"), (300, "r300"), (310, "only west")])
        query.query.processAllAvailable()
        assert query.totals.adds_up
        west = query.totals.replicas["west"].buckets
        assert (west["absorbed"], west["late"], west["violation"]) == (2, 2, 0)
        assert query.change(remember="1 hour").now == "gaps=true,remember=3600000000"
    finally:
        query.stop()
    query = start()
    query.stop()
    found = runs.read(ck)
    assert found is not None
    assert found.policy == "gaps=true,remember=3600000000"
    assert len(found.settings) == 2
    late = {row.id: row.reason for row in spark.read.parquet(str(ck / "late")).collect()}
    assert late["r40"].startswith("further behind the output's frontier than `remember`")
    assert late["only west"].startswith("behind the output's frontier, and not known")
    for reason in late.values():
        assert "source west" in reason
        assert "behind the frontier 2026-01-01T00:06:30" in reason
        assert "bound: disorder 10 seconds" in reason
    assert sorted(row.id for row in spark.read.parquet(str(tmp_path / "final")).collect()) == [
        "r0", "r280", "r300", "r40"
    ]  # fmt: skip
