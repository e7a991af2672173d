"""Every presentation is a valid stream of its history; each option does what it declares."""

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st

from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay, replays
from anabranch.model.properties import MergeCase, observe, permits
from anabranch.model.time import FOREVER
from anabranch.testing.strategies import (
    histories,
    interleavings,
    joiners,
    presentations,
    replicas,
)

CASES = st.sampled_from(MergeCase)
QUICK = settings(phases=[Phase.generate], max_examples=2_000, database=None)


@given(data=st.data(), case=CASES)
def test_presentation_is_valid_at_every_prefix_and_has_its_history(data, case):
    history = data.draw(histories(case=case))
    stream = data.draw(presentations(history, case=case))
    assert replay(stream).violations == ()
    assert History.of(stream) == history
    assert replay(stream).frontier == FOREVER


@given(data=st.data(), case=CASES)
def test_replicas_have_the_properties_of_their_case(data, case):
    inputs = data.draw(replicas(case=case, min_inputs=2))
    assert permits(observe(inputs), case)
    assert len({History.of(stream) for stream in inputs}) == 1


@given(data=st.data())
def test_truncated_and_gapped_streams_stay_valid(data):
    case = data.draw(CASES)
    history = data.draw(histories(case=case))
    stream = data.draw(presentations(history, case=case, gaps=True, truncated=True, phantoms=0))
    for prefix in replays(stream):
        assert prefix.violations == ()


@given(data=st.data())
def test_gaps_only_leave_out(data):
    history = data.draw(histories(case=MergeCase.R4))
    stream = data.draw(presentations(history, case=MergeCase.R4, gaps=True))
    assert len(History.of(stream).minus(history)) == 0


@given(data=st.data())
def test_interleaving_keeps_the_order_of_each_stream(data):
    inputs = data.draw(replicas())
    arrivals = data.draw(interleavings(inputs))
    for number, stream in enumerate(inputs):
        assert [element for own, element in arrivals if own == number] == stream


@given(replicas(closed=False))
def test_open_streams_do_not_end(inputs):
    assert all(Stable(FOREVER) not in stream for stream in inputs)


@given(data=st.data(), case=CASES, guarantee=st.one_of(st.integers(0, 12), st.just(FOREVER)))
def test_a_joiner_is_right_from_its_guarantee_on(data, case, guarantee):
    history = data.draw(histories(case=case))
    options = {"case": case, "strangers": data.draw(st.integers(0, 2))}
    stream = data.draw(joiners(history, guarantee=guarantee, **options))
    assert replay(stream).violations == ()
    assert permits(observe([stream]), case)
    known, wrong = History.of(stream), History.of(stream).minus(history)
    assert all(event.end < guarantee for event in wrong)
    assert all(event.end < guarantee for event in history.minus(known))
    assert len(wrong) <= options["strangers"]


def test_a_joiner_may_omit_a_finished_event_of_an_identity_that_it_has():
    truth = History.from_events([Event("a", 1, 2), Event("a", 1, 9)])
    stream = joiners(truth, guarantee=3, case=MergeCase.R4)
    found = find(stream, lambda s: History.of(s) != truth, settings=QUICK)
    assert History.of(found).events() == [Event("a", 1, 9)]


def _find(what, **options):
    """Fails if no such stream turns up."""
    streams = replicas(min_inputs=1, max_inputs=1, **options)
    return find(streams, lambda inputs: what(inputs[0]), settings=QUICK)[0]


@pytest.mark.parametrize(
    "what",
    [
        lambda s: any(isinstance(e, Adjust) and e.is_removal for e in s),
        lambda s: any(isinstance(e, Adjust) and e.end > e.old_end for e in s),
        lambda s: any(isinstance(e, Adjust) and e.end < e.old_end for e in s),
        lambda s: any(isinstance(e, Adjust) and e.changes_nothing for e in s),
        lambda s: any(isinstance(e, Insert) and e.changes_nothing for e in s),
        lambda s: not observe([s]).ordered,
        lambda s: sum(isinstance(e, Stable) and e.time > 0 for e in s) > 2,
        lambda s: len(s) > 1 and isinstance(s[0], Insert) and s[0].end == FOREVER,
    ],
    ids=[
        "removal",
        "lengthen",
        "shorten",
        "same_end",
        "empty",
        "disorder",
        "stables",
        "forever",
    ],
)
def test_every_kind_of_revision_turns_up(what):
    assert what(_find(what))


def test_repeated_identities_turn_up_for_r4():
    assert _find(lambda s: not observe([s]).keyed, case=MergeCase.R4)
