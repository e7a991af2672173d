"""One face of all merges: what comes back, what is refused, and who is detached."""

import pytest
from merge_driver import SCHEMA, batch_of
from open_driver import Opened

from anabranch.errors import StateError, UsageError, ViolationError
from anabranch.model.notation import parse, show_elements
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.merge import from_parts, open_merge
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.reference.membership import Alarm, Stretch

R3, R4 = MergeCase.R3, MergeCase.R4
# The case and a policy.
STATES = [
    (MergeCase.R0, "default"),
    (MergeCase.R1, "stable_lag=3,promote=true"),
    (MergeCase.R2, "violations=detach"),
    (R3, "default"),
    (R3, "stable_lag=3,violations=detach"),
    (R3, "promote=true"),
    (R3, "inserts=quorum(0.5),violations=detach"),
    (R4, "default"),
    (R4, "promote=true,shrink_only=true"),
    (R4, "stable_lag=3"),
]


@pytest.mark.parametrize(("case", "text"), STATES)
def test_a_merge_of_any_case_and_policy_comes_back_from_its_parts(case, text):
    policy = Policy.parse(text)
    merge = open_merge(case, SCHEMA, policy)
    assert merge.alarm is None
    assert len(merge.attach("east", guarantee=7).output) == 0
    assert merge.alarm == Alarm(-(2**63), "east", 7)
    merge.attach("west")
    assert merge.alarm is None
    found = merge.step([Arrival("west", batch_of(parse("insert a 1..9; stable 8")))])
    assert (len(found.output), found.violators) == (2, ())
    assert merge.frontier == 8 - policy.stable_lag
    read = from_parts(merge.parts().written, case, SCHEMA, policy)
    assert (read.inputs, read.case) == (merge.inputs, merge.case)
    assert (read.frontier, read.live, read.pending) == (merge.frontier, merge.live, 0)
    other = Policy(stable_lag=policy.stable_lag + 1)
    kept = from_parts(merge.parts().written, case, SCHEMA, other).policy
    assert kept == Policy.from_dict({**policy.to_dict(), "violations": other.violations})


@pytest.mark.parametrize(("case", "text"), STATES)
def test_violations_may_change_between_two_runs(case, text):
    policy = Policy.parse(text)
    parts = open_merge(case, SCHEMA, policy).parts().written
    others = {one: value for one, value in policy.to_dict().items() if one != "violations"}
    wrong = [Arrival("east", batch_of(parse("stable 5; insert a 1..9")))]
    for word, names in (("ignore", ()), ("detach", ("east",))):
        again = Policy.from_dict({**others, "violations": word})
        merge = from_parts(parts, case, SCHEMA, again)
        assert merge.step(wrong).violators == names
    again = Policy.from_dict({**others, "violations": "raise"})
    with pytest.raises(ViolationError, match="replica 'east' sent"):
        from_parts(parts, case, SCHEMA, again).step(wrong)


def test_a_state_of_another_case_is_refused_by_name():
    parts = open_merge(R4, SCHEMA).parts().written
    with pytest.raises(StateError, match="the state is 'anabranch merge' version 3"):
        from_parts(parts, MergeCase.R1, SCHEMA)
    with pytest.raises(StateError, match="started as case R4, but this merge is R3"):
        from_parts(parts, R3, SCHEMA)
    policy = Policy.parse("inserts=leader")
    parts = open_merge(R3, SCHEMA, policy).parts().written
    assert from_parts(parts, R3, SCHEMA).policy == policy, "a state owns its policy"


def test_a_policy_that_the_case_has_not_is_refused_before_anything_begins():
    with pytest.raises(UsageError, match="case R4 has no inserts=leader"):
        open_merge(R4, SCHEMA, Policy.parse("inserts=leader"))
    with pytest.raises(UsageError, match="case R0 has no shrink_only=true"):
        from_parts({}, MergeCase.R0, SCHEMA, Policy(shrink_only=True))


def test_a_merge_that_meets_a_duplicate_knows_who_was_promoted():
    merge = Opened(R4, Policy(promote=True))
    merge.attach("whole")
    merge.take("whole", parse("insert a 1..50; insert b 3..4; stable 2"))
    merge.attach("late", guarantee=10)
    merge.take("late", parse("insert c 6..12"))
    merge.detach("whole")
    assert merge.state.alarm is None
    assert merge.state.stretches == (Stretch(2, 10, "late"),)
    merge.take("late", parse("insert c 6..12"))
    merge.restart()
    # What it does not know stays, but not beyond its guarantee; then it is like others.
    emitted = merge.take("late", parse("stable 11"))
    assert show_elements(emitted) == "adjust a 1..50->10; stable 11"
    merge.attach("again", guarantee=20)
    merge.detach("late")
    assert merge.state.stretches == (Stretch(2, 10, "late"), Stretch(11, 20, "again"))
    merge.restart()
    assert merge.state.stretches == (Stretch(2, 10, "late"), Stretch(11, 20, "again"))


@pytest.mark.parametrize("case", [MergeCase.R0, MergeCase.R1, MergeCase.R2])
def test_what_a_promoted_replica_had_waiting_comes_out_with_the_detach(case):
    merge = Opened(case, Policy(promote=True))
    merge.attach("whole")
    merge.take("whole", parse("insert a 1..3; stable 2"))
    merge.attach("late", guarantee=9)
    merge.take("late", parse("insert b 5..9; stable 4; stable 6"))
    assert (merge.state.live, merge.state.frontier) == (1, 2)
    merge.detach("whole")
    assert show_elements(merge.output) == "insert a 1..3; stable 2; insert b 5..9; stable 6"
    assert merge.state.stretches == (Stretch(2, 9, "late"),)


@pytest.mark.parametrize(("case", "text"), STATES)
def test_a_guarantee_that_is_given_later_lets_its_stable_out(case, text):
    merge = Opened(case, Policy.parse(text))
    merge.attach("late", guarantee=9)
    merge.take("late", parse("insert a 5..9; stable 6"))
    assert (merge.state.frontier, merge.state.alarm) == (-(2**63), Alarm(-(2**63), "late", 9))
    merge.note(merge.state.guarantee("late", 20))
    assert merge.state.alarm == Alarm(-(2**63), "late", 20)
    merge.restart()
    merge.note(merge.state.guarantee("late", None))
    lag = Policy.parse(text).stable_lag
    assert show_elements(merge.output) == f"insert a 5..9; stable {6 - lag}"
    assert merge.state.alarm is None
    merge.restart()
    assert merge.state.inputs[0].joined
    with pytest.raises(UsageError, match="replica 'nobody' cannot be given a guarantee"):
        merge.state.guarantee("nobody", None)


@pytest.mark.parametrize("case", list(MergeCase))
def test_a_promoted_replica_that_turns_out_to_be_complete_is_like_others(case):
    merge = Opened(case, Policy(promote=True))
    merge.attach("whole")
    merge.attach("late", guarantee=10)
    merge.take("whole", parse("insert a 1..50; stable 2"))
    merge.take("late", parse("insert a 1..50"))
    merge.detach("whole")
    assert merge.state.stretches == (Stretch(2, 10, "late"),)
    merge.note(merge.state.guarantee("late", None))
    merge.restart()
    merge.take("late", parse("stable 20"))
    assert show_elements(merge.output) == "insert a 1..50; stable 2; stable 20"
    # A replica that lowers its guarantee is promoted again: another stretch.
    merge.note(merge.state.guarantee("late", 30))
    assert merge.state.stretches == (Stretch(2, 10, "late"), Stretch(20, 30, "late"))


def test_without_the_policy_the_alarm_stays():
    for case in MergeCase:
        merge = Opened(case)
        merge.attach("whole")
        merge.attach("late", guarantee=9)
        merge.take("whole", parse("stable 2"))
        merge.take("late", parse("stable 20"))
        merge.detach("whole")
        assert merge.state.alarm == Alarm(2, "late", 9)
        assert (merge.state.stretches, merge.state.frontier) == ((), 2)


@pytest.mark.parametrize("case", [R3, R4])
def test_a_promoted_replica_that_took_back_what_is_half_frozen_cuts_it(case):
    """It need not repeat what ended before its guarantee."""
    merge = Opened(case, Policy(promote=True))
    merge.attach("whole")
    merge.attach("late", guarantee=10)
    merge.take("whole", parse("insert a 1..50; insert b 5..60"))
    merge.take("late", parse("insert a 1..20; adjust a 1..20->1"))
    merge.take("whole", parse("stable 2"))
    merge.take("late", parse("insert b 5..30; adjust b 5..30->5; stable 4"))
    merge.detach("whole")
    assert show_elements(merge.output[2:]) == "stable 2; adjust a 1..50->10; stable 4"
    emitted = merge.take("late", parse("stable 30"))
    # What may still go is believed to be gone.
    assert show_elements(emitted) == "adjust b 5..60->5; stable 30"
    assert merge.state.conflicts == 0


def test_the_default_is_the_default():
    assert open_merge(R3, SCHEMA).policy is DEFAULT
