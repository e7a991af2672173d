"""Which case has which policy, what violations do over batches, and what a state refuses."""

import pytest
from merge_driver import SCHEMA, batch_of
from policy_kernel_driver import Duel

from anabranch.batch.codec import to_elements
from anabranch.errors import UsageError, ViolationError
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.contract import Arrival, Bucket, Reason
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_kernel import step as plain_step
from anabranch.operators.merge.r3_policy_kernel import step
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.support import require_choice, require_support, supports
from anabranch.operators.merge.verdict import guilty

WEST = "insert a 1..3; insert b 2..4; insert b 2..5; stable 9"
MANY = "inserts=quorum(0.5),adjusts=always,promote=true,violations=raise"


def arrivals():
    east = batch_of(parse("insert a 1..3"))
    return [Arrival("east", east), Arrival("west", batch_of(parse(WEST)))]


@pytest.mark.parametrize("case", list(MergeCase))
def test_every_case_has_the_default_and_violations(case):
    for text in ("default", "violations=raise", "violations=detach"):
        require_support(case, Policy.parse(text))
    assert supports(case, Policy.parse(MANY)) == (case is MergeCase.R3)


def test_what_a_case_has_not_is_refused_by_name_with_what_to_do():
    with pytest.raises(
        UsageError,
        match=r"case R4 has no adjusts=always, inserts=quorum\(0.5\): .*which one is meant.*"
        r"--case r3.*promote, shrink_only, stable_lag and violations",
    ):
        require_support(MergeCase.R4, Policy.parse(MANY))
    with pytest.raises(UsageError, match=r"case R1 has no shrink_only=true: it emits each"):
        require_support(MergeCase.R1, Policy.parse("shrink_only=true"))


def test_streams_that_declare_nothing_are_told_how_to_have_the_policy():
    choice = choose({"east": None, "west": StreamProperties(keyed=True)})
    require_choice(choice, Policy.parse("shrink_only=true"))
    with pytest.raises(
        UsageError,
        match=r"adjusts=always needs case R3, but replica 'east' declares nothing.*"
        r"declare keyed for every replica, or ask for case R3",
    ):
        require_choice(choice, Policy.parse("adjusts=always"))
    asked = choose({"east": None}, asked=MergeCase.R3)
    require_choice(asked, Policy.parse("adjusts=always"))
    asked = choose({"east": None}, asked=MergeCase.R4)
    with pytest.raises(UsageError, match="case R4 has no adjusts=always"):
        require_choice(
            choose({"east": None}, asked=MergeCase.R4), Policy.parse("adjusts=always")
        )


@pytest.mark.parametrize("granularity", ["batch", "element"])
def test_a_violation_is_ignored_or_detaches_the_guilty(granularity):
    for text, names in (("default", ()), ("violations=detach", ("west",))):
        state = R3PolicyState.empty(SCHEMA, policy=Policy.parse(text))
        found = step(state, arrivals(), granularity=granularity)
        assert found.guilty == names
        wrong = (found.result.buckets[1] == Bucket.VIOLATION).sum()
        # What comes behind the violation in the same step is not believed.
        assert wrong == 1 + bool(names)
        assert state.frontier == (9 if not names else -(2**63))
        state.check()


def test_a_verdict_on_the_plain_kernel_names_or_raises():
    result = plain_step(R3State.empty(SCHEMA), arrivals())
    assert guilty(DEFAULT, arrivals(), result) == ()
    assert guilty(Policy.parse("violations=detach"), arrivals(), result) == ("west",)
    with pytest.raises(ViolationError, match=r"'west' sent 'insert b 2\.\.5'.* has this event"):
        guilty(Policy.parse("violations=raise"), arrivals(), result)


def test_a_violation_that_raises_names_its_element_and_breaks_the_state():
    state = R3PolicyState.empty(SCHEMA, policy=Policy.parse("violations=raise"))
    with pytest.raises(ViolationError, match=r"'west' sent 'insert b 2\.\.5'.* has this event"):
        step(state, arrivals())
    with pytest.raises(UsageError, match="go on with the state that was saved before"):
        step(state, arrivals())


def test_who_was_expelled_comes_back_with_a_greater_number():
    duel = Duel(Policy.parse("violations=detach"))
    duel.take([("r0", parse("insert a 1..3; insert a 1..4"))])
    assert duel.state.expelled == {"r0": 1}
    duel.take([("r0", parse("insert b 1..3"))])
    assert [reason for _, _, reason in duel.fates[1:]] == [
        Reason.SECOND_INSERT,
        Reason.EXPELLED,
    ]
    duel.numbers["r0"] = (None, 2)
    duel.take([("r0", parse("insert b 1..3"))])
    assert (duel.fates[-1][2], duel.state.expelled) == (Reason.FIRST, {})
    with pytest.raises(UsageError, match="attachment 1, but 2 has replaced it"):
        step(duel.state, [Arrival("r0", batch_of([]))])


def test_an_attachment_that_is_older_than_an_expelled_one_is_refused():
    state = R3PolicyState.empty(SCHEMA, policy=Policy.parse("violations=detach"))
    batch = batch_of(parse("insert a 1..3; insert a 1..4"))
    step(state, [Arrival("r0", batch, attachment=3)])
    with pytest.raises(UsageError, match="its attachment 3 was detached for a violation"):
        step(state, [Arrival("r0", batch, attachment=2)])
    with pytest.raises(UsageError, match="neither 'batch' nor 'element'"):
        step(state, [], granularity="row")
    with pytest.raises(UsageError, match="'r9' cannot be detached"):
        state.detach("r9")


def test_detaching_and_attaching_say_what_they_change():
    state = R3PolicyState.empty(SCHEMA, policy=Policy.parse("adjusts=follow_leader"))
    for name in ("east", "west"):
        assert len(state.attach(name).output) == 0
    east, west = "insert a 5..9; stable 1", "insert a 5..7; stable 2"
    for name, text in (("east", east), ("west", west)):
        step(state, [Arrival(name, batch_of(parse(text)))])
    assert to_elements(state.detach("west").output) == parse("adjust a 5..7->9")
    state.check()
