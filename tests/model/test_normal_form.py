"""The normal form against its definition: levels, maximal runs, snapshots."""

from hypothesis import given
from hypothesis import strategies as st

from anabranch.model.element import Event
from anabranch.model.equivalence import equivalent_until, settled
from anabranch.model.history import History
from anabranch.model.normal_form import max_multiplicity, normal_form, snapshot_equivalent
from anabranch.model.notation import parse_events
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.testing.strategies import histories

BAGS = histories(case=MergeCase.R4, max_events=7, max_time=8, payloads=st.sampled_from("ab"))
TIMES = range(-1, 12)


def history(text):
    return History.from_events(parse_events(text))


def snapshots(one):
    return [sorted(event.payload for event in one.snapshot(time)) for time in TIMES]


@given(BAGS)
def test_one_event_per_level_and_maximal_run(bag):
    expected = []
    for payload in "ab":
        many = [s.count(payload) for s in snapshots(bag)]
        for level in range(1, max(many) + 1):
            reached = [m >= level for m in many]
            for i, time in enumerate(TIMES):
                if reached[i] and not reached[i - 1]:
                    rest = reached[i:]
                    # Beyond the greatest time of these histories nothing changes any more.
                    length = rest.index(False) if False in rest else FOREVER
                    expected.append(Event(payload, time, time + length))
    assert normal_form(bag) == History.from_events(expected)


@given(BAGS)
def test_same_snapshots_idempotent(bag):
    normal = normal_form(bag)
    assert snapshots(normal) == snapshots(bag)
    assert snapshot_equivalent(normal, bag)
    assert normal_form(normal) == normal


@given(BAGS, BAGS)
def test_snapshot_equivalent_exactly_when_the_normal_forms_are_equal(one, other):
    same = snapshots(one) == snapshots(other)
    assert snapshot_equivalent(one, other) == same == (normal_form(one) == normal_form(other))


@given(BAGS, BAGS, st.integers(0, 9))
def test_what_a_stable_fixes_of_a_history_it_fixes_of_the_normal_form(one, other, frontier):
    fixed = [e for e in one if e.start < frontier]
    kept = [e._replace(end=min(e.end, frontier)) for e in fixed]
    # Two futures of the same fixed part: one as drawn, one cut at the frontier and continued.
    future = History.from_events([*kept, *(e for e in other if e.start >= frontier)])
    assert equivalent_until(one, future, frontier)
    assert settled(normal_form(one), frontier) == settled(normal_form(future), frontier)


@given(BAGS)
def test_max_multiplicity_is_that_of_the_fullest_snapshot(bag):
    fullest = max(s.count(p) for s in snapshots(bag) for p in "ab")
    assert max_multiplicity(bag) == fullest


@given(BAGS)
def test_unique_identities_stay_unique(bag):
    keyed = History.from_events({event.identity: event for event in bag}.values())
    assert normal_form(keyed).is_keyed


def test_overlapping_events_are_nested():
    assert normal_form(history("a 1..5; a 3..9")) == history("a 1..9; a 3..5")


def test_an_end_nobody_has_set_stays():
    assert normal_form(history("a 1..5; a 5..forever")) == history("a 1..forever")


def test_other_payloads_do_not_touch():
    assert normal_form(history("a 1..5; b 5..9")) == history("a 1..5; b 5..9")


def test_nothing_is_nothing():
    assert normal_form(history("")) == history("")
    assert max_multiplicity(history("")) == 0
