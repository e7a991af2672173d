"""The traps of LMerge's Algorithms R0, R1 and R2, each by its number in the errata.

Starts of an ordered merge are spread over the lanes, and a lane sees only its own: what is
compared with the greatest start of all is shown where there is one lane.
"""

from functools import partial

import pytest
from ordered_driver import Kernel, Reference
from stepped import emits, events, feed, reasons_are

from anabranch.model.element import Insert
from anabranch.model.history import replay
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase

CASES = ["r0", "r1", "r2"]


@pytest.fixture
def make(local_engine):
    return partial(local_engine, "merge", lanes=1, check_every=1)


@pytest.fixture(params=CASES)
def merge(request, make):
    with make(case=request.param) as running:
        yield running


def test_lmerge_iv_the_first_copy_goes_out(merge):
    feed(merge, "1: insert a 1..3", "2: insert a 1..3; insert b 2..5; stable 2", "1: stable 1")
    emits(merge, "insert a 1..3; insert b 2..5; stable 2")
    reasons_are(merge, "FIRST KNOWN FIRST LEADS FOLLOWS")
    feed(merge, "1: insert b 2..5; stable forever")
    reasons_are(merge, "FIRST KNOWN FIRST LEADS FOLLOWS KNOWN LEADS")


def test_erratum_l5_no_insert_below_the_own_stable(merge):
    feed(merge, "1: stable 2", "2: insert a 1..3; insert b 2..3")
    emits(merge, "stable 2; insert b 2..3")
    reasons_are(merge, "LEADS LATE FIRST")


def test_erratum_l5_at_the_current_start_only_what_is_known_is_absorbed(make):
    for case in ("r1", "r2"):
        merge = make(case=case)
        feed(merge, "1: insert a 1..3; stable 2", "2: insert a 1..3; insert b 1..3")
        emits(merge, "insert a 1..3; stable 2")
        reasons_are(merge, "FIRST LEADS KNOWN LATE")


def test_erratum_l6_a_gap_among_equal_starts(make):
    for case in ("r1", "r2"):
        merge = make(case=case)
        feed(merge, "2: insert b 1..2", "1: insert a 1..2; insert b 1..2")
        emits(merge, "insert b 1..2; insert a 1..2")
        reasons_are(merge, "FIRST FIRST KNOWN")


def test_erratum_l6_duplicates_are_counted_per_replica(make):
    merge = make(case="r1")
    feed(merge, "1: insert a 1..2; insert a 1..2", "2: insert a 1..2; insert a 1..3")
    feed(merge, "2: insert a 1..2; insert a 1..2", "1: insert a 1..2")
    assert merge.history == events("a 1..2; a 1..2; a 1..2; a 1..3")
    reasons_are(merge, "FIRST FIRST KNOWN FIRST KNOWN FIRST KNOWN")


def test_erratum_l7_a_replica_that_left_is_still_on_the_output(merge):
    feed(merge, "2: insert a 1..2")
    merge.detach("2")
    feed(merge, "1: insert a 1..2")
    emits(merge, "insert a 1..2")


def test_erratum_l7_a_replica_that_returns_begins_with_nothing(merge):
    feed(merge, "3: insert a 1..2")
    merge.detach("3")
    merge.attach("3")
    feed(merge, "3: insert a 1..2")
    emits(merge, "insert a 1..2")
    reasons_are(merge, "FIRST KNOWN")


def test_erratum_l9_a_joining_replica_hides_nothing(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert b 2..9", "1: insert a 1..3; insert b 2..9")
    emits(merge, "insert a 1..3; insert b 2..9")
    reasons_are(merge, "HELD FIRST FIRST")
    feed(merge, "1: stable 3")
    # Behind the frontier, and the event of the current start: it is shown to be there.
    reasons_are(merge, "KNOWN FIRST FIRST LEADS")


def test_erratum_l9_positions_of_a_joining_replica_are_off(make):
    for case in ("r1", "r2"):
        merge = make(case=case)
        merge.attach("1")
        merge.attach("2", guarantee=5)
        feed(merge, "1: insert a 1..2", "2: insert b 1..9; insert c 1..9")
        feed(merge, "1: insert b 1..9; insert c 1..9; stable 5")
        assert merge.history == events("a 1..2; b 1..9; c 1..9")
        assert merge.account["2"]["pending"] == 0


def test_erratum_l9_what_was_held_comes_out_at_the_moment_of_joining(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert a 4..9; insert b 5..9; insert c 7..9; stable 7")
    assert merge.output == ()
    reasons_are(merge, "HELD HELD HELD JOINING")
    feed(merge, "1: insert x 2..3; stable 4")
    assert merge.account["2"]["pending"] == 3
    feed(merge, "1: stable 5")
    inserts = [e for e in merge.output if isinstance(e, Insert)]
    assert inserts == parse("insert x 2..3; insert b 5..9; insert c 7..9")
    # Its own stable counts at once, and a was behind the frontier.
    assert replay(merge.output).frontier == 7
    reasons_are(merge, "LATE FIRST FIRST JOINING", "FIRST LEADS LEADS")
    merge.detach("1")
    feed(merge, "2: insert d 8..9; stable forever")
    assert merge.history == events("x 2..3; b 5..9; c 7..9; d 8..9")


def test_erratum_l9_what_can_never_be_emitted_is_not_held(merge):
    merge.attach("1")
    merge.attach("2", guarantee=9)
    feed(merge, "1: insert x 5..6; stable 5", "2: insert a 3..9; insert x 5..6; insert b 6..9")
    reasons_are(merge, "FIRST LEADS PASSED HELD HELD")
    feed(merge, "1: stable 6")
    reasons_are(merge, "FIRST LEADS PASSED KNOWN HELD LEADS")


def test_erratum_l9_a_joining_replica_that_leaves_takes_what_was_held_with_it(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert a 6..9")
    merge.detach("2")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert b 6..9")
    merge.detach("2")
    merge.restart()
    feed(merge, "1: stable forever")
    reasons_are(merge, "ABANDONED ABANDONED LEADS")
    emits(merge, "stable forever")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", [Reference, Kernel, partial(Kernel, each=True)])
def test_a_joining_replica_can_be_promoted(form, case):
    """By hand, which engines do not have: there a policy promotes (see test_merge_promote)."""
    merge = form(MergeCase(case))
    merge.attach("1")
    merge.attach("2", guarantee=5)
    for name, text in (("1", "insert x 1..2; stable 2"), ("2", "insert a 3..9; stable 4")):
        for element in parse(text):
            merge.take(name, [element])
    merge.detach("1")
    merge.promote("2")
    merge.take("2", parse("insert b 5..6"))
    expected = parse("insert x 1..2; stable 2; insert a 3..9; stable 4; insert b 5..6")
    # A batch shows its stable last.
    assert replay(merge.output) == replay(expected)
    assert len(merge.output) == len(expected)
    names = [reason.name for reason in merge.reasons]
    assert names == ["FIRST", "LEADS", "FIRST", "JOINING", "FIRST"]


def test_behind_the_current_start_is_late_even_if_it_was_emitted(merge):
    feed(merge, "1: insert a 1..3; insert b 2..3", "2: insert a 1..3")
    reasons_are(merge, "FIRST FIRST PASSED")
    assert merge.account["2"]["late"] == 1


def test_broken_promises_change_nothing(merge):
    feed(merge, "1: insert a 3..5; adjust a 3..5->4; insert b 2..5; insert c 5..4; stable 4")
    feed(merge, "1: insert d 3..5; insert e 4..4; adjust a 3..5->5; stable 4; insert f 4..5")
    reasons_are(
        merge,
        "FIRST NOT_INSERT_ONLY OUT_OF_ORDER BACKWARDS LEADS",
        "BEHIND_STABLE NO_CHANGE NOT_INSERT_ONLY FOLLOWS FIRST",
    )
    emits(merge, "insert a 3..5; stable 4; insert f 4..5")


def test_equal_starts_are_a_violation_of_r0_only(make):
    for case, expected in (("r0", "SAME_START"), ("r1", "FIRST"), ("r2", "FIRST")):
        merge = make(case=case)
        feed(merge, "1: insert a 3..5; insert b 3..5")
        reasons_are(merge, "FIRST", expected)


def test_a_second_insert_is_a_violation_of_r2_only(make):
    merge = make(case="r2")
    feed(merge, "1: insert a 3..5; insert a 3..5; insert a 3..6", "2: insert a 3..5")
    reasons_are(merge, "FIRST SECOND_INSERT SECOND_INSERT KNOWN")
    emits(merge, "insert a 3..5")


def test_another_event_in_its_place_is_late_and_a_conflict(make):
    for case, text in (
        ("r0", "insert b 3..5"),
        ("r0", "insert a 3..6"),
        ("r2", "insert a 3..6"),
    ):
        merge = make(case=case)
        feed(merge, "1: insert a 3..5", f"2: {text}")
        reasons_are(merge, "FIRST OTHER_EVENT")
        assert merge.account["2"]["late"] == 1
        assert merge.counts["conflicts"] == 1
        emits(merge, "insert a 3..5")


def test_erratum_d21_one_stable_per_step(merge):
    text = "insert a 1..3; stable 1; insert b 2..5; stable 2; stable 3; insert c 3..4"
    merge.push("1", text)
    merge.cut()
    if merge.name == "reference":
        emits(merge, text)
        return
    emits(merge, "insert a 1..3; insert b 2..5; insert c 3..4; stable 3")
    reasons_are(merge, "FIRST FOLLOWS FIRST FOLLOWS LEADS FIRST")
