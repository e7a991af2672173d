"""A level of consistency: its text, its corners, and a change while an operator runs."""

from itertools import pairwise

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import cuts, streams

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model import Stable, parse
from anabranch.model.history import History, replay
from anabranch.operators.contract import Arrival, Bucket, Inputs, NewSettings, Reached
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import NAMED, Level, Release

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
LEVELS = st.builds(
    lambda wait, more: Level(wait=wait, remember=None if more is None else (wait or 0) + more),
    st.sampled_from([None, 0, 2, 6]),
    st.sampled_from([None, 0, 3]),
)


def step(state, elements=(), *control):
    arrivals = (Arrival("input", from_elements(elements, SCHEMA)),) if elements else ()
    return state.step(Inputs(arrivals, control))


@given(level=LEVELS, wall=st.sampled_from([None, 1_000_000]), final=st.booleans())
def test_a_level_is_what_its_text_states(level, wall, final):
    release = Release.FINAL if final else Release.ORDERED
    made = Level(wait=level.wait, wait_wall=wall, remember=level.remember, release=release)
    assert Level.parse(str(made)) == made


def test_the_names_are_of_the_corners():
    assert {name: str(one) for name, one in NAMED.items()} == {
        "strong": "wait=stable, remember=forever",
        "ultra": "wait=stable, remember=forever, release=final",
        "middle": "wait=0, remember=forever",
        "weak": "wait=0, remember=0",
    }
    assert [one.name for one in NAMED.values()] == list(NAMED)
    assert Level(wait=3).name == ""
    assert [name for name, one in NAMED.items() if one.needs_stables] == ["strong", "ultra"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"wait": -1}, "wait is -1; it must be 0 or greater"),
        ({"remember": -1}, "remember is -1; it must be 0 or greater"),
        ({"wait": 3, "remember": 2}, "wait=3 is greater than remember=2"),
    ],
)
def test_what_is_outside_the_triangle_is_refused(given, message):
    with pytest.raises(UsageError, match=message):
        Level(**given)


@pytest.mark.parametrize("text", ["", "wait=soon, remember=0", "wait=1"])
def test_a_text_that_is_no_level_is_refused(text):
    with pytest.raises(UsageError, match="is no level, such as 'wait=0, remember=0'"):
        Level.parse(text)


def changes(data, count):
    """At each of some steps another level, or none."""
    some = st.lists(st.none() | LEVELS, min_size=count, max_size=count)
    return data.draw(some)


def played(operator, data, stream):
    """A stream in steps, with other levels in between; what came out, and each step's end."""
    ends = data.draw(cuts(len(stream)))
    state, output, seen, late = operator.empty(), [], None, set()
    again = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    for (begin, end), level, restart in zip(
        pairwise([0, *ends]), changes(data, len(ends)), again, strict=True
    ):
        rows = stream[begin:end]
        starts = [one.start for one in rows if not isinstance(one, Stable)]
        seen = max([*starts, *([] if seen is None else [seen])], default=None)
        control = [] if level is None else [NewSettings(str(level))]
        control += [] if seen is None else [Reached(seen)]
        before = state.frontier
        result = step(state, rows, *control)
        output += to_elements(result.output)
        codes = result.buckets[0] if rows else ()
        late |= {begin + at for at, one in enumerate(codes) if one == Bucket.LATE}
        assert state.frontier >= before, "a frontier never goes back"
        state.check()
        if restart:
            state = operator.from_parts(state.parts().written)
    return output, state, late


@given(data=st.data(), stream=streams(), level=LEVELS)
def test_align_loses_nothing_when_its_level_changes(data, stream, level):
    operator = HoldOperator(SCHEMA, wait=level.wait, is_leveled=True)
    output, state, _ = played(operator, data, stream)
    end = [] if stream[-1] == Stable(float("inf")) else [Stable(float("inf"))]
    output += to_elements(step(state, end).output) if end else []
    assert replay(output).violations == ()
    assert History.of(output) == History.of([*stream, *end])
    assert state.live == 0


@given(data=st.data(), stream=streams(), level=LEVELS)
def test_finalize_forgets_by_the_level_that_counts(data, stream, level):
    """What was late is in no answer, and nothing else is lost, whatever the level was."""
    operator = FinalizeOperator(SCHEMA, level.remember)
    output, _, late = played(operator, data, stream)
    out, seen = replay(output), replay(stream)
    kept = [one for at, one in enumerate(stream) if at not in late]
    assert out.violations == ()
    assert out.history == History.of(kept)
    assert out.frontier >= seen.frontier


def test_a_longer_memory_waits_until_time_has_passed_the_frontier():
    state = FinalizeOperator(SCHEMA, 0).empty()
    step(state, parse("insert a 20..30"), Reached(20))
    assert state.frontier == 20
    step(state, parse("insert b 25..30"), NewSettings("wait=0, remember=10"), Reached(25))
    assert state.frontier == 20
    step(state, parse("insert c 31..32"), Reached(31))
    assert state.frontier == 21


def test_a_shorter_wait_releases_what_is_held():
    state = HoldOperator(SCHEMA, is_leveled=True).empty()
    assert len(step(state, parse("insert a 20..30"), Reached(20)).output) == 0
    made = step(state, (), NewSettings(str(NAMED["middle"])), Reached(20))
    assert to_elements(made.output) == list(parse("insert a 20..30"))
    assert state.frontier < FOREVER_UNITS
