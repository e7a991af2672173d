"""Which case streams permit, what is missing for a cheaper one, and what can be observed."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import SchemaError
from anabranch.model.notation import parse
from anabranch.model.properties import (
    PROPERTIES,
    MergeCase,
    StreamProperties,
    cheapest,
    missing_for,
    observe,
    permits,
    shared,
)
from anabranch.testing.strategies import replicas

properties = st.builds(StreamProperties, **{name: st.booleans() for name in PROPERTIES})


def watch(*texts):
    return observe([parse(text) for text in texts])


@pytest.mark.parametrize(
    ("holds", "case"),
    [
        (["insert_only", "strictly_increasing"], MergeCase.R0),
        (["insert_only", "ordered", "ties_in_same_order"], MergeCase.R1),
        (["insert_only", "ordered", "ties_in_same_order", "keyed"], MergeCase.R1),
        (["insert_only", "ordered", "keyed"], MergeCase.R2),
        (["strictly_increasing"], MergeCase.R3),
        (["ordered", "keyed"], MergeCase.R3),
        (["keyed"], MergeCase.R3),
        (["insert_only", "ordered"], MergeCase.R4),
        ([], MergeCase.R4),
    ],
)
def test_the_cheapest_case(holds, case):
    assert cheapest(StreamProperties(**dict.fromkeys(holds, True))) is case


@given(properties, st.sampled_from(MergeCase))
def test_what_is_missing_permits_the_case(known, case):
    missing = missing_for(known, case)
    assert permits(known, case) == (missing == ())
    assert permits(replace(known, **dict.fromkeys(missing, True)), case)
    assert permits(known, cheapest(known))


def test_a_case_is_shown_by_name():
    assert repr(MergeCase("r3")) == "MergeCase.R3"


def test_strictly_increasing_implies_the_rest_of_order():
    known = StreamProperties(strictly_increasing=True)
    assert known.ordered
    assert known.ties_in_same_order
    assert known.keyed
    assert not known.insert_only


@given(properties)
def test_properties_travel_as_json(known):
    data = json.loads(json.dumps(known.to_dict()))
    assert StreamProperties.from_dict(data, where="_replica.json") == known


@pytest.mark.parametrize("data", [{"sorted": True}, {"keyed": 1}])
def test_wrong_properties_are_named(data):
    with pytest.raises(SchemaError, match=r"x/_replica.json: property '(sorted|keyed)' is"):
        StreamProperties.from_dict(data, where="x/_replica.json")


@given(st.lists(properties, min_size=1))
def test_shared_is_what_each_has(several):
    common = shared(several)
    for name in PROPERTIES:
        assert getattr(common, name) == all(getattr(one, name) for one in several)


def test_nothing_is_shared_by_none():
    assert shared([]) == StreamProperties()


def test_observe_sees_each_property_break():
    assert not watch("insert a 1..2; adjust a 1..2->3").insert_only
    assert not watch("insert a 2..3; insert b 1..3").ordered
    assert not watch("insert a 1..3; insert b 1..3").strictly_increasing
    assert not watch("insert a 1..3; insert a 1..4").keyed
    assert watch("insert a 1..3; adjust a 1..3->1; insert a 1..4").keyed
    assert watch().insert_only


def test_observed_ties():
    a_b, b_a = "insert a 1..2; insert b 1..3", "insert b 1..3; insert a 1..2"
    assert watch(a_b).ties_in_same_order
    assert watch(a_b, a_b + "; insert c 1..2").ties_in_same_order
    assert watch(a_b, "insert a 1..2; insert c 2..3").ties_in_same_order
    assert not watch(a_b, b_a).ties_in_same_order
    assert not watch(a_b, "insert b 1..3").ties_in_same_order, "a gap shifts positions (L6)"
    assert not watch("insert a 1..2; insert b 1..4", a_b).ties_in_same_order, "ends count too"
    assert not watch("insert a 2..3; insert b 1..3").ties_in_same_order, "no order, no ties"


@given(replicas(case=MergeCase.R4, truncated=True))
def test_observed_of_all_is_at_most_what_each_has(inputs):
    together = observe(inputs)
    for name in PROPERTIES:
        alone = all(getattr(observe([one]), name) for one in inputs)
        assert alone or not getattr(together, name)
