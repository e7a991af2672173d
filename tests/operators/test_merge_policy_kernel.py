"""Which case has which policy, what violations do over batches, and what a state refuses."""

import pytest
from merge_driver import SCHEMA, batch_of
from policy_driver import Run

from anabranch.batch.codec import to_elements
from anabranch.errors import UsageError, ViolationError
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.contract import Arrival, Bucket, Reason
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.lane import violators
from anabranch.operators.merge.merge import open_merge
from anabranch.operators.merge.policy import (
    DEFAULT,
    Policy,
    require_choice,
    require_support,
    unsupported,
)

WEST = "insert a 1..3; insert b 2..4; insert b 2..5; stable 9"
MANY = "inserts=quorum(0.5),adjusts=always,promote=true,violations=raise"


def arrivals():
    east = batch_of(parse("insert a 1..3"))
    return [Arrival("east", east), Arrival("west", batch_of(parse(WEST)))]


@pytest.mark.parametrize("case", list(MergeCase))
def test_every_case_has_the_default_and_violations(case):
    for text in ("default", "violations=raise", "violations=detach"):
        require_support(case, Policy.parse(text))
    assert (not unsupported(case, Policy.parse(MANY))) == (case is MergeCase.R3)


def test_what_a_case_has_not_is_refused_by_name_with_what_to_do():
    with pytest.raises(
        UsageError,
        match=r"case R4 has no adjusts=always, inserts=quorum\(0.5\): .*which one is meant.*"
        r"--case r3.*gaps, promote, remember, shrink_only, stable_lag, violations and wait",
    ):
        require_support(MergeCase.R4, Policy.parse(MANY))
    with pytest.raises(UsageError, match=r"case R1 has no shrink_only=true: it emits each"):
        require_support(MergeCase.R1, Policy.parse("shrink_only=true"))


def test_the_error_names_what_streams_must_declare_for_the_policy():
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


GOVERNED = "inserts=quorum(0.3)"


@pytest.mark.parametrize("policy", ["stable_lag=0", GOVERNED])
def test_a_violation_is_ignored_or_names_the_violator(policy):
    for word, names in (("ignore", ()), ("detach", ("west",))):
        merge = open_merge(MergeCase.R3, SCHEMA, Policy.parse(f"{policy},violations={word}"))
        result = merge.step(arrivals())
        assert result.violators == names
        # The step has been taken: what comes behind the violation was believed.
        assert (result.buckets[1] == Bucket.VIOLATION).sum() == 1
        assert merge.frontier == 9
        merge.check()


def test_a_verdict_names_or_raises():
    result = open_merge(MergeCase.R3, SCHEMA).step(arrivals())
    assert violators(DEFAULT, arrivals(), result) == ()
    assert violators(Policy.parse("violations=detach"), arrivals(), result) == ("west",)
    with pytest.raises(ViolationError, match=r"'west' sent 'insert b 2\.\.5'.* has this event"):
        violators(Policy.parse("violations=raise"), arrivals(), result)


@pytest.mark.parametrize("policy", ["stable_lag=0", GOVERNED])
def test_a_violation_that_raises_names_its_element(policy):
    merge = open_merge(MergeCase.R3, SCHEMA, Policy.parse(f"{policy},violations=raise"))
    with pytest.raises(ViolationError, match=r"'west' sent 'insert b 2\.\.5'.* has this event"):
        merge.step(arrivals())


def test_who_was_detached_comes_back_with_a_greater_number():
    """The reference detaches at the violation, and counts what comes until then."""
    run = Run.of(Policy.parse("violations=detach"), 1)
    for element in parse("insert a 1..3; insert a 1..4; insert b 1..3"):
        run.take("r0", element)
    assert run.merge.members.expelled == {"r0": 1}
    assert [reason for _, _, reason in run.fates[1:]] == [
        Reason.SECOND_INSERT,
        Reason.EXPELLED,
    ]
    run.note(run.merge.attach("r0", attachment=2))
    run.take("r0", parse("insert b 1..3")[0])
    assert (run.fates[-1][2], run.merge.members.expelled) == (Reason.FIRST, {})


def test_an_attachment_that_was_replaced_is_refused():
    merge = open_merge(MergeCase.R3, SCHEMA, Policy.parse(GOVERNED))
    merge.step([Arrival("r0", batch_of([]), attachment=2)])
    with pytest.raises(UsageError, match="attachment 1, but 2 has replaced it"):
        merge.step([Arrival("r0", batch_of([]))])
    with pytest.raises(UsageError, match="'r9' cannot be detached"):
        merge.detach("r9")


def test_detaching_and_attaching_return_what_they_change():
    merge = open_merge(MergeCase.R3, SCHEMA, Policy.parse("adjusts=follow_leader"))
    for name in ("east", "west"):
        assert len(merge.attach(name).output) == 0
    east, west = "insert a 5..9; stable 1", "insert a 5..7; stable 2"
    for name, text in (("east", east), ("west", west)):
        merge.step([Arrival(name, batch_of(parse(text)))])
    assert to_elements(merge.detach("west").output) == parse("adjust a 5..7->9")
    merge.check()
