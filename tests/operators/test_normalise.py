"""Laws of normalise, element by element: the model's normal form is the judge."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from unary_driver import bags, broken_streams, fragments, streams

from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.normal_form import max_multiplicity, normal_form, snapshot_equivalent
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase, StreamProperties, cheapest, observe
from anabranch.operators.normalise import after_normalise
from anabranch.operators.reference.normalise import Normalise
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.reference.r4 import MergeR4
from anabranch.testing.strategies import interleavings, presentations


def run(stream):
    normalise = Normalise()
    return [out for element in stream for out in normalise.push(element)]


@given(streams())
def test_output_is_valid_and_the_normal_form_at_every_prefix(stream):
    normalise, output = Normalise(), []
    for count, element in enumerate(stream, start=1):
        output += normalise.push(element)
        normalise.check()
        seen, given_out = replay(stream[:count]), replay(output)
        assert given_out.violations == ()
        assert given_out.history == normal_form(seen.history)
        assert given_out.frontier == seen.frontier
    assert normalise.violations == []
    assert normalise.live == normalise.begun == {}


@given(broken_streams())
def test_broken_promises_are_reported_as_the_model_does_and_change_nothing(stream):
    normalise, output = Normalise(), []
    for count, element in enumerate(stream, start=1):
        output += normalise.push(element)
        normalise.check()
        seen, given_out = replay(stream[:count]), replay(output)
        assert tuple(normalise.violations) == seen.violations
        assert given_out.violations == ()
        assert given_out.history == normal_form(seen.history)


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
    normalise = Normalise()
    for element in stream:
        said = [out for out in normalise.push(element) if not isinstance(out, Stable)]
        assert not any(out.changes_nothing for out in said)
        removed = {out.old_event.identity for out in said if isinstance(out, Adjust)}
        brought = {out.event.identity for out in said if isinstance(out, Insert)}
        gone = {o.old_event.identity for o in said if isinstance(o, Adjust) and o.is_removal}
        assert not gone & brought
        assert gone <= removed


@given(st.data())
def test_state_is_what_is_not_frozen(data):
    normalise = Normalise()
    stream = data.draw(streams())
    for count, element in enumerate(stream, start=1):
        normalise.push(element)
        seen = replay(stream[:count])
        open_events = [e for e in seen.history if e.end >= seen.frontier]
        held = sum(sum(own.values()) for own in normalise.live.values())
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


def merged(data, inputs, merge):
    output = []
    for number in range(len(inputs)):
        merge.attach(str(number))
    for number, element in data.draw(interleavings(inputs)):
        output += merge.push(str(number), element).output
        assert replay(output).violations == ()
    assert merge.conflicts == 0
    return History.of(output)


@given(st.data())
def test_merge_r3_of_fragments_with_unique_identities(data):
    truth = data.draw(bags(MergeCase.R3))
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth, keyed=True))))) for _ in range(2)
    ]
    assert observe(inputs).keyed
    assert merged(data, inputs, MergeR3()) == normal_form(truth)


@given(st.data())
def test_merge_r3_of_fragments_with_multiplicity_one(data):
    truth = normal_form(data.draw(bags()))
    assume(max_multiplicity(truth) <= 1)
    plain = {"case": MergeCase.R4, "revisions": 0, "phantoms": 0}
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth)), **plain))) for _ in range(2)
    ]
    assert observe(inputs).keyed
    assert merged(data, inputs, MergeR3()) == truth


@given(st.data())
def test_merge_r4_of_fragments_of_any_multiplicity(data):
    truth = data.draw(bags())
    inputs = [
        run(data.draw(presentations(data.draw(fragments(truth)), case=MergeCase.R4)))
        for _ in range(2)
    ]
    assert merged(data, inputs, MergeR4()) == normal_form(truth)


def test_erratum_x1_two_copies_of_one_plan_cut_their_results_differently():
    one = parse("insert 0 5..13; insert 0 13..14; stable 20")
    other = parse("insert 0 5..14; stable 14")
    merge, output = MergeR3(), []
    for name, stream in (("2", other), ("1", one)):
        for element in run(stream):
            output += merge.push(name, element).output
    assert replay(output).violations == ()
    assert History.of(output) == History.of(parse("insert 0 5..14"))
    assert merge.conflicts == 0


def test_erratum_x1_without_normalise_instant_13_is_not_shared():
    """The plain merge cannot bring the two together: what erratum X1 says of it."""
    merge, output = MergeR3(), []
    for element in parse("insert 0 5..14; stable 14"):
        output += merge.push("2", element).output
    for element in parse("insert 0 5..13; insert 0 13..14; stable 20"):
        output += merge.push("1", element).output
    assert merge.conflicts > 0


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
