"""Merge inside a query: replicas that never leave, reasons, broken promises."""

import pyarrow as pa
import pytest

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.notation import parse, show_elements
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.contract import REASONS, Arrival, Bucket, Inputs
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge_of import MergeOfOperator, MergeOfState

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
NAMES = ("one", "two")


def opened(case: MergeCase, policy: str = "") -> MergeOfState:
    return MergeOfOperator(SCHEMA, NAMES, case, policy=Policy.parse(policy)).empty()


def take(state: MergeOfState, name: str, text: str) -> tuple[str, list[str]]:
    """What comes out, and the reasons of the elements."""
    result = state.step(Inputs((Arrival(name, from_elements(parse(text), SCHEMA)),)))
    state.check()
    reasons = [REASONS[code].name for code in result.reasons[0]]
    buckets = [Bucket(code) for code in result.buckets[0]]
    assert buckets == [REASONS[code].bucket for code in result.reasons[0]]
    assert Bucket.LATE not in buckets
    return show_elements(to_elements(result.output)), reasons


def test_the_fastest_replica_decides_and_the_others_are_absorbed() -> None:
    state = opened(MergeCase.R3)
    assert take(state, "one", "insert a 1..5; stable 3") == (
        "insert a 1..5; stable 3",
        ["FIRST", "LEADS"],
    )
    assert take(state, "two", "insert a 1..9; insert b 2..4") == ("", ["KNOWN", "SURPASSED"])
    assert take(state, "two", "adjust b 2..4->2; adjust a 1..9->5; stable 6") == (
        "stable 6",
        ["SURPASSED", "NOTED", "LEADS"],
    )
    assert (state.frontier, state.live) == (6, 0)
    assert state.facts == {
        "case": "r3",
        "reached": {"one": 3, "two": 6},
        "leads": "two",
        "conflicts": 0,
    }


@pytest.mark.parametrize("case", [MergeCase.R0, MergeCase.R1, MergeCase.R2])
def test_in_order_what_is_behind_the_current_start_is_surpassed(case: MergeCase) -> None:
    state = opened(case)
    assert take(state, "one", "insert a 1..5; insert b 2..3")[0] == (
        "insert a 1..5; insert b 2..3"
    )
    assert take(state, "two", "insert a 1..5") == ("", ["SURPASSED"])
    assert take(state, "two", "insert b 2..3; insert c 4..5; stable 4") == (
        "insert c 4..5; stable 4",
        ["KNOWN", "FIRST", "LEADS"],
    )


def test_an_insert_that_a_policy_holds_is_surpassed_when_it_is_decided() -> None:
    state = opened(MergeCase.R3, "inserts=half_frozen")
    assert take(state, "two", "insert x 2..4") == ("", ["HELD"])
    batch = from_elements(parse("stable 3"), SCHEMA)
    result = state.step(Inputs((Arrival("one", batch),)))
    (released,) = result.resolved
    assert [REASONS[code].name for code in released.reasons] == ["SURPASSED"]


@pytest.mark.parametrize("case", list(MergeCase))
def test_a_state_that_was_saved_goes_on(case: MergeCase) -> None:
    operator = MergeOfOperator(SCHEMA, NAMES, case)
    state = operator.empty()
    take(state, "one", "insert a 1..5; stable 1")
    again = operator.from_parts(state.parts().written)
    again.check()
    for one in (state, again):
        assert take(one, "two", "insert a 1..5; insert b 3..4; stable 2")[0] == (
            "insert b 3..4; stable 2"
        )
    assert again.facts == state.facts
    assert again.inputs == ()


@pytest.mark.parametrize(
    ("case", "text", "why"),
    [
        (MergeCase.R0, "adjust a 1..5->7", "an adjust; its input may only insert"),
        (MergeCase.R0, "insert b 1..2", "starts when an earlier insert"),
        (MergeCase.R2, "insert z 0..2", "starts before an earlier insert"),
        (MergeCase.R3, "insert a 1..6", "its replica has this event already"),
        (MergeCase.R4, "adjust a 1..9->7", "adjusts an event that its replica does not have"),
    ],
)
def test_a_broken_promise_stops_the_step(case: MergeCase, text: str, why: str) -> None:
    state = opened(case)
    take(state, "one", "insert a 1..5")
    with pytest.raises(
        StateError, match=f"replica 'one' sent '{text}', .*{why}.*deterministic"
    ):
        take(state, "one", text)


def test_events_of_the_final_output_that_the_next_leader_denies_are_conflicts() -> None:
    state = opened(MergeCase.R3)
    take(state, "one", "insert a 1..9; stable 3")
    assert take(state, "two", "insert b 1..9; stable 5")[0] == "stable 5"
    assert state.facts["conflicts"] == 1


def test_properties_are_those_of_its_case_or_of_the_cheapest() -> None:
    strict = StreamProperties(insert_only=True, strictly_increasing=True)
    keyed = StreamProperties(keyed=True)
    free = MergeOfOperator(SCHEMA, NAMES)
    assert free.properties(strict, strict) == strict
    assert free.properties(strict, keyed) == keyed
    assert MergeOfOperator(SCHEMA, NAMES, MergeCase.R4).properties(strict, strict) == (
        StreamProperties()
    )
    assert free.chosen(strict, keyed).case is MergeCase.R3
    with pytest.raises(AssertionError, match="no case is chosen"):
        free.empty()


def test_final_events_are_reported_by_the_merge_where_it_keeps_them() -> None:
    assert MergeOfOperator(SCHEMA, NAMES, MergeCase.R1).reporting_final() is None
    reporting = MergeOfOperator(SCHEMA, NAMES, MergeCase.R3).reporting_final()
    assert reporting is not None
    state = reporting.empty()
    batch = from_elements(parse("insert a 1..5; insert b 2..9; stable 6"), SCHEMA)
    final = state.step(Inputs((Arrival("one", batch),))).final
    assert final is not None
    assert show_elements(to_elements(final)) == "insert a 1..5"
