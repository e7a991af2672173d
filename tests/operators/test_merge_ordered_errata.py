"""The traps of LMerge's Algorithms R0, R1 and R2, each by its number in the errata."""

import pytest
from ordered_driver import Kernel, Reference

from anabranch.model.element import Insert
from anabranch.model.history import History, replay
from anabranch.model.notation import parse, parse_events
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Bucket, Reason

R0, R1, R2 = MergeCase.R0, MergeCase.R1, MergeCase.R2

FORMS = {
    "reference": Reference,
    "element": lambda case: Kernel(case, each=True),
    "batch": Kernel,
}


@pytest.fixture(params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture(params=[R0, R1, R2], ids=lambda case: case.value)
def merge(request, form):
    return form(request.param)


def feed(merge, *arrivals):
    """`2: insert a 1..3` is an element of replica 2, one step each."""
    for arrival in arrivals:
        name, text = arrival.split(":")
        for element in parse(text):
            merge.take(name.strip(), [element])


def events(text):
    return History.from_events(parse_events(text))


def words(merge):
    return [reason.name for reason in merge.reasons]


def test_lmerge_iv_the_first_copy_goes_out(merge):
    feed(merge, "1: insert a 1..3", "2: insert a 1..3; insert b 2..5; stable 2", "1: stable 1")
    assert merge.output == parse("insert a 1..3; insert b 2..5; stable 2")
    assert words(merge) == ["FIRST", "KNOWN", "FIRST", "LEADS", "FOLLOWS"]
    feed(merge, "1: insert b 2..5; stable forever")
    assert words(merge)[-2:] == ["KNOWN", "LEADS"]


def test_erratum_l5_no_insert_below_the_own_stable(merge):
    feed(merge, "1: stable 2", "2: insert a 1..3; insert b 2..3")
    assert merge.output == parse("stable 2; insert b 2..3")
    assert words(merge) == ["LEADS", "LATE", "FIRST"]


def test_erratum_l5_at_the_current_start_only_what_is_known_is_absorbed(form):
    for case in (R1, R2):
        merge = form(case)
        feed(merge, "1: insert a 1..3; stable 2", "2: insert a 1..3; insert b 1..3")
        assert merge.output == parse("insert a 1..3; stable 2")
        assert words(merge)[2:] == ["KNOWN", "LATE"]


def test_erratum_l6_a_gap_among_equal_starts(form):
    for case in (R1, R2):
        merge = form(case)
        feed(merge, "2: insert b 1..2", "1: insert a 1..2; insert b 1..2")
        assert merge.output == parse("insert b 1..2; insert a 1..2")
        assert words(merge) == ["FIRST", "FIRST", "KNOWN"]


def test_erratum_l6_duplicates_are_counted_per_replica(form):
    merge = form(R1)
    feed(merge, "1: insert a 1..2; insert a 1..2", "2: insert a 1..2; insert a 1..3")
    feed(merge, "2: insert a 1..2; insert a 1..2", "1: insert a 1..2")
    assert History.of(merge.output) == events("a 1..2; a 1..2; a 1..2; a 1..3")
    expected = ["FIRST", "FIRST", "KNOWN", "FIRST", "KNOWN", "FIRST", "KNOWN"]
    assert words(merge) == expected


def test_erratum_l7_a_replica_that_left_is_still_on_the_output(merge):
    feed(merge, "2: insert a 1..2")
    merge.detach("2")
    feed(merge, "1: insert a 1..2")
    assert merge.output == parse("insert a 1..2")


def test_erratum_l7_a_replica_that_returns_begins_with_nothing(merge):
    feed(merge, "3: insert a 1..2")
    merge.attach("3", attachment=2)
    feed(merge, "3: insert a 1..2")
    assert merge.output == parse("insert a 1..2")
    assert words(merge) == ["FIRST", "KNOWN"]


def test_erratum_l9_a_joining_replica_hides_nothing(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert b 2..9", "1: insert a 1..3; insert b 2..9")
    assert merge.output == parse("insert a 1..3; insert b 2..9")
    assert words(merge) == ["HELD", "FIRST", "FIRST"]
    feed(merge, "1: stable 3")
    # Behind the frontier, and the event of the current start: it is shown to be there.
    assert words(merge) == ["KNOWN", "FIRST", "FIRST", "LEADS"]


def test_erratum_l9_positions_of_a_joining_replica_are_off(form):
    for case in (R1, R2):
        merge = form(case)
        merge.attach("1")
        merge.attach("2", guarantee=5)
        feed(merge, "1: insert a 1..2", "2: insert b 1..9; insert c 1..9")
        feed(merge, "1: insert b 1..9; insert c 1..9; stable 5")
        assert History.of(merge.output) == events("a 1..2; b 1..9; c 1..9")
        assert merge.account.pending == 0


def test_erratum_l9_what_was_held_comes_out_at_the_moment_of_joining(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert a 4..9; insert b 5..9; insert c 7..9; stable 7")
    assert merge.output == []
    assert words(merge) == ["HELD", "HELD", "HELD", "JOINING"]
    feed(merge, "1: insert x 2..3; stable 4")
    assert merge.account.pending == 3
    feed(merge, "1: stable 5")
    inserts = [e for e in merge.output if isinstance(e, Insert)]
    assert inserts == parse("insert x 2..3; insert b 5..9; insert c 7..9")
    # Its own stable counts at once, and a was behind the frontier.
    assert replay(merge.output).frontier == 7
    assert words(merge)[:4] == ["LATE", "FIRST", "FIRST", "JOINING"]
    assert words(merge)[-1] == "LEADS"
    merge.detach("1")
    feed(merge, "2: insert d 8..9; stable forever")
    assert History.of(merge.output) == events("x 2..3; b 5..9; c 7..9; d 8..9")


def test_erratum_l9_what_can_never_be_emitted_is_not_held(merge):
    merge.attach("1")
    merge.attach("2", guarantee=9)
    feed(merge, "1: insert x 5..6; stable 5", "2: insert a 3..9; insert x 5..6; insert b 6..9")
    assert words(merge)[2:] == ["PASSED", "HELD", "HELD"]
    feed(merge, "1: stable 6")
    assert words(merge)[2:] == ["PASSED", "KNOWN", "HELD", "LEADS"]


def test_erratum_l9_a_joining_replica_that_leaves_takes_what_was_held_with_it(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "2: insert a 6..9")
    merge.attach("2", guarantee=5, attachment=2)
    feed(merge, "2: insert b 6..9")
    merge.detach("2")
    if isinstance(merge, Kernel):
        merge.restart()
    feed(merge, "1: stable forever")
    assert words(merge) == ["ABANDONED", "ABANDONED", "LEADS"]
    assert merge.output == parse("stable forever")


def test_a_joining_replica_can_be_promoted(merge):
    merge.attach("1")
    merge.attach("2", guarantee=5)
    feed(merge, "1: insert x 1..2; stable 2", "2: insert a 3..9; stable 4")
    merge.detach("1")
    merge.promote("2")
    feed(merge, "2: insert b 5..6")
    expected = parse("insert x 1..2; stable 2; insert a 3..9; stable 4; insert b 5..6")
    # A batch shows its stable last.
    assert replay(merge.output) == replay(expected)
    assert len(merge.output) == len(expected)
    assert words(merge) == ["FIRST", "LEADS", "FIRST", "JOINING", "FIRST"]


def test_behind_the_current_start_is_late_even_if_it_was_emitted(merge):
    feed(merge, "1: insert a 1..3; insert b 2..3", "2: insert a 1..3")
    assert words(merge) == ["FIRST", "FIRST", "PASSED"]
    assert merge.reasons[-1].bucket is Bucket.LATE


def test_broken_promises_change_nothing(merge):
    feed(merge, "1: insert a 3..5; adjust a 3..5->4; insert b 2..5; insert c 5..4; stable 4")
    feed(merge, "1: insert d 3..5; insert e 4..4; adjust a 3..5->5; stable 4; insert f 4..5")
    assert words(merge) == [
        "FIRST",
        "NOT_INSERT_ONLY",
        "OUT_OF_ORDER",
        "BACKWARDS",
        "LEADS",
        "BEHIND_STABLE",
        "NO_CHANGE",
        "NOT_INSERT_ONLY",
        "FOLLOWS",
        "FIRST",
    ]
    assert merge.output == parse("insert a 3..5; stable 4; insert f 4..5")


def test_equal_starts_are_a_violation_of_r0_only(form):
    for case, expected in ((R0, Reason.SAME_START), (R1, Reason.FIRST), (R2, Reason.FIRST)):
        merge = form(case)
        feed(merge, "1: insert a 3..5; insert b 3..5")
        assert merge.reasons[-1] is expected


def test_a_second_insert_is_a_violation_of_r2_only(form):
    merge = form(R2)
    feed(merge, "1: insert a 3..5; insert a 3..5; insert a 3..6", "2: insert a 3..5")
    assert words(merge) == ["FIRST", "SECOND_INSERT", "SECOND_INSERT", "KNOWN"]
    assert merge.output == parse("insert a 3..5")


def test_another_event_in_its_place_is_late_and_a_conflict(form):
    for case, text in ((R0, "insert b 3..5"), (R0, "insert a 3..6"), (R2, "insert a 3..6")):
        merge = form(case)
        feed(merge, "1: insert a 3..5", f"2: {text}")
        assert words(merge) == ["FIRST", "OTHER_EVENT"]
        assert merge.reasons[-1].bucket is Bucket.LATE
        assert merge.conflicts == 1
        assert merge.output == parse("insert a 3..5")


def test_erratum_d21_one_stable_per_step(form):
    for case in (R0, R1, R2):
        merge = form(case)
        text = "insert a 1..3; stable 1; insert b 2..5; stable 2; stable 3; insert c 3..4"
        merge.take("1", parse(text))
        if form is FORMS["batch"]:
            net = parse("insert a 1..3; insert b 2..5; insert c 3..4; stable 3")
            assert merge.output == net
            assert words(merge) == ["FIRST", "FOLLOWS", "FIRST", "FOLLOWS", "LEADS", "FIRST"]
        else:
            assert merge.output == parse(text)
