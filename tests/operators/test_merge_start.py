"""One face of all merges: which state is behind it, what is refused, and who is detached."""

import pytest
from merge_driver import SCHEMA, batch_of
from open_driver import Opened

from anabranch.errors import StateError, UsageError, ViolationError
from anabranch.model.notation import parse, show_elements
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.contract import Arrival
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_membership import Alarm, Stretch
from anabranch.operators.merge.start import from_parts, open_merge

R3, R4 = MergeCase.R3, MergeCase.R4
# The case, the case it begins with, a policy, and the state that is behind it.
STATES = [
    (MergeCase.R0, None, "default", "OrderedState"),
    (MergeCase.R1, None, "stable_lag=3,promote=true", "OrderedState"),
    (MergeCase.R2, None, "violations=detach", "OrderedState"),
    (R3, None, "default", "R3State"),
    (R3, R3, "stable_lag=3,violations=detach", "R3State"),
    (R3, None, "promote=true", "R3PolicyState"),
    (R3, None, "inserts=quorum(0.5),violations=detach", "R3PolicyState"),
    (R4, None, "promote=true,shrink_only=true", "R4State"),
    (R4, R4, "stable_lag=3", "R4State"),
    (R4, R3, "default", "R3State"),
    (R4, R3, "stable_lag=3", "R3State"),
    (R4, R3, "promote=true", "R3PolicyState"),
    (R4, R3, "shrink_only=true", "R4State"),
]


def behind(merge):
    state = merge.state
    return type(getattr(state, "current", state) if merge.case in (R3, R4) else state).__name__


@pytest.mark.parametrize(("case", "first", "text", "name"), STATES)
def test_the_state_follows_from_case_and_policy_and_comes_back_from_its_parts(
    case, first, text, name
):
    policy = Policy.parse(text)
    merge = open_merge(case, SCHEMA, policy, first=first)
    assert behind(merge) == name
    assert merge.alarm is None
    assert len(merge.attach("east", guarantee=7).output) == 0
    assert merge.alarm == Alarm(-(2**63), "east", 7)
    merge.attach("west")
    assert merge.alarm is None
    found = merge.step([Arrival("west", batch_of(parse("insert a 1..9; stable 8")))])
    assert (len(found.result.output), found.guilty) == (2, ())
    assert merge.frontier == 8 - policy.stable_lag
    read = from_parts(merge.parts().written, case, SCHEMA, policy, first=first)
    assert (behind(read), read.replicas, read.case) == (name, merge.replicas, merge.case)
    assert (read.frontier, read.live, read.pending) == (merge.frontier, merge.live, 0)
    other = Policy(stable_lag=policy.stable_lag + 1)
    with pytest.raises(StateError, match=r"begun with the policy .*asked to go on with stable"):
        from_parts(merge.parts().written, case, SCHEMA, other, first=first)


@pytest.mark.parametrize(("case", "first", "text", "name"), STATES)
def test_violations_may_change_between_two_runs(case, first, text, name):
    policy = Policy.parse(text)
    parts = open_merge(case, SCHEMA, policy, first=first).parts().written
    others = {one: value for one, value in policy.to_dict().items() if one != "violations"}
    wrong = [Arrival("east", batch_of(parse("stable 5; insert a 1..9")))]
    for word, guilty in (("ignore", ()), ("detach", ("east",))):
        again = Policy.from_dict({**others, "violations": word})
        merge = from_parts(parts, case, SCHEMA, again, first=first)
        assert behind(merge) == name
        assert merge.step(wrong).guilty == guilty
    again = Policy.from_dict({**others, "violations": "raise"})
    with pytest.raises(ViolationError, match="replica 'east' sent"):
        from_parts(parts, case, SCHEMA, again, first=first).step(wrong)


def test_a_state_of_another_case_is_refused_by_name():
    parts = open_merge(R4, SCHEMA).parts().written
    for case in (MergeCase.R1, R3):
        with pytest.raises(StateError, match="merge r4"):
            from_parts(parts, case, SCHEMA)
    parts = open_merge(R3, SCHEMA, Policy.parse("inserts=leader")).parts().written
    with pytest.raises(StateError, match=r"the policy inserts=leader, .* with default"):
        from_parts(parts, R3, SCHEMA)


def test_a_policy_that_the_case_has_not_is_refused_before_anything_begins():
    for first in (None, R3):
        with pytest.raises(UsageError, match="case R4 has no inserts=leader"):
            open_merge(R4, SCHEMA, Policy.parse("inserts=leader"), first=first)
    with pytest.raises(UsageError, match="case R0 has no shrink_only=true"):
        from_parts({}, MergeCase.R0, SCHEMA, Policy(shrink_only=True))


def test_a_merge_that_meets_a_duplicate_keeps_its_policy_and_who_was_promoted():
    merge = Opened(R4, Policy(promote=True), first=R3)
    merge.attach("whole")
    merge.take("whole", parse("insert a 1..50; insert b 3..4; stable 2"))
    merge.attach("late", guarantee=10)
    merge.take("late", parse("insert c 6..12"))
    merge.detach("whole")
    assert (merge.state.case, merge.state.alarm) == (R3, None)
    assert merge.state.stretches == (Stretch(2, 10, "late"),)
    merge.take("late", parse("insert c 6..12"))
    assert merge.state.case is R4
    merge.restart()
    # What it does not know stays, but not beyond its guarantee; then it is like others.
    said = merge.take("late", parse("stable 11"))
    assert show_elements(said) == "adjust a 1..50->10; stable 11"
    merge.attach("again", guarantee=20)
    merge.detach("late")
    assert merge.state.stretches == (Stretch(2, 10, "late"), Stretch(11, 20, "again"))
    merge.restart()
    assert merge.state.stretches == (Stretch(2, 10, "late"), Stretch(11, 20, "again"))


@pytest.mark.parametrize("granularity", ["element", "batch"])
@pytest.mark.parametrize(
    ("case", "first"), [(MergeCase.R0, None), (MergeCase.R1, None), (MergeCase.R2, None)]
)
def test_what_a_promoted_replica_had_waiting_comes_out_with_the_detach(
    case, first, granularity
):
    merge = Opened(case, Policy(promote=True), granularity, first)
    merge.attach("whole")
    merge.take("whole", parse("insert a 1..3; stable 2"))
    merge.attach("late", guarantee=9)
    merge.take("late", parse("insert b 5..9; stable 4; stable 6"))
    assert (merge.state.live, merge.state.frontier) == (1, 2)
    merge.detach("whole")
    assert show_elements(merge.output) == "insert a 1..3; stable 2; insert b 5..9; stable 6"
    assert merge.state.stretches == (Stretch(2, 9, "late"),)


@pytest.mark.parametrize(("case", "first", "text", "name"), STATES)
def test_a_guarantee_that_is_told_lets_its_stable_out(case, first, text, name):
    merge = Opened(case, Policy.parse(text), first=first)
    merge.attach("late", guarantee=9)
    merge.take("late", parse("insert a 5..9; stable 6"))
    assert (merge.state.frontier, merge.state.alarm) == (-(2**63), Alarm(-(2**63), "late", 9))
    merge.note(merge.state.tell("late", 20))
    assert merge.state.alarm == Alarm(-(2**63), "late", 20)
    merge.restart()
    merge.note(merge.state.tell("late", None))
    lag = Policy.parse(text).stable_lag
    assert show_elements(merge.output) == f"insert a 5..9; stable {6 - lag}"
    assert merge.state.alarm is None
    merge.restart()
    assert merge.state.replicas[0].joined
    with pytest.raises(UsageError, match="replica 'nobody' cannot be told a guarantee"):
        merge.state.tell("nobody", None)


@pytest.mark.parametrize("case", list(MergeCase))
def test_a_promoted_replica_that_turns_out_to_be_complete_is_like_others(case):
    merge = Opened(case, Policy(promote=True))
    merge.attach("whole")
    merge.attach("late", guarantee=10)
    merge.take("whole", parse("insert a 1..50; stable 2"))
    merge.take("late", parse("insert a 1..50"))
    merge.detach("whole")
    assert merge.state.stretches == (Stretch(2, 10, "late"),)
    merge.note(merge.state.tell("late", None))
    merge.restart()
    merge.take("late", parse("stable 20"))
    assert show_elements(merge.output) == "insert a 1..50; stable 2; stable 20"
    # Who says that it knows less than was thought is promoted again: another stretch.
    merge.note(merge.state.tell("late", 30))
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
    """It need not say again what ended before its guarantee."""
    merge = Opened(case, Policy(promote=True))
    merge.attach("whole")
    merge.attach("late", guarantee=10)
    merge.take("whole", parse("insert a 1..50; insert b 5..60"))
    merge.take("late", parse("insert a 1..20; adjust a 1..20->1"))
    merge.take("whole", parse("stable 2"))
    merge.take("late", parse("insert b 5..30; adjust b 5..30->5; stable 4"))
    merge.detach("whole")
    assert show_elements(merge.output[2:]) == "stable 2; adjust a 1..50->10; stable 4"
    said = merge.take("late", parse("stable 30"))
    # What may still go is believed to be gone.
    assert show_elements(said) == "adjust b 5..60->5; stable 30"
    assert merge.state.conflicts == 0


def test_the_default_is_the_default():
    assert open_merge(R3, SCHEMA).policy is DEFAULT
