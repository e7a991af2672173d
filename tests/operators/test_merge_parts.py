"""States of merges in parts: a restart between any two steps changes nothing."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, cuts, runs
from merge_r4_driver import KernelR4, quarrels_r4
from state_store import Store

from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.merge import auto
from anabranch.operators.merge.auto import AutoState
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.state_parts import BLOCK

GRANULARITIES = st.sampled_from(["batch", "element"])


@dataclass
class Saving(KernelR4):
    """A merge of bags that can go back to what it saved."""

    store: Store = field(default_factory=Store)

    def save(self):
        return self.store.save(self.state)

    def restore(self) -> None:
        self.state = type(self.state).from_parts(self.store.parts, SCHEMA)
        self.state.check()


@dataclass
class SavingAuto(Saving):
    """The merge that finds its case."""

    def __post_init__(self) -> None:
        policy = Policy(shrink_only=self.shrink_only)
        self.state = AutoState.empty(SCHEMA, policy=policy)

    def advance(self, arrivals):
        return auto.step(self.state, arrivals, granularity=self.granularity)


@pytest.mark.parametrize("kind", [Saving, SavingAuto])
@given(st.data())
def test_bags_saved_in_parts_and_restored_behave_the_same(kind, data):
    """Steps, saves, restarts, arrivals and departures, in any order."""
    arrived = data.draw(quarrels_r4())
    options = (data.draw(st.booleans()), data.draw(GRANULARITIES))
    kernel, other = kind(*options), kind(*options)
    for number in range(3):
        guarantee = data.draw(st.sampled_from([None, None, 0, 3, FOREVER]))
        for merge in (kernel, other):
            merge.attach(f"r{number}", guarantee)
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        match data.draw(st.sampled_from(["save", "restore", "return", "go on"])):
            case "save":
                kernel.save()
            case "restore":
                kernel.save()
                kernel.restore()
            case "return":
                for merge in (kernel, other):
                    _, attachment = merge.numbers["r1"]
                    merge.detach("r1")
                    merge.attach("r1", attachment=attachment + 1)
            case _:
                pass
        results = [merge.step(runs(arrived[start:stop])) for merge in (kernel, other)]
        assert kernel.output == other.output
        assert kernel.reasons == other.reasons
        # By batch, what a stable is due at is visited in no order.
        assert sorted(kernel.missing) == sorted(other.missing)
        assert results[0].conflicts == results[1].conflicts
        assert kernel.state.replicas == other.state.replicas


def some_blocks(kind=Saving) -> Saving:
    """Identities in three blocks, saved."""
    merge = kind()
    merge.take("1", [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)])
    merge.save()
    return merge


def test_a_save_of_bags_writes_only_what_changed():
    merge = some_blocks()
    parts = {f"{kind}/{k}" for kind in ("nodes", "payload") for k in range(3)}
    assert set(merge.store.parts) == {"control", *parts}
    merge.take("1", [Adjust("p5", 5, 10_005, 10_006)])
    assert set(merge.save().written) == {"control", "nodes/0"}
    merge.take("2", [Insert("p2000", 2_000, 12_000), Insert("new", 4_000, 5_000)])
    written = {"control", "nodes/1", "nodes/3", "payload/3"}
    assert set(merge.save().written) == written
    assert set(merge.save().written) == {"control"}
    # An element that changes nothing leaves what it is about as it was.
    merge.take("2", [Adjust("q", 4_000, 4_001, 4_002), Insert("q", 4_000, 4_000)])
    assert set(merge.save().written) == {"control"}
    # The frontier passes starts, and nothing is corrected.
    merge.take("1", [Insert("new", 4_000, 5_000), Stable(3_000)])
    assert set(merge.save().written) == {"control", "nodes/3"}


def test_a_small_step_on_many_bags_writes_few_bytes():
    merge = Saving()
    merge.take("1", [Insert(f"p{i}", i, FAR) for i in range(40 * BLOCK)])
    whole = sum(len(part) for part in merge.save().written.values())
    merge.take("1", [Adjust("p5", 5, FAR, FAR + 1)])
    small = sum(len(part) for part in merge.save().written.values())
    assert 20 * small < whole


FAR = 100_000


def test_a_block_without_bags_is_deleted():
    merge = some_blocks()
    merge.take("2", [])
    merge.take("1", [Stable(10_000 + BLOCK)])
    saved = merge.save()
    assert saved.deleted == ("nodes/0", "payload/0")
    assert set(saved.written) == {"control", "settled/0"}
    for replica in "12":
        merge.take(replica, [Stable(FOREVER)])
    merge.save()
    merge.restore()
    assert (merge.live, merge.settled) == (0, 0)
    # Numbers that are used again begin their block anew.
    assert set(merge.store.parts) == {"control", "settled/0"}


def test_parts_of_different_saves_of_bags_are_refused_by_name():
    merge = some_blocks()
    old = dict(merge.store.parts)
    merge.take("1", [Adjust("p5", 5, 10_005, 10_006)])
    merge.save()
    new = merge.store.parts
    for name in ("control", "nodes/1", "payload/2"):
        with pytest.raises(StateError, match=f"no part '{name}'"):
            R4State.from_parts({k: v for k, v in new.items() if k != name}, SCHEMA)
    with pytest.raises(StateError, match="part 'nodes/0' of the state is of change 2, the"):
        R4State.from_parts(new | {"nodes/0": old["nodes/0"]}, SCHEMA)
    R4State.from_parts(old | {"nodes/7": b"left over"}, SCHEMA).check()
    whole = R4State.from_bytes(merge.state.to_bytes(), SCHEMA)
    assert len(whole.parts(since=merge.store.mark).written) == len(new)


def test_parts_of_another_case_are_refused_by_both_names():
    bags = some_blocks()
    with pytest.raises(
        StateError, match=r"'anabranch merge r4' version 2.*merge r3' version 2"
    ):
        R3State.from_parts(bags.store.parts, SCHEMA)
    saved = some_blocks(SavingAuto).store.parts
    with pytest.raises(
        StateError, match=r"'anabranch merge r3' version 3.*merge r4' version 2"
    ):
        R4State.from_parts(saved, SCHEMA)
    with pytest.raises(StateError, match="no part 'control'"):
        AutoState.from_parts({}, SCHEMA)


def test_a_merge_that_goes_on_as_r4_writes_its_nodes_anew_and_no_payload():
    merge = some_blocks(SavingAuto)
    assert merge.state.case is MergeCase.R3
    merge.take("2", [])
    merge.take("1", [Stable(10_000 + BLOCK)])
    merge.take("1", [Insert("twice", 12_000, FAR), Insert("twice", 12_000, FAR)])
    assert merge.state.case is MergeCase.R4
    saved = merge.save()
    # `twice` took the number of one that left: of block 0, which is there again.
    blocks = {"nodes/0", "nodes/1", "nodes/2"}
    assert set(saved.written) == {"control", *blocks, "payload/0", "settled/0"}
    merge.restore()
    assert merge.state.case is MergeCase.R4
    merge.take("2", [Insert("twice", 12_000, FAR), Insert("p5", 5, 10_005)])
    assert [reason.name for reason in merge.reasons[-2:]] == ["KNOWN", "SETTLED"]
    for replica in "12":
        merge.take(replica, [Stable(FOREVER)])
    expected = [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)]
    twice = [Insert("twice", 12_000, FAR)] * 2
    assert History.of(merge.output) == History.of([*expected, *twice])


def test_what_r3_emptied_is_deleted_when_the_merge_goes_on_as_r4():
    merge = some_blocks(SavingAuto)
    merge.take("1", [Stable(10_000 + 2 * BLOCK)])
    merge.take("1", parse("insert a 20000..20001; insert a 20000..20001"))
    assert merge.state.case is MergeCase.R4
    assert merge.save().deleted == ("nodes/0", "payload/0")
    assert set(merge.store.parts) == {"control", "nodes/1", "nodes/2", "payload/1", "payload/2"}
