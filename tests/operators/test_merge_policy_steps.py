"""What each merge policy promises at the end of each step, however many elements a step has.

The compiled merge is judged, and so is the reference: fed the elements of the step one by one
and read when the step ends, it keeps the same promises.
"""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_events import live_events
from merge_driver import Kernel, cuts, runs, time_of
from policy_driver import CHOOSING, Run, policies

from anabranch.batch.values import to_payloads
from anabranch.model.element import Adjust, Identity, Insert
from anabranch.model.history import replay
from anabranch.model.notation import parse
from anabranch.model.time import NEVER, Time
from anabranch.operators.contract import REASONS, Bucket, Reason
from anabranch.operators.merge.policy import Adjusts, Follow, Inserts, Policy, Quorum
from anabranch.operators.state.events import ABSENT
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas


class Reading(NamedTuple):
    """What can be read of a merge when a step ends.

    `ends` is what each replica has of the events that may still change, `reached` the replicas'
    frontiers, in the order of attaching.
    """

    frontier: Time
    shown: dict[Identity, Time]
    ends: dict[str, dict[Identity, Time]]
    reached: dict[str, Time]

    def having(self, names):
        """For each event that may still start, which of these replicas have it."""
        events = {one for some in self.ends.values() for one in some if one[0] >= self.frontier}
        return {
            one: {name for name in names if self.ends[name].get(one, one[0]) > one[0]}
            for one in events
        }


class Compiled:
    """The compiled merge, one step per `take`."""

    def __init__(self, policy, count):
        self.merge = Kernel(policy)
        for number in range(count):
            self.merge.attach(f"r{number}")

    def take(self, arrived):
        """Take a step; each element with its reason."""
        some = runs(arrived)
        reasons = self.merge.step(some).reasons
        return [
            (element, REASONS[code])
            for (_, elements), codes in zip(some, reasons, strict=True)
            for element, code in zip(elements, codes, strict=True)
        ]

    def read(self):
        state = self.merge.state
        events = live_events(state)
        payloads = to_payloads(events.payload, len(events))
        names = [
            Identity(start, p) for start, p in zip(events.start.tolist(), payloads, strict=True)
        ]
        ends = {
            replica.name: {
                one: time_of(end)
                for one, end in zip(names, events.ends[:, i].tolist(), strict=True)
                if end != ABSENT
            }
            for i, replica in enumerate(state.inputs)
        }
        shown = {event.identity: event.end for event in replay(self.merge.output).history}
        reached = {replica.name: time_of(replica.frontier) for replica in state.inputs}
        return Reading(time_of(state.frontier), shown, ends, reached)


class OneByOne:
    """The reference, read when a step ends."""

    def __init__(self, policy, count):
        self.run = Run.of(policy, count)

    def take(self, arrived):
        return [(e, self.run.take(number, e).reason) for number, e in arrived]

    def read(self):
        merge = self.run.merge
        reached = {name: one.frontier for name, one in merge.replicas.items()}
        ends = {name: self.run.ends(name) for name in merge.replicas}
        return Reading(merge.frontier, self.run.shown(), ends, reached)


ENGINES = pytest.mark.parametrize("engine", [OneByOne, Compiled])


def steps(data, arrived):
    start = 0
    for stop in data.draw(cuts(len(arrived))):
        if stop > start:
            yield arrived[start:stop]
        start = stop


@ENGINES
@given(st.data(), policies(adjusts=[Adjusts.ALWAYS], inserts=[Inserts.FIRST]))
def test_always_shows_the_last_adjust_of_a_step(engine, data, policy):
    merge = engine(policy, 3)
    for arrived in steps(data, data.draw(conflicting_arrivals())):
        before = merge.read()
        last = {}
        for element, reason in merge.take(arrived):
            if isinstance(element, Insert | Adjust) and not element.changes_nothing:
                believed = reason.bucket in (Bucket.ABSORBED, Bucket.CORRECTED, Bucket.EMITTED)
                if believed and reason not in (Reason.SETTLED, Reason.REDELIVERY):
                    last[Identity(element.start, element.payload)] = element
        after = merge.read()
        if after.frontier > before.frontier:
            continue
        for identity, element in last.items():
            if not isinstance(element, Adjust) or identity not in before.shown:
                continue
            free = identity.start >= after.frontier
            if min(element.old_end, element.end) < after.frontier:
                continue
            if element.is_removal:
                assert identity not in after.shown or not free
            elif not policy.shrink_only or free:
                assert after.shown[identity] == element.end


@ENGINES
@given(st.data(), policies(adjusts=[Adjusts.FOLLOW_LEADER, Follow("r1")]))
def test_following_the_output_has_the_ends_of_the_followed(engine, data, policy):
    streams = data.draw(replicas(min_inputs=2))
    merge, leader, furthest = engine(policy, len(streams)), "r0", NEVER
    for arrived in steps(data, data.draw(interleavings(streams))):
        merge.take(arrived)
        read = merge.read()
        before, furthest = furthest, max(read.reached.values())
        if furthest > before:
            leaders = [n for n, t in read.reached.items() if t == furthest]
            # Within a step several may have led in turn: any of the furthest may be it.
            if len(leaders) > 1:
                return
            (leader,) = leaders
        followed = "r1" if isinstance(policy.adjusts, Follow) else leader
        for identity, end in read.ends[followed].items():
            free = identity.start >= read.frontier
            keeps = policy.inserts is Inserts.HALF_FROZEN
            if end == identity.start:
                assert identity not in read.shown or not free or keeps
            elif identity in read.shown and end >= read.frontier:
                is_let = policy.shrink_only and (not free or keeps)
                assert read.shown[identity] == end or is_let


@ENGINES
@given(st.data(), policies(inserts=[*CHOOSING, Quorum(0.3), Quorum(0.5), Quorum(1)]))
def test_events_come_while_the_replicas_of_the_policy_have_them(engine, data, policy):
    streams = data.draw(replicas(min_inputs=2))
    merge, names = engine(policy, len(streams)), [f"r{n}" for n in range(len(streams))]
    highest = dict.fromkeys(names, NEVER)
    for arrived in steps(data, data.draw(interleavings(streams))):
        before = merge.read()
        merge.take(arrived)
        for number, element in arrived:
            if isinstance(element, Insert) and not element.changes_nothing:
                highest[f"r{number}"] = max(highest[f"r{number}"], element.start)
        read = merge.read()
        had = read.having(names)
        came = [one for one in read.shown if one not in before.shown and one in had]
        if isinstance(policy.inserts, Quorum):
            need = policy.inserts.needed(len(names))
            asked = {one: len(some) >= need for one, some in had.items()}
            complete = all(one in read.shown for one, yes in asked.items() if yes)
        else:
            scores = {
                Inserts.LEADER: read.reached,
                Inserts.MOST_FREE: {n: sum(n in some for some in had.values()) for n in names},
            }.get(policy.inserts, highest)
            best = {name for name in names if scores[name] == max(scores.values())}
            asked = {one: bool(some & best) for one, some in had.items()}
            complete = any(
                all(one in read.shown for one, some in had.items() if name in some)
                for name in best
            )
        if engine is Compiled:
            # The reference may have asked another one within the step.
            assert all(asked[one] for one in came)
        if policy.adjusts is Adjusts.ON_STABLE:
            assert complete


@ENGINES
@given(st.data(), policies(inserts=[Inserts.FIRST], adjusts=[Adjusts.ON_STABLE]))
def test_first_brings_whatever_a_replica_has(engine, data, policy):
    merge = engine(policy, 3)
    for arrived in steps(data, data.draw(conflicting_arrivals())):
        merge.take(arrived)
        read = merge.read()
        had = read.having(read.reached)
        assert all(one in read.shown for one, some in had.items() if some)


@ENGINES
@given(st.data(), policies(inserts=[Inserts.HALF_FROZEN]))
def test_half_frozen_never_removes_an_event(engine, data, policy):
    merge, shown = engine(policy, 3), set()
    for arrived in steps(data, data.draw(conflicting_arrivals())):
        merge.take(arrived)
        now = set(merge.read().shown)
        assert shown <= now
        shown = now


def test_a_step_shows_the_last_word_of_each_replica_in_turn():
    merge = Kernel(Policy(adjusts=Adjusts.ALWAYS))
    text = "insert a 1..3; adjust a 1..3->5", "insert a 1..4; adjust a 1..4->6"
    merge.step([(name, parse(one)) for name, one in zip(("east", "west"), text, strict=True)])
    assert merge.output == parse("insert a 1..6")
    removal, insert = parse("adjust a 1..5->1"), parse("insert a 1..9")
    merge.step([("east", removal), ("west", parse("adjust a 1..6->8")), ("east", insert)])
    assert merge.output[1:] == parse("adjust a 1..6->8")


def test_a_vote_is_taken_when_the_step_ends():
    merge = Kernel(Policy(inserts=Quorum(0.5)))
    for name in ("east", "west", "north"):
        merge.attach(name)
    back = parse("insert a 1..3; adjust a 1..3->1")
    merge.step([("east", back), ("west", parse("insert a 1..3"))])
    assert merge.output == []
    assert [reason.name for reason in merge.reasons[-3:]] == [
        "SUPERSEDED",
        "SUPERSEDED",
        "HELD",
    ]
    merge.step([("north", parse("insert a 1..4"))])
    assert merge.output == parse("insert a 1..4")
