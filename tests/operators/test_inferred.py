"""Rows behind stables that a clock inferred: the kernels against the references."""

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Element, Insert, Stable
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Await,
    Bucket,
    Inputs,
    PassOver,
    Reason,
)
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.reference.r4 import MergeR4
from anabranch.operators.reference.union import Union
from anabranch.operators.union import UnionOperator

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
GAPS = Policy.parse("gaps=true")
NAMES = ("east", "west")
ROWS = st.builds(
    lambda name, start, length: Insert(name, start, start + length),
    st.sampled_from("ab"),
    st.integers(0, 8),
    st.integers(1, 4),
)
STABLES = st.builds(Stable, st.integers(0, 12))
STEPS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.one_of(ROWS, STABLES, st.sampled_from("pa"))),
    max_size=30,
)
Step = tuple[str, "Element | str"]


def rising(steps: Sequence[Step]) -> list[Step]:
    """Without stables that are not above all before of their input: no clock emits them."""
    reached: dict[str, float] = {}
    kept = []
    for name, what in steps:
        if isinstance(what, Stable):
            if what.time <= reached.get(name, -1):
                continue
            reached[name] = what.time
        kept.append((name, what))
    return kept


@pytest.mark.parametrize("case", ["r3", "r4", "union"])
@given(steps=STEPS)
def test_the_kernels_are_the_references(case: str, steps: list[Step]) -> None:
    kernel = (
        UnionOperator(SCHEMA).empty()
        if case == "union"
        else MergeOperator(SCHEMA, MergeCase(case), GAPS).empty()
    )
    made = {"r3": MergeR3, "r4": MergeR4}
    reference = Union() if case == "union" else made[case](policy=GAPS)
    for name in NAMES:
        kernel.step(Inputs((Arrival(name, from_elements([], SCHEMA), inferred=True),)))
        reference.attach(name)
    for name, what in rising(steps):
        if isinstance(what, str):
            entry = PassOver(name) if what == "p" else Await(name)
            output = to_elements(kernel.step(Inputs(control=(entry,))).output)
            change = reference.pass_over(name) if what == "p" else reference.await_again(name)
            assert output == list(change if case == "union" else change.output)
        else:
            arrival = Arrival(name, from_elements([what], SCHEMA), inferred=True)
            result = kernel.step(Inputs((arrival,)))
            outcome = reference.push(name, what, inferred=True)
            reason = REASONS[result.reasons[0][0]]
            assert reason.bucket == outcome.bucket, (reason, outcome)
            assert to_elements(result.output) == list(outcome.output)
            assert reason is not Reason.BEHIND_STABLE
            if reason.bucket is Bucket.VIOLATION:
                assert reason is Reason.SECOND_INSERT
        kernel.check()
        assert kernel.frontier == reference.frontier or reference.frontier < 0
