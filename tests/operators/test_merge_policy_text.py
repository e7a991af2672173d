"""Merge policies as text and as plain values, and the errors of wrong ones."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.operators.merge.policy import (
    DEFAULT,
    Adjusts,
    Follow,
    Inserts,
    Policy,
    Quorum,
    Violations,
)

ANY = st.builds(
    Policy,
    adjusts=st.one_of(
        st.sampled_from([Adjusts.ON_STABLE, Adjusts.ALWAYS, Adjusts.FOLLOW_LEADER]),
        st.builds(Follow, st.text(min_size=1)),
    ),
    inserts=st.one_of(
        st.sampled_from(
            [
                Inserts.FIRST,
                Inserts.LEADER,
                Inserts.HIGHEST_START,
                Inserts.MOST_FREE,
                Inserts.HALF_FROZEN,
            ]
        ),
        st.builds(Quorum, st.floats(0, 1, exclude_min=True)),
    ),
    stable_lag=st.integers(0, 1000),
    violations=st.sampled_from([Violations.IGNORE, Violations.RAISE, Violations.DETACH]),
    shrink_only=st.booleans(),
    promote=st.booleans(),
    gaps=st.just(True),
    wait=st.none() | st.integers(0, 1000),
)


@given(ANY)
@example(Policy(adjusts=Follow("\\"), violations=Violations.RAISE))
def test_text_and_plain_values_bring_every_policy_back(policy):
    assert Policy.parse(str(policy)) == policy
    assert Policy.from_dict(policy.to_dict()) == policy
    assert {type(value) for value in policy.to_dict().values()} <= {str, int, bool, type(None)}


def test_the_default_is_the_paper_s():
    assert Policy.parse("") is Policy.parse(" default ") is DEFAULT
    assert str(Policy()) == "default"
    assert Policy.from_dict({}) == Policy(
        adjusts=Adjusts.ON_STABLE,
        inserts=Inserts.FIRST,
        stable_lag=0,
        violations=Violations.IGNORE,
    )


def test_a_text_as_people_type_it():
    text = ' inserts = quorum( 0.5 ) , adjusts=follow("a, \\"b)"),stable_lag=3,promote=TRUE'
    assert Policy.parse(text) == Policy(
        inserts=Quorum(0.5), adjusts=Follow('a, "b)'), stable_lag=3, promote=True
    )
    assert str(Policy.parse(text)) == (
        'adjusts=follow("a, \\"b)"),inserts=quorum(0.5),stable_lag=3,promote=true'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("insert=first", r"no choice 'insert' \(did you mean 'inserts'\?\); the choices are"),
        ("colour=red", r"no choice 'colour'; the choices are adjusts, inserts, stable_lag"),
        (
            "inserts=quorm(0.5)",
            r"no value 'quorm\(0.5\)' \(did you mean 'quorum'\?\); it is one",
        ),
        ("inserts=(0.5", r"inserts has no value '\(0.5'; it is one of first, leader"),
        ("adjusts=3", "adjusts has no value '3'; it is one of on_stable, always"),
        ("inserts=quorum", r"quorum takes a number above 0 and at most 1; write quorum\(0.5\)"),
        ("inserts=quorum(half)", r"quorum\(half\) is not a fraction of the replicas"),
        ("inserts=quorum(0)", r"quorum\(0.0\) is not a fraction of the replicas"),
        ("inserts=quorum(nan)", r"quorum\(nan\) is not a fraction of the replicas"),
        ("adjusts=follow()", r"follow takes a replica's name; write follow\(east\)"),
        ('adjusts=follow("a)', r"the quoted name does not end"),
        ("adjusts=always(2)", "always takes nothing; write always"),
        (
            "violations=shout",
            "violations has no value 'shout'; it is one of ignore, raise, detach",
        ),
        ("stable_lag=-1", "stable_lag=-1 is not a distance in time; give a whole number"),
        ("stable_lag=soon", "stable_lag='soon' is not a distance in time"),
        ("stable_lag=true", "stable_lag=True is not a distance in time"),
        ("promote=maybe", "promote=maybe is neither true nor false"),
        ("always", r"'always' in 'always' is not a choice; write CHOICE=VALUE"),
        ("adjusts=", r"'adjusts=' in 'adjusts=' is not a choice"),
        ("adjusts=always,adjusts=always", "adjusts is chosen twice"),
    ],
)
def test_the_error_of_a_wrong_text_names_what_was_meant(text, message):
    with pytest.raises(UsageError, match=message):
        Policy.parse(text)


def test_the_error_of_a_wrong_value_names_what_was_meant():
    with pytest.raises(UsageError, match="adjusts='always' is none of on_stable, always"):
        Policy(adjusts="always")
    with pytest.raises(UsageError, match="names no replica"):
        Follow("")
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        Quorum(1.5)


@given(st.sampled_from([0.1, 0.2, 0.3, 0.7, 0.9]), st.integers(1, 100))
def test_a_quorum_is_counted_in_tenths_not_in_floats(fraction, joined):
    tenths = round(fraction * 10)
    assert Quorum(fraction).needed(joined) == -(-tenths * joined // 10)
