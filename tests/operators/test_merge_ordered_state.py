"""The state of the merges R0, R1 and R2: survives its parts, is refused by name, is bounded."""

import numpy as np
import pyarrow as pa
import pytest
from merge_driver import SCHEMA, batch_of
from ordered_driver import Kernel, Reference

from anabranch.batch.batch import Batch
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Insert, Stable
from anabranch.model.notation import parse
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import REASONS, Arrival, Reason
from anabranch.operators.merge import ordered_codec
from anabranch.operators.merge.ordered_group import Bag
from anabranch.operators.merge.ordered_state import CASES, MAX_CHUNKS, OrderedState
from anabranch.operators.state.codec import write_tables


@pytest.fixture(params=CASES, ids=lambda case: case.value)
def case(request):
    return request.param


def some_merge(case):
    """Someone is joining, someone left while joining, and two are at the current start."""
    kernel = Kernel(case)
    kernel.attach("late", guarantee=40)
    kernel.attach("gone", guarantee=50)
    text = "insert a 1..9; insert b 2..3; stable 2"
    kernel.step([("1", parse(text)), ("2", parse("insert b 2..3; stable 1"))])
    kernel.step(
        [("late", parse("insert x 5..6; insert y 7..8")), ("gone", parse("insert z 8..9"))]
    )
    kernel.detach("gone")
    return kernel


def finish(kernel):
    kernel.step([("2", parse("insert b 2..3; insert x 5..6")), ("1", parse("stable forever"))])
    return kernel.output, kernel.reasons


def test_a_state_survives_its_parts_and_goes_on_the_same(case):
    kernel, other = some_merge(case), some_merge(case)
    other.restart()
    assert other.state.inputs == kernel.state.inputs
    assert [(r.name, r.joined, r.guarantee) for r in other.state.inputs] == [
        ("late", False, 40),
        ("1", True, None),
        ("2", True, None),
    ]
    assert other.reasons[-1] is Reason.ABANDONED
    assert finish(other) == finish(kernel)


def test_an_empty_state_survives_its_parts(case):
    data = OrderedState.empty(case, SCHEMA).parts().written
    OrderedState.from_parts(data, case, SCHEMA).check()


def test_only_these_three_cases():
    with pytest.raises(UsageError, match="case R3 does not run here"):
        OrderedState.empty(MergeCase.R3, SCHEMA)


def test_another_version_is_refused_by_both_names(case, monkeypatch):
    monkeypatch.setattr(ordered_codec, "VERSION", 7)
    data = some_merge(case).state.parts().written
    monkeypatch.undo()
    kind = f"'anabranch merge {case.value}'"
    with pytest.raises(StateError, match=f"{kind} version 7.*{kind} version 3;"):
        OrderedState.from_parts(data, case, SCHEMA)


def test_another_case_is_refused():
    data = some_merge(MergeCase.R1).state.parts().written
    with pytest.raises(
        StateError, match=r"merge r1' version 3, this program reads .*merge r2'"
    ):
        OrderedState.from_parts(data, MergeCase.R2, SCHEMA)


def test_foreign_bytes_are_refused(case):
    with pytest.raises(StateError, match="not a state of"):
        OrderedState.from_parts({"control": b"something else"}, case, SCHEMA)
    table = write_tables(pa.table({"x": [1]}))
    with pytest.raises(StateError, match="'unknown' version unknown"):
        OrderedState.from_parts({"control": table}, case, SCHEMA)
    cut = some_merge(case).state.parts().written["control"][:-400]
    with pytest.raises(StateError, match="not a state of"):
        OrderedState.from_parts({"control": cut}, case, SCHEMA)


@pytest.mark.parametrize(
    "other",
    [
        ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload),
        ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.int64()})),
    ],
)
def test_a_state_of_other_columns_is_refused(case, other):
    with pytest.raises(StateError, match="cannot change"):
        OrderedState.from_parts(some_merge(case).state.parts().written, case, other)
    empty = Batch(
        other, *(np.empty(0, t) for t in ("i1", "i8", "i8", "i8")), other.payload.empty_table()
    )
    with pytest.raises(SchemaError, match="input 'x' has"):
        some_merge(case).state.step([Arrival("x", empty)])


def test_what_cannot_be_meant_is_refused_and_nothing_changes(case):
    kernel, reference = some_merge(case), Reference(case)
    kernel.attach("1", attachment=3)
    reference.attach("1", attachment=3)
    before = kernel.state.parts().written
    with pytest.raises(UsageError, match="attachment 2, but 3"):
        kernel.state.step([Arrival("new", batch_of([])), Arrival("1", batch_of([]), None, 2)])
    with pytest.raises(UsageError, match="attachment 2, but 3"):
        kernel.state.add_replica("1", 2)
    with pytest.raises(UsageError, match=r"'x' cannot be detached, attached are \['late', "):
        kernel.state.remove_replica("x")
    with pytest.raises(UsageError, match="'x' cannot be promoted"):
        kernel.state.promote("x")
    with pytest.raises(UsageError, match="number 3, but number 3"):
        reference.attach("1", attachment=3)
    assert kernel.state.parts().written == before


def test_a_seq_that_was_consumed_is_a_redelivery(case):
    state, reference = OrderedState.empty(case, SCHEMA), Reference(case)
    state.step([Arrival("held", batch_of([Insert("h", 9, 10)], seq=[1]), 90)])
    elements = parse("insert a 1..3; insert a 1..3; stable 2; insert b 4..5; stable 9")
    seq = [10, 10, 11, 12, 7]
    first = state.step([Arrival("1", batch_of(elements[:3], seq=seq[:3]))])
    state = OrderedState.from_parts(state.parts().written, case, SCHEMA)
    second = state.step([Arrival("1", batch_of(elements[3:], seq=seq[3:]))])
    names = [REASONS[code].name for r in (first, second) for code in r.reasons[0]]
    assert names == ["FIRST", "REDELIVERY", "LEADS", "FIRST", "REDELIVERY"]
    outcomes = [reference.merge.push("1", e, seq=s) for e, s in zip(elements, seq, strict=True)]
    assert [outcome.reason.name for outcome in outcomes] == names


def test_a_step_of_nothing(case):
    state = OrderedState.empty(case, SCHEMA)
    result = state.step([])
    assert (len(result.output), result.buckets, result.stable) == (0, (), None)
    result = state.step([Arrival("1", batch_of([]), 5)])
    assert (len(result.output), [len(b) for b in result.buckets]) == (0, [0])
    assert [(r.name, r.joined, r.guarantee) for r in state.inputs] == [("1", False, 5)]


def test_payloads_without_columns(case):
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state = OrderedState.empty(case, schema)
    state.add_replica("2", guarantee=4)
    elements = [Insert((), 1, 5), Stable(1), Insert((), 2, 3), Stable(2)]
    later = [Insert((), 3, 4), Insert((), 4, 5)]
    arrivals = [
        Arrival("1", from_elements(elements, schema)),
        Arrival("2", from_elements(later, schema)),
    ]
    result = state.step(arrivals)
    assert to_elements(result.output) == [elements[0], elements[2], Stable(2)]
    state = OrderedState.from_parts(state.parts().written, case, schema)
    state.check()
    same = [Arrival("3", from_elements([Insert((), 2, 3)], schema))]
    assert [REASONS[code].name for code in state.step(same).reasons[0]] == ["KNOWN"]
    result = state.step([Arrival("1", from_elements([Stable(4)], schema))])
    assert to_elements(result.output) == [Insert((), 4, 5), Stable(4)]
    state.check()


@pytest.mark.parametrize("keyed", [True, False])
def test_payloads_with_one_hash_are_distinguished(keyed):
    case = MergeCase.R2 if keyed else MergeCase.R1
    kernel, reference = Kernel(case, each=True), Reference(case)

    def one_hash(table):
        return np.zeros(table.num_rows, np.uint64), np.zeros(table.num_rows, np.uint64)

    kernel.state.group = Bag(SCHEMA.payload, keyed=keyed, hash_payload=one_hash)
    for name, text in [
        ("1", "insert a 1..3; insert b 1..3; insert c 1..3"),
        ("2", "insert c 1..3; insert d 1..3; insert b 1..3"),
        ("1", "insert d 1..3; insert a 2..3; insert c 2..3"),
        ("2", "insert a 1..3; insert b 2..3; insert a 2..3"),
    ]:
        kernel.take(name, parse(text))
        reference.take(name, parse(text))
    assert kernel.output == reference.output
    assert kernel.reasons == reference.reasons


def test_events_that_were_never_emitted_are_released():
    """At a start that is final others may be asked for; they must not pile up."""
    kernel = Kernel(MergeCase.R1)
    kernel.take("1", parse("insert a 1..2; insert b 1..2; stable 3"))
    kernel.take("2", [Insert(f"x{i}", 1, 9) for i in range(100)])
    assert repr(kernel.state.group).startswith("Bag(2 events, ")
    kernel.take("3", parse("insert b 1..2; insert x1 1..9"))
    assert [reason.name for reason in kernel.reasons[-2:]] == ["KNOWN", "LATE"]


def test_what_is_held_is_kept_once_and_released(case):
    kernel = Kernel(case)
    kernel.attach("1")
    kernel.attach("2", guarantee=1_000)
    for i in range(MAX_CHUNKS + 8):
        kernel.take("2", [Insert(f"p{i}", i, 10_000)])
    payload = kernel.state.held.payload
    assert payload.num_rows == MAX_CHUNKS + 8
    assert payload.column(0).num_chunks <= MAX_CHUNKS + 1
    kernel.take("1", [Stable(30)])
    assert kernel.state.held.payload.num_rows == len(kernel.state.held) == MAX_CHUNKS - 22
    kernel.take("1", [Stable(1_000)])
    assert len(kernel.state.held) == kernel.account.pending == 0


def test_a_replica_between_others_leaves():
    """What belongs to the replicas behind it moves up with them."""
    kernel = Kernel(MergeCase.R1)
    for name in ("1", "2", "3"):
        kernel.attach(name, guarantee=5 if name != "1" else None)
    kernel.take("2", parse("insert a 7..8"))
    kernel.take("3", parse("insert b 7..8; insert b 7..8"))
    kernel.detach("2")
    kernel.take("1", parse("insert b 7..8; stable 5"))
    assert kernel.output == parse("insert b 7..8; insert b 7..8; stable 5")
    assert [r.name for r in kernel.reasons] == ["ABANDONED", "KNOWN", "FIRST", "FIRST", "LEADS"]
