"""Who is passed over, and when: the driver's rule, with a clock that the test turns."""

import pytest

from anabranch.spark.progress import ReplicaTotals, Totals
from anabranch.spark.run.patience import LONGEST_LOOK, Patience


def totals(**frontiers):
    """Copies at these frontiers; one with a minus sign before its name is passed over."""
    return Totals(
        replicas={
            name: ReplicaTotals(frontier=at, standing="ended" if at == "forever" else "joined")
            for name, at in frontiers.items()
        }
    )


def nobody():
    """No rows wait to be read."""
    return ()


def looks(patience, now, seconds, state, unread=()):
    """Look every second; when a copy is passed over, who, and after how many seconds."""
    for second in range(1, seconds + 1):
        found = patience.look(now + second, state, lambda: unread)
        if found:
            return second, found
    return None


def test_a_copy_that_holds_the_output_back_is_passed_over_after_the_limit():
    patience = Patience(30)
    assert patience.look(0, totals(east=5, west=5), nobody) == []
    assert looks(patience, 0, 100, totals(east=9, west=5)) == (31, ["west"])


def test_a_copy_that_is_always_a_little_behind_is_not():
    patience = Patience(30)
    for now in range(500):
        assert patience.look(now, totals(east=now + 10, west=now), nobody) == []


def test_a_copy_whose_progress_is_too_slow_is():
    """It moves, but what it reaches was reached by the other more than the limit ago."""
    patience, passed = Patience(30), []
    for now in range(200):
        passed += patience.look(now, totals(east=10 * now, west=now), nobody)
    assert passed[:1] == ["west"]


def test_time_with_unread_rows_and_while_the_machine_slept_does_not_count():
    patience, state = Patience(30), totals(east=9, west=5)
    assert looks(patience, 0, 200, state, unread={"west"}) is None
    assert looks(patience, 200, 15, state) is None
    assert patience.look(90_000, state, nobody) == [], f"at most {LONGEST_LOOK} s count"
    assert looks(patience, 90_000, 20, state) is not None


@pytest.mark.parametrize("east", ["forever", 7])
def test_nobody_is_passed_over_for_one_that_is_not_ahead(east):
    patience = Patience(30)
    assert looks(patience, 0, 100, totals(east=east, west=east)) is None


def test_a_copy_without_any_stable_holds_the_output_back_too():
    assert looks(Patience(5), 0, 100, totals(east=9, west=None)) == (6, ["west"])


def test_spark_is_asked_for_unread_rows_only_while_a_copy_holds_the_output_back():
    """A report of Spark's costs: an idle query does not ask for it five times a second."""
    asked = []
    patience, even, ahead = Patience(30), totals(east=5, west=5), totals(east=9, west=5)
    for now in range(100):
        patience.look(now, even, lambda: asked.append("even") or ())
    for now in range(100, 110):
        patience.look(now, ahead, lambda: asked.append("ahead") or ())
    assert asked == 9 * ["ahead"]
