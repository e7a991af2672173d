"""The compiled merge: with one element per step it is the reference, in parts it is itself."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, Kernel, Reference, cuts, runs
from merge_r4_driver import KernelR4, conflicting_r4

from anabranch.errors import StateError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.state.blocks import BLOCK
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas

GUARANTEES = st.sampled_from([None, None, 0, 3, FOREVER])


@given(st.data())
def test_with_one_element_per_step_the_output_is_the_reference_s(data):
    arrived = data.draw(st.one_of(conflicting_arrivals(), replicas().flatmap(interleavings)))
    policy = Policy(
        stable_lag=data.draw(st.sampled_from([0, 0, 1, 4])),
        shrink_only=data.draw(st.booleans()),
    )
    kernel, reference = Kernel(policy), Reference(MergeR3(policy=policy))
    for number in range(1 + max((number for number, _ in arrived), default=0)):
        guarantee = data.draw(GUARANTEES)
        kernel.attach(f"r{number}", guarantee)
        reference.attach(f"r{number}", guarantee)
    for number, element in arrived:
        for merge in (kernel, reference):
            merge.take(f"r{number}", [element])
        assert replay(kernel.output) == replay(reference.output)
        assert kernel.reasons == reference.reasons
        assert (kernel.live, kernel.conflicts) == (reference.live, reference.conflicts)
        assert kernel.settled == len(reference.merge.settled)
        match data.draw(st.sampled_from(["restart", "return", "go on", "go on"])):
            case "restart":
                kernel.restart()
            case "return":
                attachment = reference.merge.replicas["r0"].key[1] + 1
                for merge in (kernel, reference):
                    merge.detach("r0")
                    merge.attach("r0", attachment=attachment)
            case _:
                pass


@pytest.mark.parametrize("keyed", [True, False], ids=["r3", "r4"])
@given(st.data())
def test_saved_in_parts_and_restored_it_behaves_the_same(keyed, data):
    """Steps, saves, crashes back to the last save, arrivals and departures, in any order."""
    arrived = data.draw(conflicting_arrivals() if keyed else conflicting_r4)
    policy = Policy(shrink_only=data.draw(st.booleans()))
    kernel, other = Kernel(policy, keyed), Kernel(policy, keyed)
    for number in range(3):
        guarantee = data.draw(GUARANTEES)
        for merge in (kernel, other):
            merge.attach(f"r{number}", guarantee)
    for start, stop in pairwise([0, *data.draw(cuts(len(arrived)))]):
        match data.draw(st.sampled_from(["save", "restore", "return", "go on"])):
            case "save":
                kernel.save()
            case "restore":
                # What was not saved is lost: save first, or the two would differ.
                kernel.save()
                kernel.restore()
            case "return":
                for merge in (kernel, other):
                    number = merge.state.members.attachment[merge.state.members.find("r1")]
                    merge.detach("r1")
                    merge.attach("r1", attachment=int(number) + 1)
            case _:
                pass
        results = [merge.step(runs(arrived[start:stop])) for merge in (kernel, other)]
        assert kernel.output == other.output
        assert kernel.reasons == other.reasons
        # What a stable is due at is visited in no order.
        assert sorted(kernel.missing) == sorted(other.missing)
        assert results[0].conflicts == results[1].conflicts
        assert kernel.state.inputs == other.state.inputs


def some_blocks() -> Kernel:
    """Events in three blocks, saved."""
    kernel = Kernel()
    kernel.take("1", [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)])
    kernel.save()
    return kernel


def test_a_save_writes_only_what_changed():
    kernel = some_blocks()
    parts = {f"{kind}/{k}" for kind in ("nodes", "payload") for k in range(3)}
    assert set(kernel.saved) == {"control", *parts}
    kernel.take("1", [Adjust("p5", 5, 10_005, 10_006)])
    saved = kernel.state.parts(since=kernel.saved_at)
    assert set(saved.written) == {"control", "nodes/0"}
    kernel.take("2", [Insert("p2000", 2_000, 12_000), Insert("new", 4_000, 5_000)])
    saved = kernel.state.parts(since=saved.mark)
    assert set(saved.written) == {"control", "nodes/1", "nodes/3", "payload/3"}
    assert set(kernel.state.parts(since=saved.mark).written) == {"control"}
    assert saved.deleted == ()


def test_a_block_without_events_and_names_that_are_forgotten_are_deleted():
    kernel = some_blocks()
    kernel.take("2", [])
    kernel.take("1", [Stable(10_000 + BLOCK)])
    saved = kernel.state.parts(since=kernel.saved_at)
    assert saved.deleted == ("nodes/0", "payload/0")
    assert set(saved.written) == {"control", "names/0"}
    kernel.save()
    kernel.take("1", [Stable(FOREVER)])
    kernel.take("2", [Stable(FOREVER)])
    kernel.save()
    # The last block of names is kept until it is full.
    assert set(kernel.saved) == {"control", "names/0"}
    kernel.restore()
    assert (kernel.live, kernel.settled) == (0, 0)


def test_names_go_on_from_block_to_block():
    kernel = Kernel()
    kernel.take("2", [])
    for at in range(3):
        kernel.take(
            "1", [Insert(f"p{i}", i, i + 1) for i in range(at * 3_000, at * 3_000 + 3_000)]
        )
        kernel.take("1", [Stable(at * 3_000 + 3_000)])
        kernel.save()
        kernel.restore()
    kernel.take("2", [Stable(5_000)])
    kernel.save()
    assert {name for name in kernel.saved if "names" in name} == {"names/1", "names/2"}
    kernel.restore()
    assert kernel.settled == 8_999 - 4_999
    kernel.take("2", [Insert("p8000", 8_000, 8_001), Insert("q", 8_000, 8_001)])
    assert [reason.name for reason in kernel.reasons[-2:]] == ["SETTLED", "LATE"]


def test_parts_of_different_saves_are_refused_by_name():
    kernel = some_blocks()
    old = dict(kernel.saved)
    kernel.take("1", [Adjust("p5", 5, 10_005, 10_006)])
    kernel.save()
    for name in ("control", "nodes/1", "payload/2"):
        with pytest.raises(StateError, match=f"no part '{name}'"):
            MergeState.from_parts({k: v for k, v in kernel.saved.items() if k != name}, SCHEMA)
    with pytest.raises(StateError, match="part 'nodes/0' of the state is of change 1, the"):
        MergeState.from_parts(kernel.saved | {"nodes/0": old["nodes/0"]}, SCHEMA)
    MergeState.from_parts(old | {"nodes/7": b"left over"}, SCHEMA).check()


def test_a_replica_that_missed_what_was_promised_is_in_conflict_once():
    kernel, reference = Kernel(), Reference()
    for merge in (kernel, reference):
        merge.attach("1")
        merge.attach("2")
        merge.take("1", parse("insert a 1..90; insert b 2..90; insert c 3..90; stable 5"))
        merge.take("2", parse("insert b 2..90; stable 6"))
        assert merge.conflicts == 2
        merge.take("1", parse("stable 7"))
        merge.take("2", parse("stable 8"))
        merge.detach("2")
        merge.attach("2", attachment=2)
        merge.take("2", parse("stable 9"))
        assert merge.conflicts == 3
        assert merge.live == 3


def test_an_element_that_changes_nothing_leaves_its_block_as_it_was():
    for merge in (Kernel(), KernelR4()):
        merge.take("1", [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)])
        merge.save()
        merge.take("2", [Adjust("q", 4_000, 4_001, 4_002), Insert("q", 4_000, 4_000)])
        assert set(merge.save().written) == {"control"}
        # The frontier passes starts, and nothing is corrected.
        merge.take("1", [Insert("new", 4_000, 5_000), Stable(3_000)])
        assert set(merge.save().written) == {"control", "nodes/3", "payload/3"}


def test_a_small_step_on_many_events_writes_few_bytes():
    merge = KernelR4()
    merge.take("1", [Insert(f"p{i}", i, FAR) for i in range(40 * BLOCK)])
    whole = sum(len(part) for part in merge.save().written.values())
    merge.take("1", [Adjust("p5", 5, FAR, FAR + 1)])
    small = sum(len(part) for part in merge.save().written.values())
    assert 20 * small < whole


FAR = 100_000


def test_a_second_event_of_an_identity_writes_its_block_and_no_other():
    merge = KernelR4()
    merge.take("1", [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)])
    merge.save()
    merge.take("2", [])
    merge.take("1", [Insert("p2000", 2_000, FAR), Stable(1_500)])
    assert set(merge.save().written) == {"control", "nodes/1"}
    merge.restore()
    merge.take("2", [Insert("p2000", 2_000, FAR), Insert("p2000", 2_000, FAR)])
    assert [reason.name for reason in merge.reasons[-2:]] == ["KNOWN", "KNOWN"]
    for replica in "12":
        merge.take(replica, [Stable(FOREVER)])
    events = [Insert(f"p{i}", i, i + 10_000) for i in range(3 * BLOCK)]
    assert History.of(merge.output) == History.of([*events, Insert("p2000", 2_000, FAR)])
