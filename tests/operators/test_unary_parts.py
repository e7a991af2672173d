"""States of normalise and cleanse in parts: a restart changes nothing, and a save is small."""

from dataclasses import replace
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store
from unary_laws import broken_streams, cuts

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.cleanse import CleanseState
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.report_final import ReportFinalState
from anabranch.operators.runs.normalise import NormaliseState
from anabranch.operators.state import groups
from anabranch.operators.state.blocks import BLOCK
from anabranch.operators.state.codec import write_tables
from anabranch.testing.step_account import StepAccount

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.string()}))
KINDS = [NormaliseState, CleanseState, ReportFinalState]
kinds = pytest.mark.parametrize("state_of", KINDS)
FAR = 1_000_000


def batch_of(elements):
    return from_elements(elements, SCHEMA)


def step(state, batch):
    """One step; its reasons explain its output."""
    arrival, account = Arrival("input", batch), StepAccount()
    result = state.step(Inputs((arrival,)))
    account.add([arrival], result)
    assert account.adds_up, account
    assert result.frontier == state.frontier
    return result


def judged(result):
    final = [] if result.final is None else to_elements(result.final)
    return to_elements(result.output), final, result.reasons[0].tolist()


@kinds
@given(st.data())
def test_saved_in_parts_and_restored_it_behaves_the_same(state_of, data):
    """Also when groups move: the log is compacted in every step."""
    room = data.draw(st.sampled_from([0, 1_024]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "_SMALL", room)
        stream = data.draw(broken_streams())
        state, other, store = state_of(SCHEMA), state_of(SCHEMA), Store()
        for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
            batch = batch_of(stream[begin:end])
            assert judged(step(state, batch)) == judged(step(other, batch))
            state.check()
            what = data.draw(st.sampled_from(["save", "restart", "go on"]))
            if what in ("save", "restart"):
                store.save(state)
            if what == "restart":
                state = state_of.from_parts(store.parts, SCHEMA)
            state.check()
            assert state.frontier == other.frontier


@kinds
def test_a_small_step_on_a_large_state_writes_few_bytes(state_of):
    state, store = state_of(SCHEMA), Store()
    step(state, batch_of([Insert(f"p{i}", i, FAR + i) for i in range(40 * BLOCK)]))
    whole = sum(len(part) for part in store.save(state).written.values())
    assert len(store.parts) == 1 + 2 * 40
    step(state, batch_of([Adjust("p5", 5, FAR + 5, FAR + 6)]))
    assert set(store.save(state).written) == {"control", "nodes/0"}
    assert 20 * sum(store.sizes.values()) < whole
    step(state, batch_of([Insert("new", 50_000, FAR)]))
    assert set(store.save(state).written) == {"control", "nodes/40", "payload/40"}
    step(state, batch_of([Stable(10)]))
    assert set(store.save(state).written) == {"control"}
    # What nobody knows, or is not believed, changes nothing.
    step(state, batch_of([Adjust("q", 60_000, FAR, FAR + 1)]))
    assert set(store.save(state).written) == {"control"}
    again = state_of.from_parts(store.parts, SCHEMA)
    again.check()
    assert set(again.parts(since=store.mark).written) == {"control"}


def test_what_cleanse_released_is_deleted():
    state, store = CleanseState(SCHEMA), Store()
    inserts = [Insert(f"p{i}", i, i + 1) for i in range(3 * BLOCK)]
    step(state, batch_of(inserts))
    store.save(state)
    step(state, batch_of([Stable(2 * BLOCK + 1)]))
    assert len(store.save(state).deleted) == 4
    assert set(store.parts) == {"control", "nodes/2", "payload/2"}
    # Numbers are given again, in the order in which they became free.
    step(state, batch_of([Insert(f"q{i}", FAR, FAR + 1) for i in range(BLOCK)]))
    assert set(store.save(state).written) == {"control", "nodes/0", "payload/0"}
    state = CleanseState.from_parts(store.parts, SCHEMA)
    state.check()
    result = step(state, batch_of([Stable(FOREVER)]))
    assert len(result.output) == 2 * BLOCK + 1
    store.save(state)
    assert set(store.parts) == {"control"}


def test_a_number_that_is_given_again_has_the_new_payload():
    state, store = NormaliseState(SCHEMA), Store()
    step(state, batch_of(parse("insert a 1..3; insert b 1..9")))
    store.save(state)
    step(state, batch_of(parse("adjust a 1..3->1")))
    store.save(state)
    step(state, batch_of(parse("insert c 2..5")))
    assert "payload/0" in store.save(state).written
    assert state.groups.table.used == 2
    state = NormaliseState.from_parts(store.parts, SCHEMA)
    state.check()
    result = step(state, batch_of(parse("adjust c 2..5->6; adjust b 1..9->8")))
    assert to_elements(result.output) == parse("adjust b 1..9->8; adjust c 2..5->6")


@kinds
def test_a_stream_that_ended_has_nothing_to_save_but_its_control(state_of):
    state = state_of(SCHEMA)
    for i in range(20):
        some = [Insert(f"p{i}-{k}", i, i + 1) for k in range(BLOCK)]
        step(state, batch_of([*some, Stable(i)]))
    step(state, batch_of([Stable(FOREVER)]))
    assert state.live == len(state.groups.table) == len(state.groups.due) == 0
    assert set(state.parts().written) == {"control"}


@kinds
def test_parts_that_do_not_fit_are_refused_by_name(state_of):
    state, store = state_of(SCHEMA), Store()
    step(state, batch_of(parse("insert a 1..9; insert b 2..9")))
    store.save(state)
    old = dict(store.parts)
    step(state, batch_of(parse("adjust a 1..9->8")))
    store.save(state)
    for name in ("control", "nodes/0", "payload/0"):
        with pytest.raises(StateError, match=f"no part '{name}'"):
            state_of.from_parts({k: v for k, v in old.items() if k != name}, SCHEMA)
    with pytest.raises(StateError, match="part 'nodes/0' of the state is of change 1, the"):
        state_of.from_parts(store.parts | {"nodes/0": old["nodes/0"]}, SCHEMA)
    other = ElementSchema(TimeType.BIGINT, pa.schema({"q": pa.int64()}))
    with pytest.raises(StateError, match=r"payload \(p string\), the input has .*\(q int64\)"):
        state_of.from_parts(old, other)
    another = CleanseState if state_of is NormaliseState else NormaliseState
    with pytest.raises(StateError, match=r"the state is 'anabranch .*' version 1, this"):
        another.from_parts(old, SCHEMA)
    newer = replace(state_of.KIND, version=state_of.KIND.version + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_of, "KIND", newer)
        data = state.parts().written
    with pytest.raises(StateError, match=r"version 2, this program reads .* version 1;"):
        state_of.from_parts(data, SCHEMA)


@kinds
def test_payloads_without_columns_are_saved_in_parts(state_of):
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state, store = state_of(schema), Store()
    step(state, from_elements([Insert((), 1, 9), Insert((), 2, 9)], schema))
    store.save(state)
    again = state_of.from_parts(store.parts, schema)
    again.check()
    ended = from_elements([Stable(FOREVER)], schema)
    assert judged(step(again, ended)) == judged(step(state, ended))


@kinds
@pytest.mark.parametrize("data", [b"", b"not a state"])
def test_damaged_bytes_are_refused(state_of, data):
    with pytest.raises(StateError, match=r"^\w+: the bytes are not a state"):
        state_of.from_parts({"control": data}, SCHEMA)


@kinds
def test_a_table_that_is_no_state_is_refused(state_of):
    data = write_tables(pa.table({"x": [1]}))
    with pytest.raises(StateError, match="the state is 'unknown' version unknown"):
        state_of.from_parts({"control": data}, SCHEMA)


@kinds
def test_other_times_are_refused(state_of):
    other = ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload)
    with pytest.raises(StateError, match="the state has bigint times"):
        state_of.from_parts(state_of(SCHEMA).parts().written, other)
