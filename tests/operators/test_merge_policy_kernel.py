"""What the R3 kernel has of a policy, and how it refuses the rest."""

import pytest
from merge_driver import SCHEMA, batch_of

from anabranch.errors import UsageError, ViolationError
from anabranch.model.notation import parse
from anabranch.operators.merge.contract import Arrival, Bucket
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.r3_policy_kernel import step
from anabranch.operators.merge.r3_state import R3State

WEST = "insert a 1..3; insert b 2..4; insert b 2..5; stable 9"


def arrivals():
    east = batch_of(parse("insert a 1..3"))
    return [Arrival("east", east), Arrival("west", batch_of(parse(WEST)))]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("inserts=quorum(0.5),adjusts=always", r"adjusts=always, inserts=quorum\(0.5\)"),
        ("stable_lag=3", "stable_lag=3"),
        ("shrink_only=true,violations=raise", "no shrink_only=True; it runs"),
        ("promote=true", "promote=True"),
    ],
)
def test_what_the_kernel_has_not_is_refused_before_anything_changes(text, named):
    state = R3State.empty(SCHEMA)
    with pytest.raises(UsageError, match=named):
        step(state, arrivals(), policy=Policy.parse(text))
    assert len(state.members) == 0


@pytest.mark.parametrize("granularity", ["batch", "element"])
def test_a_violation_is_ignored_or_names_the_guilty(granularity):
    for text, guilty in (("default", ()), ("violations=detach", ("west",))):
        state = R3State.empty(SCHEMA)
        found = step(state, arrivals(), policy=Policy.parse(text), granularity=granularity)
        assert found.guilty == guilty
        assert (found.result.buckets[1] == Bucket.VIOLATION).sum() == 1


def test_a_violation_raises_with_its_replica_and_element():
    with pytest.raises(ViolationError, match=r"'west' sent 'insert b 2\.\.5'.* has this event"):
        step(R3State.empty(SCHEMA), arrivals(), policy=Policy.parse("violations=raise"))
