"""Every policy in lanes, while replicas come and go: what one lane emits, and the truth.

No Spark here: `lanes_driver` plays its part, with attempts that fail and workers that are lost.
"""

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from lanes_driver import Runtime, lane_spec

from anabranch.errors import UsageError, ViolationError
from anabranch.model import Adjust, History, Insert, MergeCase, Stable
from anabranch.model.element import Element
from anabranch.operators.merge.policy import Policy
from anabranch.spark.lane.bundles import Bundles
from anabranch.spark.lane.state import HEADER, WarmCopies
from anabranch.testing.asserts import assert_valid
from anabranch.testing.strategies import histories, presentations

DEEP = os.environ.get("ANABRANCH_PROFILE") == "deep"
NAMES = ["r0", "r1", "r2"]
OF_R3 = [
    "adjusts=always",
    "adjusts=follow_leader",
    "adjusts=follow(r1),inserts=leader",
    "inserts=half_frozen",
    "inserts=quorum(0.5)",
    "inserts=quorum(1),adjusts=always,stable_lag=2,promote=true",
    "shrink_only=true,inserts=leader,violations=detach",
]
BY_LANE = ["inserts=highest_start", "inserts=most_free,promote=true"]
OF_ALL = ["stable_lag=3", "promote=true", "promote=true,stable_lag=1,violations=detach"]
SHRINK = "shrink_only=true,promote=true"
CASES = {
    "r3": (*OF_R3, *BY_LANE, *OF_ALL),
    "r0 r1 r2": OF_ALL,
    "r4": (*OF_ALL, SHRINK),
    "auto": (*OF_ALL, SHRINK),
}


@dataclass
class Script:
    """The same triggers for several runtimes; each replica knows all of the truth."""

    data: st.DataObject
    shape: MergeCase
    truth: History
    runtimes: list[Runtime]
    left: dict[str, list[Element]] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    log: int = 0

    def trigger(self) -> None:
        """Some of them come, go, declare a guarantee and emit."""
        for one in self.runtimes:
            assert one.trigger == self.runtimes[0].trigger
        moves: list[tuple[str, Any]] = []
        for name in NAMES:
            word = self.data.draw(
                st.sampled_from(["emit"] * 6 + ["attach", "detach", "declare"])
            )
            moves += self._one(name, word)
        self.play(moves)

    def _one(self, name: str, word: str) -> list[tuple[str, Any]]:
        attached = name in self.left
        if word in ("attach", "declare") or not attached:
            guarantee = self.data.draw(st.sampled_from([None, None, 3, 8, 2**63 - 1]))
            if word != "declare" or not attached:
                shown = presentations(self.truth, case=self.shape)
                self.left[name] = self.data.draw(shown)
                self.numbers[name] = self.numbers.get(name, 0) + 1
            return [("attach", (name, guarantee)), ("emit", self._piece(name))]
        moves = [("emit", self._piece(name))]
        if word == "detach":
            del self.left[name]
            moves.append(("detach", (name, None)))
        return moves

    def _piece(self, name: str) -> tuple[str, list[Element]]:
        rest = self.left[name]
        size = self.data.draw(st.integers(0, len(rest)))
        self.left[name] = rest[size:]
        return name, rest[:size]

    def play(self, moves: list[tuple[str, Any]]) -> None:
        """One trigger of every runtime, with its own faults."""
        first = self.log
        self.log += len(moves) + 1
        for runtime in self.runtimes:
            parcels: list[Any] = []
            for log, (word, (name, what)) in enumerate(moves, first):
                base = {"attachment": self.numbers[name], "log": log}
                if word == "emit":
                    parcels += runtime.parcels({name: what}, **base)
                else:
                    parcels += runtime.control(word, name, guarantee=what, **base)
            if self.data.draw(st.booleans()):  # an attempt that failed, a worker that is lost
                runtime.attempt(0, parcels)
                runtime.warm = WarmCopies(self.data.draw(st.integers(0, 1)))
            runtime.commit(parcels)
            # A state that is read costs as much as a step: one lane in turn, in deep runs all.
            lanes = range(runtime.spec.lanes)
            for lane in lanes if DEEP else [runtime.trigger % len(lanes)]:
                check_stored(runtime, lane)

    def end(self) -> None:
        """All that are there turn out to be complete, and emit the rest."""
        whole = [name for name in NAMES if name in self.left]
        if not whole:
            self.play(self._one("r0", "attach"))
            whole = ["r0"]
        self.play([("attach", (name, None)) for name in whole])
        for name in whole:
            self.play([("emit", (name, self.left[name]))])
        for runtime in self.runtimes:
            for lane in range(runtime.spec.lanes):
                check_stored(runtime, lane)


def parts(runtime: Runtime, lane: int) -> dict[str, bytes]:
    stored = {key[0]: value[0] for key, value in runtime.stores[lane].items()}
    _, found = Bundles.read({name: data for name, data in stored.items() if name != HEADER})
    return {
        name.removeprefix("merge/"): data
        for name, data in found.items()
        if name.startswith("merge/")
    }


def check_stored(runtime: Runtime, lane: int) -> None:
    """What a lane has stored is a state in order."""
    operator = runtime.spec.pipeline[0].operator
    operator.from_parts(parts(runtime, lane)).check()


def shared(runtime: Runtime) -> set[str]:
    """What all lanes must have in common after the last trigger."""
    return {
        json.dumps(
            [
                (one.frontier, one.leader, one.fact("alarm"), one.fact("stretches"), one.steps),
                {n: (r.frontier, r.joined, r.attached) for n, r in one.replicas.items()},
            ],
            sort_keys=True,
        )
        for one in runtime.records[-runtime.spec.lanes :]
    }


@pytest.mark.parametrize("cases", CASES)
@given(data=st.data())
def test_lanes_emit_what_one_lane_emits_and_have_the_truth_in_the_end(
    data: st.DataObject, cases: str
) -> None:
    case = data.draw(st.sampled_from(cases.split()))
    text = data.draw(st.sampled_from(CASES[cases]))
    shape = MergeCase(case) if case != "auto" else MergeCase.R4
    truth = data.draw(histories(case=shape, max_events=5, max_time=10))
    policy, final = Policy.parse(text), data.draw(st.booleans())
    lanes = data.draw(st.integers(2, 3))
    one, many = (
        Runtime(lane_spec(case, count, policy=policy, final=final)) for count in (1, lanes)
    )
    script = Script(data, shape, truth, [one, many])
    for _ in range(data.draw(st.integers(0, 5))):
        script.trigger()
        assert shared(one) == shared(many)
        for runtime in (one, many):
            assert_valid(runtime.output())
            assert runtime.totals.adds_up
        if case == "r3" and text not in BY_LANE:
            assert Counter(many.output()) == Counter(one.output())
    script.end()
    for runtime in (one, many):
        assert_valid(runtime.output())
        assert runtime.totals.adds_up
        assert runtime.totals.frontier == "forever"
        if not runtime.totals.stretches:
            assert History.of(runtime.output()) == truth
            assert not final or History.from_events(runtime.final()) == truth


def policy_runtime(text: str, case: str = "r3", lanes: int = 2) -> Runtime:
    return Runtime(lane_spec(case, lanes, policy=Policy.parse(text)))


def test_a_quorum_holds_back_what_one_replica_has_in_every_lane() -> None:
    runtime = policy_runtime("inserts=quorum(1)")
    events = [Insert(name, 1, 9) for name in "abcdefgh"]
    runtime.commit(runtime.parcels({"x": events, "y": []}))
    assert (runtime.output(), runtime.totals.bucket("pending")) == ([], 8)
    runtime.commit(runtime.parcels({"y": events[:5]}))
    assert Counter(runtime.output()) == Counter(events[:5])
    runtime.commit([*runtime.control("detach", "y"), *runtime.parcels({"x": [Stable(2)]})])
    assert Counter(runtime.output()) == Counter([*events, Stable(2)])
    assert runtime.totals.adds_up


@pytest.mark.parametrize("case", ["r0", "r3", "r4", "auto"])
def test_who_only_joins_raises_an_alarm_and_promotion_shows_where_it_may_be_wrong(
    case: str,
) -> None:
    for text in ("default", "promote=true"):
        runtime = policy_runtime(text, case)
        runtime.commit(runtime.parcels({"x": [Insert("a", 1, 3), Stable(2)]}))
        runtime.commit(
            [
                *runtime.control("attach", "y", guarantee=9),
                *runtime.parcels({"y": [Insert("b", 5, 9), Stable(4)]}),
            ]
        )
        assert runtime.totals.alarm is None
        runtime.commit(runtime.control("detach", "x"))
        promoted = text != "default"
        assert runtime.totals.alarm == (None if promoted else ["y", 9])
        assert runtime.totals.stretches == ([[2, 9, "y"]] if promoted else [])
        assert runtime.totals.frontier == (4 if promoted else 2)
        assert runtime.totals.leader == ("y" if promoted else None)
        last = runtime.output()[-1]
        assert last == (Stable(4) if promoted else runtime.output()[-1])
        assert runtime.totals.adds_up
        assert_valid(runtime.output())


def test_a_violation_in_one_lane_detaches_in_no_lane_before_the_log_does() -> None:
    """Lanes that detached by themselves would not agree on the frontier."""
    runtime = policy_runtime("violations=detach,inserts=leader")
    wrong = [Adjust("nobody", 1, 9, 4), Stable(5)]
    runtime.commit(runtime.parcels({"x": wrong, "y": [Insert("a", 7, 9)]}))
    assert sorted(record.violators for record in runtime.records) == [(), ("x",)]
    assert {record.frontier for record in runtime.records} == {5}
    runtime.commit(runtime.control("detach", "x"))
    assert runtime.totals.leader == "y"
    assert runtime.totals.adds_up


def test_raise_names_the_element_and_leaves_nothing_behind() -> None:
    runtime = policy_runtime("violations=raise,adjusts=always")
    wrong = runtime.parcels({"x": [Insert("a", 1, 3), Adjust("nobody", 1, 9, 4)]})
    with pytest.raises(ViolationError, match="replica 'x' sent 'adjust nobody 1"):
        runtime.commit(wrong)
    runtime.spec = lane_spec("r3", 2, policy=Policy.parse("adjusts=always"))
    runtime.commit(wrong)
    assert runtime.output() == [Insert("a", 1, 3)]


def test_stored_lanes_keep_their_policy_and_take_another_verdict() -> None:
    runtime = policy_runtime("inserts=leader,violations=detach")
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 3)]}))
    runtime.warm = WarmCopies()
    runtime.spec = lane_spec("r3", 2, policy=Policy.parse("inserts=leader"))
    runtime.commit(runtime.parcels({"x": [Insert("b", 1, 3)]}))
    runtime.warm = WarmCopies()
    runtime.spec = lane_spec("r3", 2, policy=Policy.parse("inserts=half_frozen"))
    runtime.commit(runtime.parcels({"x": [Insert("c", 1, 3)]}))
    # Only an entry of the control log changes it, in all lanes in the same trigger.
    found = {record.operators["merge"].facts["policy"] for record in runtime.records}
    assert found == {"inserts=leader"}


def test_a_policy_that_the_case_has_not_is_refused_when_it_is_built() -> None:
    with pytest.raises(UsageError, match=r"case R0 has no shrink_only=true"):
        policy_runtime("shrink_only=true", "r0")
    with pytest.raises(UsageError, match=r"inserts=leader needs case R3"):
        policy_runtime("inserts=leader", "auto")
