"""A run that changes its policy in place: by an entry of the control log, at a trigger."""

from pathlib import Path
from typing import Any

import pytest
from merge_place import Place
from test_upgrade import SHAPES, forget_last_commit, give, held_back, judge

import anabranch as ab
from anabranch.errors import UsageError
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.checkpoint.control_log import FOLDER, ControlLog
from anabranch.spark.write.records import read_records, record_files

pytestmark = pytest.mark.spark

POLICIES = [
    "inserts=quorum(1.0)",
    "gaps=true,wait=40",
    "adjusts=always,stable_lag=3",
    "default",
]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path)
    found.generate("r3", events=400, file_rows=60, **SHAPES["r3"])
    return found


def run_of(place: Place) -> runs.Run:
    run = runs.read(place.checkpoint)
    assert run is not None
    return run


def policies(place: Place) -> dict[int, set[str]]:
    """The policy that the lanes had at the end of each trigger, by their own records."""
    found: dict[int, set[str]] = {}
    for trigger, file in record_files(place.output / "progress").items():
        for record in read_records(file):
            found.setdefault(trigger, set()).add(record.operators["merge"].facts["policy"])
    return found


def test_a_restart_with_another_policy_changes_it(spark: Any, place: Place) -> None:
    """Each change after a trigger that was written and not committed: that keeps its own."""
    files = held_back(place, 1)
    place.merge(spark, case="r3", policy=POLICIES[-1])
    for policy in POLICIES:
        forget_last_commit(place)
        give(files, len(files) // 4 + 1)
        # Gaps belong to the policy: what a policy does not name stays as it was.
        gaps = "gaps=true" in policy
        query = place.prepare(case="r3", policy=policy, gaps=gaps).start(spark, once=True)
        query.wait()
        assert query.totals.adds_up
        assert run_of(place).policy == policy
    give(files, len(files))
    totals = place.merge(spark)
    judge(place, totals.rows)
    settings = run_of(place).settings
    assert [policy for _, policy in settings] == ["default", *POLICIES]
    seen = policies(place)
    assert len(seen) == totals.triggers
    assert all(len(some) == 1 for some in seen.values()), "lanes differ in one trigger"
    for trigger, (policy,) in seen.items():
        assert policy == [p for first, p in settings if first <= trigger][-1], trigger
    assert runs.read(place.output) == run_of(place)


def test_a_query_that_runs_changes_its_policy(spark: Any, place: Place) -> None:
    files = held_back(place, 1)
    query = place.prepare(case="r3").start(spark, interval="0 seconds")
    assert query.query is not None
    try:
        for policy in ("inserts=quorum(1.0)", "adjusts=follow_leader"):
            query.query.processAllAvailable()
            changed = query.change(policy=policy)
            assert changed is not None
            assert changed.now == policy
            assert query.change(policy=policy) is None
            query.query.processAllAvailable()
            assert policies(place)[changed.trigger] == {policy}
            give(files, 3)
        with pytest.raises(UsageError, match="violations=raise takes effect only at a start"):
            query.change(policy="violations=raise")
        query.change(gaps=True, wait=20)
        assert run_of(place).policy == "adjusts=follow_leader,gaps=true,wait=20"
        give(files, len(files))
    finally:
        query.stop()
    totals = place.merge(spark)
    judge(place, totals.rows)


def test_killed_between_the_entry_and_the_record_the_change_is_made(
    spark: Any, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a first trigger that had begun with the old policy ends with it."""
    files = held_back(place, 1)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    def failed(*_: Any) -> None:
        # Not KeyboardInterrupt: it ends the thread of Py4J, and Spark waits for its answer.
        message = "the writer stops here"
        raise RuntimeError(message)

    with monkeypatch.context() as patched:
        patched.setattr("anabranch.spark.run.write_trigger.TriggerWriter.write", failed)
        with pytest.raises(Exception, match="FOREACH_BATCH_USER_FUNCTION_ERROR"):
            place.merge(spark, case="r3", policy="stable_lag=2")
    assert (runs.last_begun(place.checkpoint, run_of(place)), run_of(place).begun) == (0, -1)
    with monkeypatch.context() as patched:
        patched.setattr("anabranch.spark.run.prepare.Prepared.record_settings", killed)
        with pytest.raises(KeyboardInterrupt):
            place.prepare(policy="inserts=quorum(1)", gaps=False).start(spark, once=True)
    log = ControlLog(place.checkpoint / FOLDER)
    assert log.settings == [(1, "inserts=quorum(1.0)")]
    assert run_of(place).policy == "stable_lag=2"
    prepared = place.prepare()
    assert prepared.run.policy == "inserts=quorum(1.0)"
    prepared.start(spark, once=True).wait()
    assert run_of(place).settings == ((0, "stable_lag=2"), (1, "inserts=quorum(1.0)"))
    assert ControlLog(place.checkpoint / FOLDER).settings == log.settings, "no second entry"
    seen = policies(place)
    assert (seen[0], seen[1]) == ({"stable_lag=2"}, {"inserts=quorum(1.0)"})
    give(files, len(files))
    judge(place, place.merge(spark).rows)


def test_an_upgrade_takes_a_change_along_that_no_trigger_took(spark: Any, place: Place) -> None:
    files = held_back(place, 1)
    place.merge(spark, case="r3")
    ControlLog(place.checkpoint / FOLDER).change("inserts=leader", 1)
    ab.upgrade(place.checkpoint, lanes=3, spark=spark)
    assert place.prepare().run.policy == "inserts=leader"
    give(files, len(files))
    judge(place, place.merge(spark).rows)
    assert policies(place)[1] == {"inserts=leader"}


def test_what_a_case_has_not_is_refused_and_nothing_changes(spark: Any, place: Place) -> None:
    place.merge(spark, case="r4")
    before = run_of(place)
    with pytest.raises(UsageError, match=r"case R4 has no inserts=leader: .*--case r3"):
        place.prepare(policy="inserts=leader")
    assert run_of(place) == before
