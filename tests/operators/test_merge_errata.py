"""The traps of LMerge's Algorithm R3, each by its number in the errata, on every engine."""

import pytest
from stepped import counted, emits, events, feed, reasons_are

from anabranch import testing
from anabranch.model.history import replay
from anabranch.model.time import FOREVER


@pytest.fixture
def engine(local_engine):
    with local_engine("merge", case="r3", check_every=1) as running:
        yield running


@pytest.fixture(params=["kernel", "lanes"])
def batches(request):
    """What shows the net change of a step."""
    with testing.engine(request.param, "merge", case="r3") as running:
        yield running


def test_lmerge_iv_d_a_shorter_end_is_emitted_before_it_freezes(engine):
    feed(engine, "1: insert a 3..9", "1: stable 5", "2: insert a 3..7", "2: stable 8")
    emits(engine, "insert a 3..9; stable 5; adjust a 3..9->7; stable 8")


def test_erratum_l3_the_output_entry_changes_only_with_an_adjust(engine):
    feed(engine, "1: insert a 1..2; adjust a 1..2->3; stable 2; stable 3; stable 4")
    assert engine.history == events("a 1..3")
    assert replay(engine.output).violations == ()


def test_erratum_l4_what_is_half_frozen_on_the_output_stays(engine):
    feed(engine, "1: insert a 1..3", "1: stable 2", "2: stable 3")
    emits(engine, "insert a 1..3; stable 2; stable 3")
    assert engine.counts["conflicts"] == 1
    feed(engine, "2: stable 5")
    emits(engine, "stable 5", after=len(engine.output) - 1)
    assert counted(engine, "live", "conflicts") == [0, 1]


def test_erratum_l4_an_end_is_never_cut_below_the_frontier(engine):
    feed(engine, "2: insert a 1..3", "1: insert a 1..9; stable 5", "2: stable 7")
    emits(engine, "insert a 1..3; adjust a 1..3->9; stable 5; adjust a 1..9->5; stable 7")
    assert engine.counts["conflicts"] == 1
    assert replay(engine.output).violations == ()


def test_erratum_l4_what_is_free_on_the_output_leaves(engine):
    feed(engine, "1: insert a 2..4", "2: stable 3", "1: adjust a 2..4->5")
    emits(engine, "insert a 2..4; adjust a 2..4->2; stable 3")
    reasons_are(engine, "FIRST LEADS LATE")
    assert engine.counts["conflicts"] == 0


def test_erratum_l8_entries_leave_with_their_attachment(engine):
    engine.attach("2")
    feed(engine, "2: insert a 1..2")
    engine.detach("2")
    engine.attach("2")
    feed(engine, "2: stable forever")
    assert engine.history == events("")
    assert engine.counts["live"] == 0


def test_erratum_l8_a_new_attachment_may_replay(engine):
    engine.attach("2")
    feed(engine, "2: insert a 1..forever")
    engine.detach("2")
    engine.attach("2")
    feed(engine, "2: insert a 1..forever; stable 2")
    emits(engine, "insert a 1..forever; stable 2")
    reasons_are(engine, "FIRST KNOWN LEADS")


def test_erratum_l9_a_joining_replica_cannot_remove_what_it_need_not_know(engine):
    engine.attach("1")
    engine.attach("2", guarantee=5)
    feed(engine, "1: insert a 1..9", "2: stable 6", "1: adjust a 1..9->3; stable 4")
    assert engine.history == events("a 1..3")
    assert replay(engine.output).frontier == 4
    reasons_are(engine, "FIRST JOINING NOTED LEADS")


def test_erratum_l9_the_remembered_stable_counts_at_the_moment_of_joining(engine):
    engine.attach("1")
    engine.attach("2", guarantee=5)
    feed(engine, "1: insert a 1..9; insert b 2..3", "2: insert a 1..7; stable 8", "1: stable 4")
    assert replay(engine.output).frontier == 4
    feed(engine, "1: stable 5")
    # b ended before the guarantee: replica 1 decided it, then replica 2 decided a.
    assert engine.history == events("a 1..7; b 2..3")
    assert replay(engine.output).frontier == 8
    reasons_are(engine, "FIRST FIRST KNOWN JOINING LEADS LEADS")


def test_erratum_l9_what_a_joining_replica_brings_is_on_the_output(engine):
    engine.attach("1")
    engine.attach("2", guarantee=FOREVER)
    feed(engine, "2: insert a 6..9", "1: stable 5", "2: stable 20")
    emits(engine, "insert a 6..9; stable 5")
    feed(engine, "1: stable forever")
    assert engine.history == events("")


def test_erratum_l12_more_adjusts_than_inserts(engine):
    feed(engine, "1: insert a 1..3")
    feed(engine, *(f"1: adjust a 1..{k}->{k + 2}; stable {k + 1}" for k in (3, 5, 7)))
    assert [type(e).__name__ for e in engine.output].count("Adjust") == 3
    assert engine.history == events("a 1..9")


def test_erratum_l14_a_removed_event_may_come_back_longer(engine):
    feed(engine, "1: insert a 1..2; adjust a 1..2->1; insert a 1..4; stable 3")
    emits(engine, "insert a 1..2; adjust a 1..2->4; stable 3")


def test_erratum_l15_the_end_of_the_stream_frees_everything(engine):
    feed(engine, "1: insert a 1..forever; insert b 2..3; stable forever")
    assert engine.counts["live"] == 0
    assert engine.history == events("a 1..forever; b 2..3")
    feed(engine, "2: insert a 1..forever; insert c 1..2; stable forever")
    reasons_are(engine, "FIRST FIRST LEADS", "LATE LATE FOLLOWS")


def test_a_slow_replica_is_absorbed_while_it_may_still_speak(engine):
    engine.attach("slow")
    feed(engine, "1: insert a 1..3; insert p 1..2; adjust p 1..2->1; stable 9")
    feed(
        engine, "slow: insert a 1..4; insert p 1..2; stable 1; adjust a 1..4->3; insert z 1..3"
    )
    reasons_are(engine, "FIRST FIRST NOTED LEADS", "SETTLED SETTLED FOLLOWS SETTLED LATE")


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
    feed(engine, "1: insert a 1..5; insert a 1..6; insert b 5..4; adjust a 1..6->7; stable 3")
    feed(engine, "1: insert c 2..9; adjust a 1..5->2; adjust d 8..9->10; adjust a 1..5->0")
    feed(engine, "1: insert e 1..1; adjust a 1..5->5; adjust f 4..4->6; stable 2")
    reasons_are(
        engine,
        "FIRST SECOND_INSERT BACKWARDS NO_SUCH_EVENT LEADS",
        "BEHIND_STABLE BEHIND_STABLE NO_SUCH_EVENT BACKWARDS",
        "NO_CHANGE NO_CHANGE NO_SUCH_EVENT FOLLOWS",
    )
    emits(engine, "insert a 1..5; stable 3")


def test_erratum_d21_only_the_net_change_of_a_step_is_visible(batches):
    text = "insert a 1..3; adjust a 1..3->6; insert b 2..3; adjust b 2..3->2; stable 4"
    batches.push("1", text)
    batches.push("2", "insert a 1..9; insert z 1..2; adjust q 8..9->10")
    batches.cut()
    emits(batches, "insert a 1..6; stable 4")
    reasons_are(
        batches, "FIRST NOTED SUPERSEDED SUPERSEDED LEADS", "KNOWN MISSED NO_SUCH_EVENT"
    )
    assert batches.counts["live"] == 1


def test_an_adjust_of_the_deciding_replica_is_corrected_and_others_are_added(batches):
    batches.push("1", "insert a 1..9; insert b 2..9; insert c 3..9; insert d 4..9")
    batches.cut()
    batches.push("2", "insert a 1..8; insert b 2..9; insert c 3..9")
    batches.push("2", "adjust b 2..9->8; adjust b 2..8->7; adjust c 3..9->3; stable 9")
    batches.cut()
    # d is unknown to the deciding replica, a was shorter from its beginning: both were added.
    assert batches.counts["added_adjusts"] == 2
    assert batches.history == events("a 1..8; b 2..7")
    reasons_are(
        batches,
        "FIRST FIRST FIRST FIRST KNOWN KNOWN SUPERSEDED",
        "NOTED CORRECTED CORRECTED LEADS",
    )


def test_an_event_that_its_first_replica_took_back_has_the_end_of_another(batches):
    batches.push("0", "insert a 1..3")
    batches.push("1", "insert a 1..5")
    batches.push("0", "adjust a 1..3->1")
    batches.cut()
    emits(batches, "insert a 1..5")


def test_an_event_that_came_and_went_in_one_step_is_not_emitted_and_may_come_back(batches):
    batches.push("1", "insert a 3..5; adjust a 3..5->3")
    assert batches.cut() == ()
    batches.push("2", "insert a 3..7")
    batches.cut()
    emits(batches, "insert a 3..7")
    batches.push("1", "insert a 3..8; stable forever")
    batches.cut()
    assert batches.history == events("a 3..8")
