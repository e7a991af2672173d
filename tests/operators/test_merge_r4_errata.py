"""The traps of LMerge's Algorithm R4, each by its number in the errata, on every engine."""

from functools import partial

import pytest
from stepped import counted, emits, events, feed, gaps_are, reasons_are

from anabranch import testing
from anabranch.model.element import Adjust
from anabranch.model.history import replay
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER


@pytest.fixture
def make(local_engine):
    return partial(local_engine, "merge", case="r4", check_every=1)


@pytest.fixture
def engine(make):
    with make() as running:
        yield running


@pytest.fixture(params=["kernel", "lanes"])
def batches(request):
    """What shows the net change of a step."""
    with testing.engine(request.param, "merge", case="r4") as running:
        yield running


def test_lmerge_iv_e_lines_9_to_11_as_many_as_the_fullest_replica(engine):
    feed(engine, "1: insert a 1..5; insert a 1..5", "2: insert a 1..5", "2: insert a 1..6")
    feed(engine, "2: insert a 1..7")
    emits(engine, "insert a 1..5; insert a 1..5; insert a 1..7")
    reasons_are(engine, "FIRST FIRST KNOWN KNOWN FIRST")


def test_lmerge_iv_e_adjust_output_count_and_adjust_output(engine):
    feed(engine, "1: insert a 1..5; insert a 1..9; insert a 1..9")
    feed(engine, "2: insert a 1..4; insert a 1..9; stable 6")
    # 4 takes the smallest end that is too many, then one 9 is one too many.
    emits(engine, "adjust a 1..5->4; adjust a 1..9->1; stable 6", after=3)


def test_erratum_l4_what_is_half_frozen_stays_if_the_deciding_replica_has_a_gap(engine):
    feed(engine, "1: insert a 1..3; insert a 1..3", "1: stable 2", "2: stable 3; stable 5")
    emits(engine, "insert a 1..3; insert a 1..3; stable 2; stable 3; stable 5")
    assert counted(engine, "live", "conflicts") == [0, 1]
    gaps_are(engine, [("2", 1, "a")])


def test_erratum_l4_a_deciding_replica_with_fewer_events_removes_none_that_was_promised(engine):
    feed(engine, "1: insert a 1..3; insert a 1..9; stable 2", "2: insert a 1..9; stable 5")
    assert engine.history == events("a 1..3; a 1..9")
    assert engine.counts["conflicts"] == 1
    gaps_are(engine, [])


def test_erratum_l4_an_end_is_never_cut_below_the_frontier(engine):
    feed(engine, "2: insert a 1..3; insert a 1..8", "1: insert a 1..9; insert a 1..8; stable 5")
    feed(engine, "2: stable 7")
    emits(engine, "adjust a 1..9->5; stable 7", after=len(engine.output) - 2)
    assert engine.counts["conflicts"] == 1
    assert replay(engine.output).violations == ()


def test_erratum_l4_an_end_at_the_frontier_is_as_short_as_it_may_be(engine):
    feed(engine, "2: insert a 1..3; insert a 1..8", "1: insert a 1..5; insert a 1..8; stable 5")
    feed(engine, "2: stable 7")
    emits(engine, "stable 7", after=len(engine.output) - 1)
    assert engine.history == events("a 1..5; a 1..8")
    assert engine.counts["conflicts"] == 1


def test_erratum_l9_what_the_first_deciding_replica_ends_the_second_does_not_see(engine):
    engine.attach("1")
    engine.attach("2", guarantee=10)
    feed(engine, "1: insert a 1..9; insert a 1..9; stable 3", "2: insert a 1..2; stable 20")
    feed(engine, "1: stable 12")
    # The reference shows both stables, a step the last one.
    assert engine.output[-1:] == tuple(parse("stable 20"))
    assert engine.name != "reference" or engine.output[-2:] == tuple(
        parse("stable 12; stable 20")
    )
    assert engine.history == events("a 1..9; a 1..9")
    assert counted(engine, "live", "conflicts") == [0, 0]


def test_erratum_l4_a_frozen_event_takes_the_place_of_one_that_is_wanted(engine):
    feed(engine, "2: insert a 1..3; insert a 1..9", "1: insert a 1..2; insert a 1..9; stable 5")
    feed(engine, "2: stable 8", "2: stable 12")
    assert engine.history == events("a 1..2; a 1..9")
    assert replay(engine.output).violations == ()
    assert counted(engine, "conflicts", "live") == [1, 0]


def test_erratum_l8_a_replay_is_not_counted_twice(engine):
    engine.attach("2")
    feed(engine, "2: insert a 1..forever")
    engine.detach("2")
    engine.attach("2")
    feed(engine, "2: insert a 1..forever; stable 2")
    emits(engine, "insert a 1..forever; stable 2")


def test_erratum_l8_entries_leave_with_their_attachment(engine):
    engine.attach("2")
    feed(engine, "2: insert a 1..2; insert a 1..3; insert a 1..4")
    engine.detach("2")
    engine.attach("2")
    feed(engine, "2: stable forever")
    assert engine.history == events("")
    assert engine.counts["live"] == 0


def test_erratum_l9_a_joining_replica_cannot_remove_what_it_need_not_know(engine):
    engine.attach("1")
    engine.attach("2", guarantee=5)
    feed(engine, "1: insert a 1..9; insert a 1..9", "2: stable 6")
    feed(engine, "1: adjust a 1..9->3; adjust a 1..9->4; stable 5")
    assert engine.history == events("a 1..3; a 1..4")
    # The stable that waited counts at the moment of joining.
    assert replay(engine.output).frontier == 6
    reasons_are(engine, "FIRST FIRST JOINING NOTED NOTED LEADS")


def test_erratum_l9_joining_at_forever_only_brings(engine):
    engine.attach("1")
    engine.attach("2", guarantee=FOREVER)
    feed(engine, "2: insert a 6..9; insert a 6..9", "1: stable 5", "2: stable 20")
    emits(engine, "insert a 6..9; insert a 6..9; stable 5")
    feed(engine, "1: stable forever")
    assert engine.history == events("")
    gaps_are(engine, [("1", 6, "a")])


def test_erratum_l9_a_joiner_omits_a_finished_event_of_an_identity_that_it_has(engine):
    feed(engine, "1: insert a 1..2; insert a 1..5; stable 3")
    engine.attach("2", guarantee=3)
    feed(engine, "2: insert a 1..9; stable 10")
    # What is frozen at 2 leaves the joiner's 9 to the event that is still open.
    emits(engine, "adjust a 1..5->9; stable 10", after=3)
    assert counted(engine, "conflicts", "missing", "live") == [0, 0, 0]


def test_erratum_l9_what_ends_before_its_guarantee_a_joiner_may_have_wrongly(engine):
    feed(engine, "1: insert a 1..2; insert a 1..5; stable 4")
    engine.attach("2", guarantee=4)
    feed(engine, "2: insert a 1..3; insert a 1..3; insert a 1..9; stable 10")
    emits(engine, "adjust a 1..5->9; stable 10", after=3)
    assert counted(engine, "conflicts", "missing", "live") == [0, 0, 0]


def test_erratum_l9_a_joiner_that_omits_what_it_must_know_is_in_conflict(engine):
    feed(engine, "1: insert a 1..2; insert a 1..3; insert a 1..5; stable 4")
    engine.attach("2", guarantee=3)
    feed(engine, "2: insert a 1..9; stable 10")
    emits(engine, "adjust a 1..5->9; stable 10", after=4)
    assert engine.counts["conflicts"] == 1


def test_erratum_d5_a_promoted_replica_may_have_events_that_never_were_true(make):
    engine = make(policy="promote=true")
    feed(engine, "1: insert a 1..2; insert a 1..8; stable 3")
    engine.attach("2", guarantee=5)
    feed(engine, "2: insert a 1..4; insert a 1..7; stable 10")
    engine.detach("1")
    emits(engine, "adjust a 1..8->7; stable 10", after=3)
    assert engine.counts["conflicts"] == 0


def test_erratum_l4_a_frozen_event_leaves_open_ends_to_those_that_can_change(engine):
    feed(engine, "1: insert a 1..2; insert a 1..5; stable 3", "2: insert a 1..9; stable 10")
    # Replica 2 is complete, and has a gap: that is a conflict, but no reason to keep 5.
    emits(engine, "adjust a 1..5->9; stable 10", after=3)
    assert engine.counts["conflicts"] == 1


def test_erratum_l4_a_frozen_event_takes_an_open_end_that_nobody_else_can(engine):
    feed(engine, "1: insert a 1..2; insert a 1..5; stable 3")
    feed(engine, "2: insert a 1..7; insert a 1..9; stable 10")
    emits(engine, "adjust a 1..5->9; stable 10", after=3)
    assert engine.counts["conflicts"] == 1


def test_erratum_l10_a_removal_only_decrements(engine):
    feed(engine, "1: insert a 1..3; adjust a 1..3->1; insert a 1..3")
    emits(engine, "insert a 1..3")


def test_erratum_l10_a_removed_event_finds_its_partner(engine):
    feed(engine, "2: insert a 1..4; stable 2", "1: insert a 1..3; adjust a 1..3->1")
    feed(engine, "1: insert a 1..3; stable forever")
    assert engine.history == events("a 1..3")
    assert replay(engine.output).violations == ()


def test_erratum_l10_no_adjust_of_an_event_that_does_not_exist(engine):
    feed(engine, "3: insert b 1..forever; adjust b 1..forever->1; insert b 1..2; stable 2")
    feed(engine, "2: insert b 1..forever; stable forever")
    assert engine.history == events("b 1..forever")
    assert replay(engine.output).violations == ()


def test_erratum_l10_a_deciding_replica_that_removed_all_has_no_greatest_end(engine):
    feed(engine, "1: insert a 1..3; insert a 1..3", "2: insert a 1..3; adjust a 1..3->1")
    feed(engine, "2: stable 2")
    assert engine.history == events("")
    assert counted(engine, "live", "missing") == [0, 0]


def test_erratum_l10_an_adjust_of_an_end_that_its_replica_does_not_have(engine):
    feed(engine, "1: insert a 1..3; insert a 1..5", "2: insert a 1..4")
    feed(engine, "2: adjust a 1..3->6", "1: adjust a 1..4->6; adjust a 1..3->1")
    feed(engine, "1: adjust a 1..3->6; adjust a 1..1->6; adjust b 1..3->6")
    wrong = "NO_SUCH_EVENT NO_SUCH_EVENT NOTED NO_SUCH_EVENT NO_SUCH_EVENT NO_SUCH_EVENT"
    reasons_are(engine, "FIRST FIRST KNOWN", wrong)


def test_erratum_l11_a_only_ascending_order_finds_partners(engine):
    feed(engine, "1: insert a 1..2; adjust a 1..2->3; stable 4")
    emits(engine, "insert a 1..2; adjust a 1..2->3; stable 4")


def test_erratum_l11_b_nothing_is_deleted_once_the_counts_are_equal(engine):
    feed(engine, "1: insert a 1..2; adjust a 1..2->3; stable 3")
    emits(engine, "insert a 1..2; adjust a 1..2->3; stable 3")


def test_erratum_l11_c_one_adjust_per_event_to_an_end_that_the_deciding_replica_has(engine):
    feed(engine, "1: insert a 1..2; insert a 1..3", "2: insert a 1..7; insert a 1..9; stable 5")
    emits(engine, "adjust a 1..2->7; adjust a 1..3->9; stable 5", after=2)


def test_erratum_l11_ends_that_are_not_due_may_differ(engine):
    feed(engine, "1: insert a 1..7; insert a 1..8", "2: insert a 1..6; insert a 1..9; stable 5")
    emits(engine, "stable 5", after=2)
    feed(engine, "2: stable 7")
    emits(engine, "adjust a 1..7->6; stable 7", after=3)


def test_erratum_l12_more_adjusts_than_inserts(engine):
    feed(engine, "1: insert a 1..3")
    feed(engine, *(f"1: adjust a 1..{k}->{k + 2}; stable {k + 1}" for k in (3, 5, 7)))
    assert [type(e).__name__ for e in engine.output].count("Adjust") == 3


L14 = ("1: insert a 1..2", "2: insert a 1..3; insert a 1..2; stable 4")


def test_erratum_l14_merge_may_lengthen_what_no_input_lengthens(engine):
    feed(engine, *L14)
    emits(engine, "insert a 1..2; insert a 1..2; adjust a 1..2->3; stable 4")


def test_erratum_l14_shrink_only_removes_and_inserts_instead(make):
    engine = make(policy="shrink_only=true")
    feed(engine, *L14)
    emits(engine, "insert a 1..2; insert a 1..2; adjust a 1..2->1; insert a 1..3; stable 4")
    assert engine.counts["added_inserts"] == 1


def test_erratum_l14_shrink_only_shortens_where_it_can(make):
    engine = make(policy="shrink_only=true")
    feed(engine, "1: insert a 1..2; insert a 1..8; insert a 1..9; insert a 1..forever")
    feed(engine, "2: insert a 1..7; insert a 1..5; stable 2")
    expected = parse(
        "adjust a 1..8->5; adjust a 1..9->7; adjust a 1..2->1; adjust a 1..forever->1; stable 2"
    )
    assert sorted(engine.output[4:], key=str) == sorted(expected, key=str)
    assert all(e.end <= e.old_end for e in engine.output if isinstance(e, Adjust))


def test_erratum_l14_shrink_only_follows_an_input_that_lengthens(make):
    engine = make(policy="shrink_only=true")
    feed(engine, "1: insert a 1..4; stable 2; adjust a 1..4->9; stable 6")
    emits(engine, "insert a 1..4; stable 2; adjust a 1..4->9; stable 6")


def test_erratum_l15_the_end_of_the_stream_frees_everything(engine):
    feed(engine, "1: insert a 1..forever; insert a 1..forever; insert b 2..3; stable forever")
    assert engine.counts["live"] == 0
    assert engine.history == events("a 1..forever; a 1..forever; b 2..3")
    feed(engine, "2: insert a 1..forever; stable forever")
    reasons_are(engine, "FIRST FIRST FIRST LEADS", "LATE FOLLOWS")


def test_a_slow_replica_is_absorbed_while_it_may_still_speak(engine):
    engine.attach("slow")
    feed(engine, "1: insert a 1..3; insert a 1..3; insert p 1..2; adjust p 1..2->1; stable 9")
    feed(engine, "slow: insert a 1..4; insert p 1..2; adjust a 1..4->3; insert z 1..3")
    reasons_are(engine, "FIRST FIRST FIRST NOTED LEADS", "SETTLED SETTLED SETTLED LATE")


def test_one_event_more_than_the_output_has_promised_is_late(engine):
    feed(engine, "1: insert a 1..9; stable 2", "2: insert a 1..9; insert a 1..9")
    reasons_are(engine, "FIRST LEADS KNOWN LATE")
    # It is noted all the same: its replica may take it back.
    feed(engine, "2: adjust a 1..9->1; stable forever")
    assert engine.history == events("a 1..9")
    assert engine.counts["conflicts"] == 0


def test_an_adjust_of_a_final_event_is_absorbed_whether_its_replica_has_it_or_not(engine):
    # What a replica had is forgotten then: a slow one that has the event must not be accused.
    engine.attach("slow")
    feed(engine, "1: insert a 1..3; stable 9; adjust a 1..3->3; adjust a 1..3->4")
    feed(engine, "slow: adjust a 1..3->4; adjust a 1..7->5; adjust q 1..3->3; adjust q 1..3->4")
    feed(engine, "slow: insert a 1..3; adjust a 1..3->4; adjust b 9..9->12")
    reasons_are(
        engine,
        "FIRST LEADS NO_CHANGE BEHIND_STABLE",
        "SETTLED SETTLED NO_CHANGE LATE",
        "SETTLED SETTLED NO_SUCH_EVENT",
    )
    emits(engine, "insert a 1..3; stable 9")


def test_broken_promises_change_nothing(engine):
    feed(engine, "1: insert a 1..5; insert b 5..4; adjust a 1..6->7; stable 3")
    feed(engine, "1: insert c 2..9; adjust a 1..5->2; adjust d 8..9->10; adjust a 1..5->0")
    feed(engine, "1: insert e 1..1; adjust a 1..5->5; stable 2")
    reasons_are(
        engine,
        "FIRST BACKWARDS NO_SUCH_EVENT LEADS",
        "BEHIND_STABLE BEHIND_STABLE NO_SUCH_EVENT BACKWARDS",
        "NO_CHANGE NO_CHANGE FOLLOWS",
    )
    emits(engine, "insert a 1..5; stable 3")


def test_erratum_d21_only_the_net_change_of_a_step_is_visible(batches):
    text = "insert a 1..3; insert a 1..3; adjust a 1..3->6; insert b 2..3; adjust b 2..3->2"
    others = "insert a 1..9; insert a 1..9; insert a 1..9; insert z 1..2; adjust q 8..9->10"
    batches.push("1", text + "; stable 4")
    batches.push("2", others)
    batches.cut()
    emits(batches, "insert a 1..3; insert a 1..6; stable 4")
    reasons_are(
        batches,
        "FIRST FIRST NOTED SUPERSEDED SUPERSEDED LEADS",
        "KNOWN KNOWN MISSED MISSED NO_SUCH_EVENT",
    )
    gaps_are(batches, [("1", 1, "z")])


def test_an_adjust_of_the_deciding_replica_is_corrected_and_others_are_added(batches):
    batches.push("1", "insert a 1..9; insert a 1..9; insert b 2..9; insert d 4..9")
    batches.cut()
    batches.push("2", "insert a 1..9; insert a 1..8; insert b 2..9")
    batches.push("2", "adjust a 1..9->7; adjust b 2..9->8; adjust b 2..8->2; stable 9")
    batches.cut()
    # One a was 8 from its beginning, d is unknown to the deciding replica: both were added.
    assert batches.history == events("a 1..7; a 1..8")
    assert batches.counts["added_adjusts"] == 2
    reasons_are(
        batches,
        "FIRST FIRST FIRST FIRST KNOWN KNOWN SUPERSEDED",
        "CORRECTED SUPERSEDED CORRECTED LEADS",
    )


def test_an_event_that_came_and_went_in_one_step_is_not_emitted_and_may_come_back(batches):
    batches.push("1", "insert a 3..5; insert a 3..5; adjust a 3..5->3; adjust a 3..5->3")
    assert batches.cut() == ()
    batches.restart()
    batches.push("2", "insert a 3..7")
    batches.cut()
    emits(batches, "insert a 3..7")
    batches.push("1", "insert a 3..8; stable forever")
    batches.cut()
    assert batches.history == events("a 3..8")


def test_the_first_insert_of_a_step_gives_the_end_and_the_fullest_replica_the_others(batches):
    batches.push("1", "insert a 1..3")
    batches.push("2", "insert a 1..5; insert a 1..4; insert a 1..9")
    batches.push("1", "adjust a 1..3->1")
    batches.cut()
    emits(batches, "insert a 1..4; insert a 1..5; insert a 1..9")


def test_the_end_of_the_first_insert_of_a_step_stays_if_nobody_takes_it_back(batches):
    batches.push("1", "insert a 1..7; insert a 1..5")
    batches.push("2", "insert a 1..2")
    batches.cut()
    emits(batches, "insert a 1..5; insert a 1..7")
