"""States of R0, R1 and R2 in parts: a restart changes nothing, and a save is small."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import cuts, runs
from ordered_driver import SCHEMA, Kernel, ordered_conflicts
from state_store import Store

from anabranch.errors import StateError
from anabranch.model.element import Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.state.blocks import BLOCK


def restored(store, case):
    state = OrderedState.from_parts(store.parts, case, SCHEMA)
    state.check()
    return state


@given(st.data(), st.booleans())
def test_saved_in_parts_and_restored_it_behaves_the_same(data, each):
    """Also with joining replicas, replicas that leave and come back, and promotions."""
    case = data.draw(st.sampled_from(CASES))
    arrived = data.draw(ordered_conflicts(case))
    kernel, other, store = Kernel(case, each), Kernel(case, each), Store()
    attachments = dict.fromkeys(["r0", "r1", "r2"], 1)
    guarantees = st.sampled_from([None, None, 0, 3, 6, FOREVER])
    for name in attachments:
        guarantee = data.draw(guarantees)
        for merge in (kernel, other):
            merge.attach(name, guarantee)
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        for merge in (kernel, other):
            merge.step(runs(arrived[start:stop]))
        assert kernel.output == other.output
        assert kernel.reasons == other.reasons
        assert kernel.conflicts == other.conflicts
        assert kernel.state.inputs == other.state.inputs
        name = data.draw(st.sampled_from(sorted(attachments)))
        event = data.draw(st.sampled_from(["", "", "attach", "detach", "promote"]))
        if event == "attach" or other.state.members.find(name) is None:
            attachments[name] += 1
            guarantee = data.draw(guarantees)
            for merge in (kernel, other):
                merge.attach(name, guarantee, attachments[name])
        elif event:
            for merge in (kernel, other):
                getattr(merge, event)(name)
        if data.draw(st.booleans()):
            store.save(kernel.state)
            if data.draw(st.booleans()):
                # Whoever was promoted has something waiting: the next step checks the state.
                kernel.state = OrderedState.from_parts(store.parts, case, SCHEMA)


@pytest.mark.parametrize("case", CASES)
def test_what_waits_is_saved_once(case):
    """A joining replica is far ahead: a step writes what it brings, not what is there."""
    kernel, store = Kernel(case), Store()
    kernel.attach("late", guarantee=100_000)
    kernel.take("late", [Insert("p", i, i + 10) for i in range(40 * BLOCK)])
    whole = sum(len(part) for part in store.save(kernel.state).written.values())
    assert len(kernel.state.held) == 40 * BLOCK
    kernel.take("late", [Insert("p", 50_000, 50_001)])
    assert set(store.save(kernel.state).written) == {"control", "nodes/40", "payload/40"}
    assert 20 * sum(store.sizes.values()) < whole
    kernel.take("1", [Insert("p", 5, 15)])
    assert set(store.save(kernel.state).written) == {"control"}
    kernel.take("1", [Stable(BLOCK)])
    assert set(store.save(kernel.state).deleted) == {"nodes/0", "payload/0"}
    kernel.state = restored(store, case)
    assert len(kernel.state.held) == 39 * BLOCK + 1
    # It leaves: what it brought is abandoned, and reported by the step in which it leaves.
    kernel.detach("late")
    assert kernel.account.pending == 0
    store.save(kernel.state)
    assert set(store.parts) == {"control"}
    assert restored(store, case).pending == 0


def test_parts_of_another_case_or_save_are_refused_by_name():
    kernel, store = Kernel(MergeCase.R1), Store()
    kernel.attach("late", guarantee=40)
    kernel.take("late", parse("insert a 1..9; insert b 2..9"))
    store.save(kernel.state)
    with pytest.raises(
        StateError, match=r"merge r1' version 3, this program reads .*merge r2'"
    ):
        OrderedState.from_parts(store.parts, MergeCase.R2, SCHEMA)
    for name in ("control", "nodes/0", "payload/0"):
        some = {k: v for k, v in store.parts.items() if k != name}
        with pytest.raises(StateError, match=f"no part '{name}'"):
            OrderedState.from_parts(some, MergeCase.R1, SCHEMA)
    old = dict(store.parts)
    kernel.take("late", parse("insert c 3..9"))
    store.save(kernel.state)
    with pytest.raises(StateError, match="part 'nodes/0' of the state is of change"):
        OrderedState.from_parts(store.parts | {"nodes/0": old["nodes/0"]}, MergeCase.R1, SCHEMA)
