"""Replicas that attach, detach and come back: nothing that a joined one promised is lost."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import Run, policies

from anabranch.errors import UsageError, ViolationError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.equivalence import equivalent_until
from anabranch.model.history import History, replay
from anabranch.model.notation import parse, parse_events
from anabranch.model.time import FOREVER, NEVER
from anabranch.operators.contract import Bucket, Reason
from anabranch.operators.merge.policy import Policy, Quorum, Violations
from anabranch.operators.reference.membership import Alarm, Stretch
from anabranch.testing.strategies import conflicting_arrivals, histories, joiners, presentations

NAMES = ["r0", "r1", "r2", "r3"]


@dataclass
class Script:
    """Random membership: the truth, who is attached with which elements, and the merge."""

    data: st.DataObject
    run: Run
    truth: History
    waiting: dict = field(default_factory=dict)
    guarantees: dict = field(default_factory=dict)
    frontiers: dict = field(default_factory=dict)
    numbers: dict = field(default_factory=dict)

    def attach(self):
        name = self.data.draw(st.sampled_from(NAMES))
        guarantee = self.data.draw(st.sampled_from([None, None, None, 2, 5, 9, FOREVER]))
        self.attach_as(name, guarantee)

    def attach_as(self, name, guarantee):
        if guarantee is None or guarantee == FOREVER:
            stream = self.data.draw(presentations(self.truth, phantoms=1))
        else:
            late = joiners(self.truth, guarantee=guarantee, strangers=1, phantoms=1)
            stream = self.data.draw(late)
        if guarantee == FOREVER:
            # It goes on where it left off: with a gap, after which nothing is certain.
            stream = stream[len(stream) // 2 :]
        number = self.numbers[name] = self.numbers.get(name, 0) + 1
        self.waiting[name], self.guarantees[name] = stream, guarantee
        self.frontiers[name] = NEVER
        change = self.run.merge.attach(name, guarantee=guarantee, attachment=number)
        self.run.note(change)

    def detach(self):
        name = self.data.draw(st.sampled_from(sorted(self.waiting)))
        del self.waiting[name], self.guarantees[name], self.frontiers[name]
        self.run.note(self.run.merge.detach(name))

    def push(self):
        name = self.data.draw(st.sampled_from(sorted(self.waiting)))
        for element in self.waiting[name][: self.data.draw(st.integers(1, 4))]:
            self.waiting[name].pop(0)
            self.run.take(name, element)
            if isinstance(element, Stable):
                self.frontiers[name] = max(self.frontiers[name], element.time)

    def step(self):
        actions = [self.attach]
        if self.waiting:
            actions += [self.push] * 4 + [self.detach]
        self.data.draw(st.sampled_from(actions))()
        assert replay(self.run.output).violations == ()
        self.run.judge_accounts()

    def reached(self, frontier, lag):
        """How far the output must be, from here, by the rule for joined replicas."""
        while True:
            counted = [
                self.frontiers[name] - lag
                for name, guarantee in self.guarantees.items()
                if guarantee is None or guarantee <= frontier
            ]
            if max(counted, default=NEVER) <= frontier:
                return frontier
            frontier = max(counted)


def scripts(data, policy):
    truth = data.draw(histories(max_events=5, max_time=10))
    return Script(data, Run.of(policy, 0), truth)


@given(st.data(), policies())
def test_nothing_that_a_joined_replica_promised_is_lost(data, policy):
    script, expected = scripts(data, policy), NEVER
    for _ in range(data.draw(st.integers(1, 25))):
        script.step()
        expected = script.reached(expected, policy.stable_lag)
        out = replay(script.run.output)
        assert out.frontier == script.run.merge.frontier == expected
        # What is fixed on the output is what is true, whoever has left meanwhile.
        assert equivalent_until(out.history, script.truth, out.frontier)
        joined = [one for one in script.waiting if script.run.merge.is_joined(one)]
        assert (script.run.merge.alarm is None) == (bool(joined) or not script.waiting)
    assert script.run.merge.stretches == ()
    script.attach_as("last", None)
    for element in script.waiting["last"]:
        script.run.take("last", element)
    assert History.of(script.run.output) == script.truth


def alive(history, time):
    """Who is alive then; until when may still be open."""
    return [event.identity for event in history.snapshot(time)]


@given(st.data(), policies())
def test_after_a_promotion_the_output_is_right_outside_the_stretch(data, policy):
    """Erratum D5; a snapshot is judged as soon as the output's frontier has passed it."""
    policy = Policy(
        adjusts=policy.adjusts,
        inserts=policy.inserts,
        stable_lag=policy.stable_lag,
        promote=True,
    )
    script = scripts(data, policy)
    for _ in range(data.draw(st.integers(1, 25))):
        script.step()
        out, stretches = replay(script.run.output), script.run.merge.stretches
        for time in range(-1, 14):
            unsure = any(stretch.start <= time < stretch.end for stretch in stretches)
            if time < out.frontier and not unsure:
                assert alive(out.history, time) == alive(script.truth, time)


@given(st.data())
def test_a_replica_that_breaks_a_promise_is_detached_and_not_believed_again(data):
    run = Run.of(Policy(violations=Violations.DETACH), 3)
    violators = set()
    for number, element in data.draw(conflicting_arrivals()):
        outcome = run.take(number, element)
        if f"r{number}" in violators:
            assert outcome.reason is Reason.EXPELLED
        elif outcome.bucket is Bucket.VIOLATION:
            violators.add(f"r{number}")
        assert violators.isdisjoint(run.merge.replicas)
        assert replay(run.output).violations == ()
    run.judge_accounts()


def feed(run, *arrivals):
    """`west: insert a 1..3` is an element of replica west."""
    for arrival in arrivals:
        name, text = arrival.split(":")
        for element in parse(text):
            run.take(name, element)


def test_detached_replica_may_attach_again_with_a_greater_number():
    run = Run.of(Policy(violations=Violations.DETACH), 0)
    feed(run, "west: insert a 1..3; insert a 1..4; stable 9")
    assert [reason.name for _, _, reason in run.fates] == ["FIRST", "SECOND_INSERT", "EXPELLED"]
    assert run.merge.frontier == NEVER
    with pytest.raises(UsageError, match="greater number"):
        run.merge.attach("west", attachment=1)
    run.note(run.merge.attach("west", attachment=2))
    feed(run, "west: insert a 1..4; stable 9")
    assert History.of(run.output) == History.from_events(parse_events("a 1..4"))


def test_a_violation_that_stops_leaves_the_merge_as_it_was():
    run = Run.of(Policy(violations=Violations.RAISE), 0)
    feed(run, "west: insert a 1..3; stable 2")
    with pytest.raises(ViolationError, match=r"'west' sent 'adjust a 1\.\.3->1'.*=ignore"):
        run.merge.push("west", Adjust("a", 1, 3, 1), seq=7)
    run.judge_accounts()
    assert run.merge.push("west", Adjust("a", 1, 3, 5), seq=7).reason is Reason.NOTED


def test_the_leader_may_leave_and_all_but_one():
    run = Run.of(Policy(), 3)
    feed(run, "r0: insert a 1..9; stable 5", "r1: insert a 1..7", "r2: insert a 1..8")
    run.note(run.merge.detach("r0"))
    run.note(run.merge.detach("r2"))
    feed(run, "r1: stable 8")
    assert run.output == parse("insert a 1..9; stable 5; adjust a 1..9->7; stable 8")
    assert run.leader_changes == 1
    assert run.merge.detach("nobody") == ((), ())


def test_a_smaller_quorum_after_a_detach_shows_what_was_held():
    run = Run.of(Policy(inserts=Quorum(1)), 2)
    feed(run, "r0: insert a 1..9")
    assert run.output == []
    change = run.note(run.merge.detach("r1"))
    assert change.output == (Insert("a", 1, 9),)
    assert [one.reason for one in change.resolved] == [Reason.FIRST]


def test_erratum_l9_a_replica_is_joined_exactly_when_the_output_reaches_its_guarantee():
    run = Run.of(Policy(), 1)
    run.note(run.merge.attach("late", guarantee=5))
    feed(run, "late: stable 9", "r0: insert a 1..4; stable 4")
    assert (run.merge.is_joined("late"), run.merge.frontier) == (False, 4)
    feed(run, "r0: stable 5")
    # What late need not know was decided by r0, before late led.
    assert (run.merge.is_joined("late"), run.merge.frontier) == (True, 9)
    assert History.of(run.output) == History.from_events(parse_events("a 1..4"))


def test_only_joining_replicas_left_is_an_alarm():
    run = Run.of(Policy(violations=Violations.IGNORE), 1)
    run.note(run.merge.attach("late", guarantee=8))
    run.note(run.merge.attach("later", guarantee=FOREVER))
    feed(run, "r0: insert a 1..3; stable 2", "late: insert b 6..9; stable 7")
    assert run.merge.alarm is None
    run.note(run.merge.detach("r0"))
    assert run.merge.alarm == Alarm(2, "late", 8)
    assert run.merge.frontier == 2
    run.note(run.merge.attach("r0", attachment=2))
    assert run.merge.alarm is None


def test_erratum_d5_promotion_of_the_smallest_guarantee_reports_the_stretch():
    run = Run.of(Policy(promote=True), 0)
    # Nobody has been joined yet: to wait for the others is no failure.
    run.note(run.merge.attach("late", guarantee=8))
    run.note(run.merge.attach("later", guarantee=FOREVER))
    assert run.merge.alarm == Alarm(NEVER, "late", 8)
    run.note(run.merge.attach("r0"))
    feed(
        run,
        "r0: insert a 1..20; insert b 1..5; insert c 9..11; stable 2",
        "late: insert d 6..9; stable 10",
    )
    change = run.note(run.merge.detach("r0"))
    assert run.merge.stretches == (Stretch(2, 8, "late"),)
    assert run.merge.alarm is None
    # Late denies that a and c end as they do; what it need not know stays where it may be true.
    assert change.output == (Adjust("a", 1, 20, 8), Adjust("c", 9, 11, 9), Stable(10))
    assert History.of(run.output) == History.from_events(parse_events("a 1..8; b 1..5; d 6..9"))


def test_a_promoted_replica_is_like_others_once_the_output_has_passed_its_guarantee():
    run = Run.of(Policy(promote=True), 1)
    feed(run, "r0: stable 1")
    run.note(run.merge.attach("late", guarantee=5))
    run.note(run.merge.detach("r0"))
    run.note(run.merge.attach("full"))
    feed(run, "full: insert a 3..20; stable 7", "late: stable 9")
    # A conflict: late should know an event that ends so late.
    assert run.output == parse("stable 1; insert a 3..20; stable 7; stable 9")
    assert run.merge.conflicts == 1
