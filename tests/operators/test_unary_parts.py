"""States of normalise and cleanse in parts: a restart changes nothing, and a save is small."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import cuts
from state_store import Store
from unary_driver import SCHEMA, batch_of, broken_streams

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators import cleanse_kernel, normalise_kernel, unary_live
from anabranch.operators.cleanse_kernel import CleanseState
from anabranch.operators.normalise_kernel import NormaliseState
from anabranch.operators.state_parts import BLOCK

KINDS = [(NormaliseState, normalise_kernel), (CleanseState, cleanse_kernel)]
kinds = pytest.mark.parametrize(("state_of", "kernel"), KINDS, ids=["normalise", "cleanse"])
FAR = 1_000_000
DATA = Path(__file__).parent / "data"


def judged(result):
    output = to_elements(result.output)
    return output, result.positions.tolist(), result.reasons.tolist()


@kinds
@given(st.data())
def test_saved_in_parts_and_restored_it_behaves_the_same(state_of, kernel, data):
    """Also when groups move: `_ROOM` is so small that every step copies what it keeps."""
    room = data.draw(st.sampled_from([0, 1_024]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unary_live, "_ROOM", room)
        stream = data.draw(broken_streams())
        state, other, store = state_of(SCHEMA), state_of(SCHEMA), Store()
        for begin, end in pairwise([0, *data.draw(cuts(len(stream)))]):
            batch = batch_of(stream[begin:end])
            assert judged(kernel.step(state, batch)) == judged(kernel.step(other, batch))
            state.check()
            what = data.draw(st.sampled_from(["save", "restart", "bytes", "go on"]))
            if what == "bytes":
                state = state_of.from_bytes(state.to_bytes(), SCHEMA)
                store = Store()
            if what in ("save", "restart"):
                store.save(state)
            if what == "restart":
                state = state_of.from_parts(store.parts, SCHEMA)
            state.check()
            assert state.frontier == other.frontier


@kinds
def test_a_small_step_on_a_large_state_writes_few_bytes(state_of, kernel):
    state, store = state_of(SCHEMA), Store()
    kernel.step(state, batch_of([Insert(f"p{i}", i, FAR + i) for i in range(40 * BLOCK)]))
    whole = sum(len(part) for part in store.save(state).written.values())
    assert len(store.parts) == 1 + 2 * 40
    kernel.step(state, batch_of([Adjust("p5", 5, FAR + 5, FAR + 6)]))
    assert set(store.save(state).written) == {"control", "nodes/0"}
    assert 20 * sum(store.sizes.values()) < whole
    kernel.step(state, batch_of([Insert("new", 50_000, FAR)]))
    assert set(store.save(state).written) == {"control", "nodes/40", "payload/40"}
    kernel.step(state, batch_of([Stable(10)]))
    assert set(store.save(state).written) == {"control"}
    # What nobody knows, or is not believed, changes nothing.
    kernel.step(state, batch_of([Adjust("q", 60_000, FAR, FAR + 1)]))
    assert set(store.save(state).written) == {"control"}
    again = state_of.from_parts(store.parts, SCHEMA)
    again.check()
    assert set(again.parts(since=store.mark).written) == {"control"}


def test_what_cleanse_released_is_deleted():
    state, store = CleanseState(SCHEMA), Store()
    inserts = [Insert(f"p{i}", i, i + 1) for i in range(3 * BLOCK)]
    cleanse_kernel.step(state, batch_of(inserts))
    store.save(state)
    cleanse_kernel.step(state, batch_of([Stable(2 * BLOCK + 1)]))
    assert len(store.save(state).deleted) == 4
    assert set(store.parts) == {"control", "nodes/2", "payload/2"}
    # Numbers are not given again: what comes now is in a new block.
    cleanse_kernel.step(state, batch_of([Insert(f"q{i}", FAR, FAR + 1) for i in range(BLOCK)]))
    assert set(store.save(state).written) == {"control", "nodes/3", "payload/3"}
    state = CleanseState.from_parts(store.parts, SCHEMA)
    state.check()
    result = cleanse_kernel.step(state, batch_of([Stable(FOREVER)]))
    assert len(result.output) == 2 * BLOCK + 1
    store.save(state)
    assert set(store.parts) == {"control"}


def test_a_payload_that_comes_back_has_another_number():
    state, store = NormaliseState(SCHEMA), Store()
    normalise_kernel.step(state, batch_of(parse("insert a 1..3; insert b 1..9")))
    store.save(state)
    normalise_kernel.step(state, batch_of(parse("adjust a 1..3->1")))
    store.save(state)
    normalise_kernel.step(state, batch_of(parse("insert a 2..5")))
    store.save(state)
    state = NormaliseState.from_parts(store.parts, SCHEMA)
    state.check()
    assert state.live.numbers.next == 3
    result = normalise_kernel.step(state, batch_of(parse("adjust a 2..5->6")))
    assert to_elements(result.output) == parse("adjust a 2..5->6")


@kinds
def test_blocks_that_were_never_saved_are_forgotten_when_they_are_empty(state_of, kernel):
    state = state_of(SCHEMA)
    for i in range(20):
        some = [Insert(f"p{i}-{k}", i, i + 1) for k in range(BLOCK)]
        kernel.step(state, batch_of([*some, Stable(i)]))
    kernel.step(state, batch_of([Stable(FOREVER)]))
    assert len(state.live.numbers.blocks.number) == 0
    assert not state.live.numbers._groups


@kinds
def test_parts_that_do_not_fit_are_refused_by_name(state_of, kernel):
    state, store = state_of(SCHEMA), Store()
    kernel.step(state, batch_of(parse("insert a 1..9; insert b 2..9")))
    store.save(state)
    old = dict(store.parts)
    kernel.step(state, batch_of(parse("adjust a 1..9->8")))
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
    with pytest.raises(StateError, match=r"the state is 'anabranch .*' version 2, this"):
        another.from_parts(old, SCHEMA)
    newer = state_of.FORMAT.kind
    newer = replace(newer, version=newer.version + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state_of, "FORMAT", replace(state_of.FORMAT, kind=newer))
        data = state.parts().written
    with pytest.raises(StateError, match=r"version 3, this program reads .* version 2;"):
        state_of.from_parts(data, SCHEMA)


@kinds
def test_payloads_without_columns_are_saved_in_parts(state_of, kernel):
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state, store = state_of(schema), Store()
    kernel.step(state, from_elements([Insert((), 1, 9), Insert((), 2, 9)], schema))
    store.save(state)
    again = state_of.from_parts(store.parts, schema)
    again.check()
    ended = from_elements([Stable(FOREVER)], schema)
    assert judged(kernel.step(again, ended)) == judged(kernel.step(state, ended))


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_state_of_normalise_is_read(version):
    """Written by each version: payload `a` has three events, `b` one."""
    state = NormaliseState.from_bytes(
        (DATA / f"normalise_v{version}.state").read_bytes(), SCHEMA
    )
    state.check()
    assert (state.frontier, len(state.live)) == (3, 4)
    result = normalise_kernel.step(state, batch_of(parse("adjust a 6..8->9; adjust b 2..9->5")))
    # The runs of `a` were 1..8 and, within it, 6..7.
    assert to_elements(result.output) == parse("adjust a 1..8->9; adjust b 2..9->5")


@pytest.mark.parametrize("version", [1, 2])
def test_an_old_state_of_cleanse_is_read(version):
    """Written by each version: `b` is not frozen, and `a` and `c` start after it."""
    state = CleanseState.from_bytes((DATA / f"cleanse_v{version}.state").read_bytes(), SCHEMA)
    state.check()
    assert (state.frontier, state.released, state.waiting) == (3, 2, 4)
    result = cleanse_kernel.step(state, batch_of(parse("stable 10")))
    assert to_elements(result.output) == parse(
        "insert b 2..9; insert b 2..9; insert a 4..6; stable 5"
    )
