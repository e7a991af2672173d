"""Laws of normalise: the model's normal form is the judge, on every engine."""

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from unary_laws import (
    any_cut_any_restart,
    bags,
    broken_streams,
    by_element,
    element_by_element,
    fragments,
    streams,
    whole,
)

from anabranch import testing
from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.normal_form import max_multiplicity, normal_form, snapshot_equivalent
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase, StreamProperties, cheapest, observe
from anabranch.model.time import FOREVER
from anabranch.operators.runs.normalise import after_normalise
from anabranch.testing.strategies import interleavings, presentations

NUMBERS = pa.schema({"p": pa.int64()})


def run(stream):
    return whole(testing.engine("reference", "normalise", check_every=1_000), stream)


def judge(engine, seen):
    out = replay(engine.output)
    assert out.violations == ()
    assert out.history == normal_form(seen.history)
    assert out.frontier == seen.frontier


@given(streams())
def test_output_is_valid_and_the_normal_form_at_every_prefix(stream):
    with testing.engine("reference", "normalise") as normalise:
        for count, element in enumerate(stream, start=1):
            normalise.push("input", [element])
            normalise.cut()
            judge(normalise, replay(stream[:count]))
        assert normalise.account["input"]["violation"] == 0
        assert normalise.counts["live"] == 0


@given(broken_streams())
def test_broken_promises_are_reported_as_the_model_does_and_change_nothing(stream):
    """On the reference, and the kernel emits what it emits after every element."""
    element_by_element("normalise", stream, judge)


@given(st.data())
def test_any_cut_any_restart_is_valid_and_the_normal_form_at_its_ends(data):
    any_cut_any_restart("normalise", data, judge)


@pytest.mark.parametrize("name", ["kernel", "lanes"])
@given(streams())
def test_one_batch_has_each_event_once(name, stream):
    """In one lane in the order of starts."""
    output = whole(testing.engine(name, "normalise", lanes=1), stream)
    history = normal_form(History.of(stream))
    inserts = [e for e in output if isinstance(e, Insert)]
    assert History.from_events(e.event for e in inserts) == history
    assert [e.start for e in inserts] == sorted(e.start for e in inserts)
    assert output[len(inserts) :] == [Stable(FOREVER)]


@given(streams())
def test_stables_pass_unchanged(stream):
    moving, frontier = [], float("-inf")
    for element in stream:
        if isinstance(element, Stable) and element.time > frontier:
            moving.append(element)
            frontier = element.time
    assert [e for e in run(stream) if isinstance(e, Stable)] == moving


@given(streams())
def test_idempotent(stream):
    once = run(stream)
    assert History.of(run(once)) == History.of(once)


@given(streams())
def test_each_element_changes_an_identity_once(stream):
    """The fewest elements: no adjust to nothing and back, none that changes nothing."""
    normalise = testing.engine("reference", "normalise")
    for element in stream:
        normalise.push("input", [element])
        emitted = [out for out in normalise.cut() if not isinstance(out, Stable)]
        assert not any(out.changes_nothing for out in emitted)
        removed = {out.old_event.identity for out in emitted if isinstance(out, Adjust)}
        brought = {out.event.identity for out in emitted if isinstance(out, Insert)}
        gone = {o.old_event.identity for o in emitted if isinstance(o, Adjust) and o.is_removal}
        assert not gone & brought
        assert gone <= removed


@given(st.data())
def test_state_is_what_is_not_frozen(data):
    normalise = testing.engine("reference", "normalise")
    stream = data.draw(streams())
    for count, element in enumerate(stream, start=1):
        normalise.push("input", [element])
        normalise.cut()
        seen = replay(stream[:count])
        open_events = [e for e in seen.history if e.end >= seen.frontier]
        held = normalise.counts["live"]
        assert held == (0 if seen.frontier == float("inf") else len(open_events))


@given(st.data())
def test_snapshot_equivalent_in_equal_histories_out(data):
    truth = data.draw(bags())
    outputs = []
    for _ in range(2):
        one = data.draw(fragments(truth))
        assert snapshot_equivalent(one, truth)
        outputs.append(run(data.draw(presentations(one, case=MergeCase.R4))))
    assert History.of(outputs[0]) == History.of(outputs[1]) == normal_form(truth)


def merged(data, inputs, case):
    with testing.engine("reference", case=case) as merge:
        for number in range(len(inputs)):
            merge.attach(str(number))
        for number, element in data.draw(interleavings(inputs)):
            merge.push(str(number), [element])
            merge.cut()
            assert replay(merge.output).violations == ()
    assert merge.counts["conflicts"] == 0
    return merge.history


@given(st.data())
def test_merge_r3_of_fragments_with_unique_identities(data):
    truth = data.draw(bags(MergeCase.R3))
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth, keyed=True))))) for _ in range(2)
    ]
    assert observe(inputs).keyed
    assert merged(data, inputs, "r3") == normal_form(truth)


@given(st.data())
def test_merge_r3_of_fragments_with_multiplicity_one(data):
    truth = normal_form(data.draw(bags()))
    assume(max_multiplicity(truth) <= 1)
    plain = {"case": MergeCase.R4, "revisions": 0, "phantoms": 0}
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth)), **plain))) for _ in range(2)
    ]
    assert observe(inputs).keyed
    assert merged(data, inputs, "r3") == truth


@given(st.data())
def test_merge_r4_of_fragments_of_any_multiplicity(data):
    truth = data.draw(bags())
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth)), case=MergeCase.R4)))
        for _ in range(2)
    ]
    assert merged(data, inputs, "r4") == normal_form(truth)


def test_erratum_x1_two_copies_of_one_plan_cut_their_results_differently(local_engine):
    one = parse("insert 0 5..13; insert 0 13..14; stable 20")
    other = parse("insert 0 5..14; stable 14")
    with local_engine("merge", case="r3", payload=NUMBERS) as merge:
        for name, stream in (("2", other), ("1", one)):
            for element in by_element(local_engine("normalise", payload=NUMBERS), stream):
                merge.push(name, [element])
                merge.cut()
    assert replay(merge.output).violations == ()
    assert merge.history == History.of(parse("insert 0 5..14"))
    assert merge.counts["conflicts"] == 0


def test_erratum_x1_without_normalise_instant_13_is_not_shared(local_engine):
    """The plain merge cannot bring the two together: as erratum X1 states."""
    with local_engine("merge", case="r3", payload=NUMBERS) as merge:
        merge.push("2", "insert 0 5..14; stable 14")
        merge.cut()
        merge.push("1", "insert 0 5..13; insert 0 13..14; stable 20")
        merge.cut()
    assert merge.counts["conflicts"] > 0


def test_keyed_input_gives_r3_and_fragments_of_one_payload_too():
    assert cheapest(after_normalise(StreamProperties())) is MergeCase.R4
    assert cheapest(after_normalise(StreamProperties(keyed=True))) is MergeCase.R3
    assert cheapest(after_normalise(StreamProperties(), max_multiplicity=1)) is MergeCase.R3
    assert cheapest(after_normalise(StreamProperties(), max_multiplicity=2)) is MergeCase.R4


@pytest.mark.parametrize("case", MergeCase)
@given(st.data())
def test_the_output_has_the_properties_that_are_promised(case, data):
    stream = data.draw(streams(case))
    promised = after_normalise(observe([stream])).to_dict()
    held = observe([run(stream)]).to_dict()
    assert all(held[name] for name, promise in promised.items() if promise)


def test_a_multiplicity_below_one_is_refused():
    with pytest.raises(UsageError, match="normalise: max_multiplicity is 0"):
        after_normalise(StreamProperties(), max_multiplicity=0)
