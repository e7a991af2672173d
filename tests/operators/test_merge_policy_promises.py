"""What each merge policy promises in its docstring, as laws over what comes and goes.

The reference is judged; the compiled merge goes along, and must emit the same each time.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import ADJUSTS, CHOOSING, INSERTS, policies
from policy_kernel_driver import Both as Run

from anabranch.model.element import Adjust, Identity, Insert, Stable
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Bucket, Reason
from anabranch.operators.merge.policy import Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas


def feed(policy, *arrivals, replicas=3):
    """`1: insert a 1..3` is an element of replica r1; replicas r0 and on are attached."""
    run = Run.of(policy, replicas)
    for arrival in arrivals:
        number, text = arrival.split(":")
        for element in parse(text):
            run.take(int(number), element)
    return run


def having(run, names, *, free=True):
    """For each event that may still start, which of these replicas have it."""
    return {
        identity: {name for name in names if node.ends.get(run.merge.replicas[name].key)}
        for identity, node in run.merge.nodes.items()
        if not free or identity.start >= run.merge.frontier
    }


def came_before_reconcile(run, element, number):
    """Take an element; the events that are new on the output and that no stable needed yet."""
    before = run.shown()
    run.take(number, element)
    return [
        identity
        for identity in run.shown()
        if identity not in before and identity.start >= run.merge.frontier
    ]


@given(st.data(), policies(adjusts=[Adjusts.ALWAYS]))
def test_always_shows_every_adjust_that_it_may(data, policy):
    run = Run.of(policy, 3)
    for number, element in data.draw(conflicting_arrivals()):
        before, frontier = run.shown(), run.merge.frontier
        outcome = run.take(number, element)
        if not isinstance(element, Adjust) or element.changes_nothing:
            continue
        identity = Identity(element.start, element.payload)
        believed = outcome.bucket in (Bucket.ABSORBED, Bucket.CORRECTED)
        settled = outcome.reason is Reason.SETTLED
        if not believed or settled or identity not in before:
            continue
        if min(element.old_end, element.end) < frontier:
            assert outcome.output == ()
        elif element.is_removal:
            kept = policy.inserts is Inserts.HALF_FROZEN
            assert (identity in run.shown()) == kept
        elif not policy.shrink_only or element.start >= frontier:
            may = not (policy.shrink_only and policy.inserts is Inserts.HALF_FROZEN)
            assert run.shown()[identity] == element.end or not may


@given(st.data(), policies(adjusts=[Adjusts.FOLLOW_LEADER, Follow("r1")]))
def test_following_the_output_has_the_ends_of_the_followed(data, policy):
    streams = data.draw(replicas(min_inputs=2))
    arrived = data.draw(interleavings(streams))
    run = Run.of(policy, len(streams))
    last, leader = {}, "r0"
    for number, element in arrived:
        run.take(number, element)
        frontiers = {name: one.frontier for name, one in run.merge.replicas.items()}
        if frontiers[leader] < max(frontiers.values()):
            leader = max(frontiers, key=frontiers.get)
        followed = "r1" if isinstance(policy.adjusts, Follow) else leader
        shown = run.shown()
        for identity, end in run.ends(followed).items():
            free = identity.start >= run.merge.frontier
            if end == identity.start:
                kept = not free or policy.inserts is Inserts.HALF_FROZEN
                assert identity not in shown or kept
            elif identity in shown and end >= run.merge.frontier:
                lengthen_only = policy.shrink_only and not free
                kept = policy.inserts is Inserts.HALF_FROZEN and policy.shrink_only
                assert shown[identity] == end or lengthen_only or kept
        last = shown
    assert last == {e.identity: e.end for e in History.of(streams[0])}


@given(st.data(), policies(inserts=CHOOSING))
def test_the_chosen_replica_brings_events(data, policy):
    """The replica of the policy is computed again: the greatest, the one before of equals."""
    arrived = data.draw(interleavings(data.draw(replicas(min_inputs=2))))
    count = 1 + max(number for number, _ in arrived)
    run, names = Run.of(policy, count), [f"r{number}" for number in range(count)]
    highest = dict.fromkeys(names, NEVER)
    for number, element in arrived:
        came = came_before_reconcile(run, element, number)
        if isinstance(element, Insert) and not element.changes_nothing:
            highest[f"r{number}"] = max(highest[f"r{number}"], element.start)
        had = having(run, names)
        scores = {
            Inserts.LEADER: {name: one.frontier for name, one in run.merge.replicas.items()},
            Inserts.HIGHEST_START: highest,
            Inserts.MOST_FREE: {
                name: sum(name in some for some in had.values()) for name in names
            },
        }[policy.inserts]
        best = {name for name in names if scores[name] == max(scores.values())}
        for identity in came:
            assert had[identity] & best
        if policy.adjusts is Adjusts.ON_STABLE:
            shown = run.shown()
            # One of the greatest is chosen, and all that it has is on the output.
            assert any(
                all(one in shown for one, some in had.items() if name in some) for name in best
            )


@given(st.data(), policies(inserts=[Quorum(0.3), Quorum(0.5), Quorum(1)]))
def test_a_quorum_brings_events(data, policy):
    arrived = data.draw(interleavings(data.draw(replicas(min_inputs=2))))
    count = 1 + max(number for number, _ in arrived)
    run, names = Run.of(policy, count), [f"r{number}" for number in range(count)]
    needed = {0.3: [0, 1, 1, 1], 0.5: [0, 1, 1, 2], 1: [0, 1, 2, 3]}
    for number, element in arrived:
        came = came_before_reconcile(run, element, number)
        had = having(run, names)
        need = needed[policy.inserts.fraction][count]
        for identity in came:
            assert len(had[identity]) >= need
        if policy.adjusts is Adjusts.ON_STABLE:
            shown = run.shown()
            assert all(one in shown for one, some in had.items() if len(some) >= need)


@given(st.data(), policies(inserts=[Inserts.FIRST], adjusts=[Adjusts.ON_STABLE]))
def test_first_brings_whatever_a_replica_has(data, policy):
    run = Run.of(policy, 3)
    for number, element in data.draw(conflicting_arrivals()):
        run.take(number, element)
        shown = run.shown()
        assert all(
            one in shown for one, some in having(run, run.merge.replicas).items() if some
        )


@given(st.data(), policies(inserts=[Inserts.HALF_FROZEN]))
def test_half_frozen_never_removes_an_event(data, policy):
    run = Run.of(policy, 3)
    for number, element in data.draw(conflicting_arrivals()):
        run.take(number, element)
    assert not any(isinstance(e, Adjust) and e.is_removal for e in run.output)


@pytest.mark.parametrize("adjusts", ADJUSTS)
@pytest.mark.parametrize("inserts", INSERTS)
def test_what_the_deciding_replica_has_is_emitted_before_its_stable(adjusts, inserts):
    """Every policy yields at reconcile."""
    policy = Policy(adjusts=adjusts, inserts=inserts)
    run = feed(policy, "0: insert a 1..3", "2: insert b 1..4; insert c 5..6; stable 2")
    assert Insert("b", 1, 4) in run.output[: run.output.index(Stable(2))]
    assert Identity(1, "a") not in run.shown()
    run.judge_accounts()


def test_stable_lag_stays_behind_the_leader_and_forever_passes_at_once():
    run = feed(Policy(stable_lag=3), "0: insert a 1..9; stable 5", "1: stable 4; stable 7")
    assert [e.time for e in run.output if isinstance(e, Stable)] == [2, 4]
    assert run.merge.is_joined("r0")
    run.take(0, Stable(FOREVER))
    assert run.merge.frontier == FOREVER


def test_quorum_holds_an_insert_until_enough_replicas_have_it():
    run = feed(Policy(inserts=Quorum(0.5)), "0: insert a 1..3")
    assert run.output == []
    assert run.fates[0][2] is Reason.HELD
    run.take(1, Insert("a", 1, 4))
    assert run.output == parse("insert a 1..4")
    assert [reason for _, _, reason in run.fates] == [Reason.KNOWN, Reason.FIRST]


def test_what_is_held_is_taken_back_missed_or_abandoned():
    run = feed(
        Policy(inserts=Quorum(1)),
        "0: insert a 1..3; adjust a 1..3->1; insert b 1..3; insert c 7..9",
        "1: stable 5",
    )
    run.note(run.merge.detach("r0"))
    assert [reason.name for _, _, reason in run.fates] == [
        "SUPERSEDED",
        "SUPERSEDED",
        "MISSED",
        "ABANDONED",
        "LEADS",
    ]
    assert run.merge.nodes == {}


def test_what_the_deciding_replica_took_back_is_superseded_for_all():
    text = "insert a 1..3; adjust a 1..3->1; stable 5"
    run = feed(Policy(inserts=Quorum(1)), "0: insert a 1..3", f"1: {text}")
    assert run.fates[0][2] is Reason.SUPERSEDED
    assert run.output == [Stable(5)]


def test_always_brings_a_removed_event_back_with_the_next_word():
    run = feed(
        Policy(adjusts=Adjusts.ALWAYS),
        "0: insert a 1..3",
        "1: insert a 1..3",
        "0: adjust a 1..3->1",
        "1: adjust a 1..3->5",
    )
    assert run.output == parse("insert a 1..3; adjust a 1..3->1; insert a 1..5")
    assert [reason.name for _, _, reason in run.fates] == [
        "FIRST",
        "KNOWN",
        "CORRECTED",
        "FIRST",
    ]
    run.judge_accounts()


def test_always_a_removed_event_does_not_come_back_unasked():
    run = feed(
        Policy(adjusts=Adjusts.ALWAYS, inserts=Quorum(0.3)),
        *(f"{number}: insert a 1..3" for number in range(3)),
        "0: adjust a 1..3->1",
    )
    # The vote has changed, but nobody has spoken of the event.
    run.note(run.merge.detach("r2"))
    assert run.output == parse("insert a 1..3; adjust a 1..3->1")


def test_always_a_removed_event_comes_back_when_the_deciding_replica_has_it():
    run = feed(
        Policy(adjusts=Adjusts.ALWAYS),
        "0: insert a 1..3",
        "1: insert a 1..3",
        "0: adjust a 1..3->1",
        "1: stable 2",
    )
    assert run.output == parse("insert a 1..3; adjust a 1..3->1; insert a 1..3; stable 2")
    # No input element asked for the second insert.
    assert run.added(Insert) == 1


def test_always_does_not_reach_behind_the_frontier():
    """Erratum D8: only if old and new end are not behind the output's frontier."""
    run = feed(Policy(adjusts=Adjusts.ALWAYS), "0: insert a 1..3", "1: insert a 1..9; stable 5")
    run.take(0, Adjust("a", 1, 3, 8))
    assert run.output == parse("insert a 1..3; adjust a 1..3->9; stable 5")
    run.take(0, Adjust("a", 1, 8, 7))
    assert run.output[-1] == Adjust("a", 1, 9, 7)


def test_following_a_new_leader_changes_the_ends_at_once():
    run = feed(
        Policy(adjusts=Adjusts.FOLLOW_LEADER),
        "0: insert a 5..9; stable 1",
        "1: insert a 5..7",
        "1: stable 2",
    )
    assert run.output == parse("insert a 5..9; stable 1; stable 2; adjust a 5..9->7")
    assert run.leader_changes == 1
    run.note(run.merge.detach("r1"))
    assert run.output[-1] == Adjust("a", 5, 7, 9)


def test_what_the_followed_replica_removed_waits_until_another_is_followed():
    run = feed(
        Policy(adjusts=Follow("r0")),
        "0: insert a 5..9; adjust a 5..9->5",
        "1: insert a 5..8",
    )
    assert run.output == parse("insert a 5..9; adjust a 5..9->5")
    assert run.fates[-1][2] is Reason.HELD
    run.note(run.merge.detach("r0"))
    assert run.output[-1] == Insert("a", 5, 8)
    assert run.fates[-1][2] is Reason.FIRST


def test_the_highest_start_and_the_most_free_events_choose():
    arrivals = ("0: insert a 1..9", "1: insert b 2..9; insert c 2..9", "0: insert d 8..9")
    highest = feed(Policy(inserts=Inserts.HIGHEST_START), *arrivals)
    assert highest.output == parse("insert a 1..9; insert b 2..9; insert c 2..9; insert d 8..9")
    free = feed(Policy(inserts=Inserts.MOST_FREE), *arrivals)
    assert free.output == parse("insert a 1..9; insert b 2..9; insert c 2..9")
    leader = feed(Policy(inserts=Inserts.LEADER), *arrivals)
    assert leader.output == parse("insert a 1..9; insert d 8..9")


def test_erratum_l14_a_longer_end_is_a_removal_and_a_new_insert():
    run = feed(
        Policy(shrink_only=True),
        "0: insert a 1..2; adjust a 1..2->1; insert a 1..4; stable 3",
    )
    assert run.output == parse("insert a 1..2; adjust a 1..2->1; insert a 1..4; stable 3")
    run.judge_accounts()


def test_shrink_only_lengthens_where_an_input_does():
    run = feed(
        Policy(shrink_only=True), "0: insert a 1..4; stable 2; adjust a 1..4->9; stable 5"
    )
    assert run.output == parse("insert a 1..4; stable 2; adjust a 1..4->9; stable 5")


def test_what_cannot_be_removed_again_is_not_shown_too_short():
    run = feed(
        Policy(
            adjusts=Follow("r1"), inserts=Inserts.HALF_FROZEN, stable_lag=1, shrink_only=True
        ),
        "0: insert a 0..9",
        "1: insert a 0..1",
        "0: stable 1",
        "1: adjust a 0..1->0; insert a 0..9; stable forever",
    )
    assert run.output == parse("stable 0; insert a 0..9; stable forever")


def test_an_element_that_comes_again_is_absorbed():
    run = Run.of(Policy(inserts=Quorum(1)), 2)
    outcomes = [run.merge.push(name, Insert("a", 1, 2), seq=1) for name in ("r0", "r0", "r1")]
    assert [one.reason for one in outcomes] == [Reason.HELD, Reason.REDELIVERY, Reason.FIRST]
    assert [one.output for one in outcomes] == [(), (), (Insert("a", 1, 2),)]


def test_what_another_deciding_replica_brought_has_the_end_of_the_followed():
    run = feed(
        Policy(adjusts=Follow("r1"), inserts=Quorum(1)),
        "1: insert a 1..20",
        "0: insert a 1..30; stable 2",
    )
    assert run.output == parse("insert a 1..30; stable 2; adjust a 1..30->20")
