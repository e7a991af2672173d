"""Copies with gaps: the output has an event if any joined replica has it in time.

Every law runs on the reference, the kernel and lanes without Spark, whatever the cut into
steps; the kernel is also raced against the reference, element by element, on streams that
disagree and break promises.
"""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.merge.policy import Policy
from anabranch.testing import (
    conflicting_arrivals,
    histories,
    interleavings,
    presentations,
    replicas,
)
from anabranch.testing import engine as engine_of

CASES = st.sampled_from([MergeCase.R3, MergeCase.R4])


def removed_by(stream):
    """The identities of which a replica had events and has none in the end."""
    came = {e.event.identity for e in stream if isinstance(e, Insert) and not e.changes_nothing}
    return came - {event.identity for event in replay(stream).history.events()}


def union_of(streams):
    """The events that some replica has, as many as the fullest has, and that none removed."""
    gone = set().union(*map(removed_by, streams))
    found = Counter()
    for stream in streams:
        found |= Counter(replay(stream).history.events())
    return History.from_events(e for e in found.elements() if e.identity not in gone)


def same_lifetimes(case):
    """Histories in which all events of an identity end together."""

    def aligned(history):
        ends = {}
        events = [e._replace(end=ends.setdefault(e.identity, e.end)) for e in history.events()]
        return History.from_events(events)

    return histories(case=case).map(aligned)


def stepped(data, merge, arrived):
    """Push what arrived, cut and restarted at random; yields how many elements are taken."""
    inner = data.draw(st.lists(st.integers(0, len(arrived)), max_size=4).map(sorted))
    for start, stop in pairwise([0, *inner, len(arrived)]):
        for number, element in arrived[start:stop]:
            merge.push(f"r{number}", [element])
        merge.restart() if data.draw(st.booleans()) else merge.cut()
        yield stop


def frontiers(arrived, count):
    """How far each replica is."""
    seen = [NEVER] * count
    for number, element in arrived:
        if isinstance(element, Stable):
            seen[number] = max(seen[number], element.time)
    return seen


def the_output_is_the_union_of_the_copies(engine, data):
    """Whatever each copy lacks; and at each cut its frontier is the least of theirs."""
    case = data.draw(CASES)
    known = same_lifetimes(case)
    streams = data.draw(replicas(case=case, min_inputs=2, gaps=True, history=known))
    arrived = data.draw(interleavings(streams))
    with engine("merge", case=case.value, policy="gaps=true") as merge:
        for number in range(len(streams)):
            merge.attach(f"r{number}")
        for taken in stepped(data, merge, arrived):
            out = replay(merge.output)
            assert out.violations == ()
            assert out.frontier == min(frontiers(arrived[:taken], len(streams)))
        assert merge.history == union_of(streams)
        assert sum(one["late"] for one in merge.account.values()) == 0
        assert sum(sum(one.values()) for one in merge.account.values()) == len(arrived)


@given(st.data())
def test_the_output_is_the_union_of_the_copies(local_engine, data):
    the_output_is_the_union_of_the_copies(local_engine, data)


@pytest.mark.spark
@pytest.mark.deep  # its cases run on Spark in every check
@pytest.mark.parametrize("number", [1, 2])
def test_the_output_is_the_union_of_the_copies_on_spark(spark_engine, number):
    @seed(number)
    @settings(max_examples=5, phases=[Phase.generate], database=None, derandomize=False)
    @given(st.data())
    def tried(data):
        the_output_is_the_union_of_the_copies(spark_engine, data)

    tried()


@given(st.data())
def test_an_identity_has_as_many_events_as_its_fullest_copy(local_engine, data):
    """Where the events of an identity end at several times, an end is no name for one."""
    streams = data.draw(replicas(case=MergeCase.R4, min_inputs=2, gaps=True))
    arrived = data.draw(interleavings(streams))
    with local_engine("merge", case="r4", policy="gaps=true") as merge:
        for number in range(len(streams)):
            merge.attach(f"r{number}")
        for _ in stepped(data, merge, arrived):
            assert replay(merge.output).violations == ()
        have = Counter(event.identity for event in merge.history.events())
    want = Counter()
    for stream in streams:
        want |= Counter(event.identity for event in replay(stream).history.events())
    for identity in set().union(*map(removed_by, streams)):
        del want[identity]
    assert have == want


@given(st.data())
def test_with_wait_the_shortfall_is_what_came_too_late(local_engine, data):
    """And each row of it is late: the others of its event were too, or there are none."""
    wait = data.draw(st.integers(0, 8))
    truth = data.draw(histories())
    streams = [
        data.draw(presentations(truth, gaps=True, revisions=0, phantoms=0)) for _ in range(2)
    ]
    arrived = data.draw(interleavings(streams))
    policy = f"gaps=true,wait={wait}"
    with local_engine("merge", case="r3", policy=policy) as merge:
        for number in range(2):
            merge.attach(f"r{number}")
        reached, late, expected = NEVER, Counter(), set()
        at = [NEVER, NEVER]
        for number, element in arrived:
            merge.push(f"r{number}", [element])
            merge.cut()
            if isinstance(element, Stable):
                at[number] = max(at[number], element.time)
                moving = max((one for one in at if one != FOREVER), default=NEVER)
                reached = max(reached, min(at), moving - wait)
            elif element.changes_nothing:
                continue
            elif element.start >= reached or element.event in expected:
                expected.add(element.event)
            else:
                late[f"r{number}"] += 1
            assert replay(merge.output).frontier == reached
        assert set(merge.history.events()) == expected
        assert Counter({n: one["late"] for n, one in merge.account.items()}) == late


@given(st.data())
def test_a_removal_wins_over_copies_that_still_have_the_event(local_engine, data):
    """One copy takes an event back, the others never do: it is not in the output."""
    gone = Event("x", 3, data.draw(st.sampled_from([5, 9, FOREVER])))
    truth = data.draw(histories())
    truth = History.from_events([e for e in truth.events() if e.payload != "x"])
    with_it = History.from_events([*truth.events(), gone])
    removing = data.draw(presentations(truth, phantoms=0))
    removing[:0] = [Insert(*gone), Adjust(gone.payload, gone.start, gone.end, gone.start)]
    keeping = data.draw(presentations(with_it, phantoms=0))
    arrived = data.draw(interleavings([removing, keeping]))
    with local_engine("merge", case="r3", policy="gaps=true") as merge:
        for number in range(2):
            merge.attach(f"r{number}")
        for _ in stepped(data, merge, arrived):
            assert replay(merge.output).violations == ()
        assert merge.history == truth


POLICIES = st.sampled_from(
    [
        "gaps=true",
        "gaps=true,wait=2",
        "gaps=true,wait=0,stable_lag=1",
        "gaps=true,shrink_only=true",
        "gaps=true,promote=true",
        "gaps=true,inserts=quorum(0.6)",
        "gaps=true,inserts=leader,adjusts=always",
        "gaps=true,inserts=half_frozen",
        "gaps=true,adjusts=follow_leader,wait=3",
    ]
)
BAGS = st.sampled_from(
    [
        "gaps=true",
        "gaps=true,wait=2",
        "gaps=true,stable_lag=1,shrink_only=true",
        "gaps=true,promote=true",
    ]
)
GUARANTEES = st.sampled_from([None, None, 0, 3, 6, FOREVER])


@given(st.data())
def test_the_kernel_does_what_the_reference_does(data):
    """Element by element, where replicas disagree, come, leave and are passed over."""
    case = data.draw(CASES)
    policy = data.draw(POLICIES if case is MergeCase.R3 else BAGS)
    arrived = data.draw(conflicting_arrivals(case=case))
    both = [engine_of(name, case=case.value, policy=policy) for name in ("reference", "kernel")]
    attached = set()
    for number in range(3):
        guarantee = data.draw(GUARANTEES)
        attached.add(number)
        for one in both:
            one.attach(f"r{number}", guarantee=guarantee)
    for number, element in arrived:
        what = data.draw(st.sampled_from(["push"] * 8 + ["pass", "leave", "restart"]))
        for one in both:
            if what == "pass":
                one.pass_over(f"r{number}")
            elif what == "leave" and number in attached:
                one.detach(f"r{number}")
            elif what == "leave":
                one.attach(f"r{number}", guarantee=3)
            elif what == "restart":
                one.restart()
        attached ^= {number} if what == "leave" else set()
        if number not in attached:
            continue
        for one in both:
            one.push(f"r{number}", [element])
            one.cut()
        reference, kernel = both
        assert replay(kernel.output).violations == ()
        assert kernel.history == reference.history
        assert replay(kernel.output).frontier == replay(reference.output).frontier
        assert kernel.account == reference.account
        assert kernel.counts["conflicts"] == reference.counts["conflicts"]
        assert kernel.counts["missing"] == reference.counts["missing"]


def test_a_replica_that_was_passed_over_is_awaited_again_when_it_has_caught_up(engine):
    with engine("merge", case="r3", policy="gaps=true") as merge:
        merge.attach("east")
        merge.attach("west")
        merge.push("east", "insert a 1..3; insert b 12..14; stable 10")
        merge.push("west", "insert c 2..3; stable 2")
        merge.cut()
        assert replay(merge.output).frontier == 2
        merge.pass_over("west")
        assert replay(merge.output).frontier == 10
        merge.push("west", "insert d 4..6; stable 11")
        merge.push("east", "stable 20")
        merge.cut()
        assert merge.account["west"]["late"] == 1
        assert replay(merge.output).frontier == 11
        assert sorted(event.payload for event in merge.history.events()) == ["a", "b", "c"]


def test_a_replica_that_has_ended_is_not_passed_over(local_engine):
    with local_engine("merge", case="r3", policy="gaps=true") as merge:
        merge.attach("east")
        merge.attach("west")
        merge.push("east", "stable forever")
        merge.cut()
        merge.pass_over("east")
        merge.push("west", "stable 1")
        merge.detach("west")
        assert replay(merge.output).frontier == FOREVER


@pytest.mark.parametrize("case", ["r0", "r1", "r2"])
def test_cases_that_remember_one_start_refuse_gaps(case):
    with pytest.raises(UsageError, match=rf"case {case.upper()} was asked for, but replicas"):
        engine_of("kernel", case=case, policy="gaps=true")


def test_wait_is_for_copies_with_gaps():
    with pytest.raises(UsageError, match="wait=3 without gaps"):
        Policy.parse("wait=3")
    with pytest.raises(UsageError, match="wait=-1 is not a distance"):
        Policy.parse("gaps=true,wait=-1")
    policy = Policy.parse("gaps=true, wait=7")
    assert Policy.from_dict(policy.to_dict()) == policy
    assert str(policy) == "gaps=true,wait=7"
