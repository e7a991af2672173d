"""Normalise inside: what its state holds and costs, and payloads and times of every kind."""

import pyarrow as pa
import pytest

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.runs.normalise import NormaliseState

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))


def step(state, elements):
    return state.step(Inputs((Arrival("input", from_elements(elements, SCHEMA)),)))


def whole(elements, payload):
    """The net change of one step, on the kernel."""
    with testing.engine("kernel", "normalise", payload=payload) as normalise:
        normalise.push("input", elements)
        return normalise.cut()


def test_state_forgets_what_is_frozen():
    """A thousand steps of touching fragments of many payloads: what is held stays small."""
    state = NormaliseState(SCHEMA)
    for time in range(0, 40_000, 40):
        some = [Insert(f"p{(time + i) % 997}", time + i, time + i + 90) for i in range(40)]
        step(state, [*some, Stable(time)])
    state.check()
    assert state.live < 400
    assert state.groups.stored < 4_000
    step(state, [Stable(FOREVER)])
    assert state.live == len(state.groups.table) == 0


def test_a_run_of_five_hundred_fragments_is_one_event_and_hardly_any_state():
    state = NormaliseState(SCHEMA)
    output = []
    for time in range(500):
        fragment = [Insert("a", time, time + 1), Stable(time)]
        output += to_elements(step(state, fragment).output)
        state.check()
    # The one that ends at the frontier may still be lengthened, the next one is free; of the
    # others no more are held than these.
    assert state.live <= 4
    assert History.of(output).events() == [Insert("a", 0, 500).event]


def test_payloads_are_compared_by_value_whatever_their_type():
    kind = pa.schema({"x": pa.float64(), "tags": pa.list_(pa.string())})
    stream = [
        Insert((0.0, ("a",)), 1, 3),
        Insert((-0.0, ("a",)), 3, 5),
        Insert((float("nan"), None), 1, 3),
        Insert((float("nan"), None), 3, 9),
        Insert((None, ("a",)), 3, 5),
    ]
    output = whole(stream, kind)
    assert len(output) == 3
    assert sorted((e.start, e.end) for e in output) == [(1, 5), (1, 9), (3, 5)]


def test_without_payload_columns_all_events_are_of_one_payload():
    stream = [Insert((), 1, 3), Insert((), 3, 5), Stable(4)]
    assert whole(stream, pa.schema({})) == (Insert((), 1, 5), Stable(4))


@pytest.mark.parametrize("base", [0, -(2**62), 1_700_000_000_000_000])
@pytest.mark.parametrize("width", [10, 2**61])
def test_times_may_be_anywhere(base, width):
    fragments = [
        Insert("a", base + width, base + 2 * width),
        Insert("a", base, base + width),
        Insert("b", base, FOREVER),
    ]
    output = whole(fragments, SCHEMA.payload)
    assert output == (Insert("a", base, base + 2 * width), Insert("b", base, FOREVER))


def test_an_empty_batch_changes_nothing():
    state = NormaliseState(SCHEMA)
    result = step(state, [])
    assert len(result.output) == len(result.reasons[0]) == 0
    assert repr(state).startswith("NormaliseState(")


def test_positions_are_those_of_the_batch():
    with testing.engine("kernel", "normalise") as normalise:
        normalise.push("input", "insert a 1..5; insert b 1..5; stable 2")
        normalise.cut()
        wrong = "insert c 3..4; insert a 1..9; stable 3; adjust b 1..6->7; adjust a 1..5->4"
        normalise.push("input", wrong)
        output = normalise.cut()
    assert normalise.reasons[3:] == (
        "APPLIED",
        "BEHIND_STABLE",
        "LEADS",
        "NO_SUCH_EVENT",
        "APPLIED",
    )
    assert [type(element) for element in output] == [Adjust, Insert, Stable]
