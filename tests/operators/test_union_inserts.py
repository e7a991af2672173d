"""Union of inputs that only insert: validated as ever, without remembering an event."""

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from merge_r4_driver import conflicting_r4
from stepped import feed, reasons_are
from unary_laws import cuts

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import REASONS, Arrival, Inputs
from anabranch.operators.union import UnionOperator
from anabranch.testing.strategies import replicas

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"name": pa.string()}))


@given(conflicting_r4, st.data())
def test_any_cut_any_restart_the_kernel_is_the_reference(arrived, data):
    """Whatever comes: the same history and violations, and nothing in the state."""
    names = sorted({f"r{number}" for number, _ in arrived})
    reference = testing.engine("reference", "union", insert_only=True)
    kernel = testing.engine("kernel", "union", insert_only=True)
    with reference, kernel:
        for engine in (reference, kernel):
            for name in names:
                engine.attach(name)
        for begin, end in pairwise([0, *data.draw(cuts(len(arrived)))]):
            again = data.draw(st.booleans())
            for engine in (reference, kernel):
                for number, element in arrived[begin:end]:
                    engine.push(f"r{number}", [element])
                engine.restart() if again else engine.cut()
            assert replay(kernel.output).violations == ()
            assert replay(kernel.output) == replay(reference.output)
            assert kernel.counts["live"] == reference.counts["live"] == 0
            for name, buckets in reference.account.items():
                for bucket in ("violation", "late", "corrected", "pending"):
                    assert kernel.account[name][bucket] == buckets[bucket]


@given(conflicting_r4)
def test_element_by_element_the_reasons_are_the_same(arrived):
    reference = testing.engine("reference", "union", insert_only=True)
    kernel = testing.engine("kernel", "union", insert_only=True)
    with reference, kernel:
        for number, element in arrived:
            for engine in (reference, kernel):
                engine.push(f"r{number}", [element])
            assert reference.cut() == kernel.cut()
        assert reference.reasons == kernel.reasons


@given(st.data())
def test_of_one_input_that_only_inserts_everything_passes(local_engine, data):
    (stream,) = data.draw(replicas(case=MergeCase.R1, max_inputs=1))
    with local_engine("union", insert_only=True) as union:
        for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
            union.push("input", stream[begin:end])
            union.restart() if data.draw(st.booleans()) else union.cut()
            assert replay(union.output) == replay(stream[:end])
        assert union.history == History.of(stream)
        assert union.counts["live"] == 0


def test_every_broken_promise_has_its_reason(local_engine):
    with local_engine("union", insert_only=True) as union:
        feed(union, "a: insert a 1..4", "a: adjust a 1..4->6", "a: adjust a 1..4->4")
        feed(union, "a: stable 3", "a: insert b 2..9", "a: insert c 2..2", "a: insert d 3..9")
        union.push("a", [Insert("e", 9, 8), Adjust("e", 9, 10, 8)])
        union.cut()
        reasons_are(
            union,
            "FIRST NOT_INSERT_ONLY NO_CHANGE LEADS BEHIND_STABLE NO_CHANGE FIRST",
            "BACKWARDS BACKWARDS",
        )


def step(state, elements, *, inferred=False, seq=None):
    batch = from_elements(elements, SCHEMA)
    if seq is not None:
        batch = type(batch)(**{**vars(batch), "seq": pa.array(seq).to_numpy()})
    result = state.step(Inputs((Arrival("a", batch, inferred=inferred),)))
    state.check()
    return result, [REASONS[code].name for code in result.reasons[0]]


def test_a_seq_that_was_consumed_is_absorbed():
    state = UnionOperator(SCHEMA, insert_only=True).empty()
    rows = [Insert("a", 1, 2), Insert("b", 2, 3)]
    assert step(state, rows, seq=[0, 1])[1] == ["FIRST", "FIRST"]
    result, reasons = step(state, [*rows, Insert("c", 2, 3)], seq=[0, 1, 2])
    assert reasons == ["REDELIVERY", "REDELIVERY", "FIRST"]
    assert to_elements(result.output) == [Insert("c", 2, 3)]


def test_a_row_behind_an_inferred_stable_is_late_and_no_violation():
    state = UnionOperator(SCHEMA, insert_only=True).empty()
    step(state, [Insert("a", 1, 2), Stable(5)], inferred=True)
    _, reasons = step(state, [Insert("b", 4, 9), Insert("c", 5, 9)], inferred=True)
    assert reasons == ["LATE", "FIRST"]


def test_what_is_final_is_for_another_step_to_report():
    operator = UnionOperator(SCHEMA, insert_only=True)
    assert operator.output_final_at_start
    result, _ = step(operator.empty(), [Insert("a", 1, 2), Stable(9)])
    assert result.final is None
