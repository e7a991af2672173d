"""The state of a merge: it survives its parts, is refused by name, and checks itself."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from live_events import live_events
from merge_driver import SCHEMA, Kernel, Reference, batch_of, step

from anabranch.batch.batch import FOREVER_UNITS, Batch
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.notation import parse
from anabranch.operators.contract import REASONS, Arrival
from anabranch.operators.merge import codec
from anabranch.operators.merge.state import MergeState
from anabranch.operators.route import EVERY_LANE, route
from anabranch.operators.state import pieces
from anabranch.operators.state.codec import write_tables
from anabranch.operators.state.events import ABSENT
from anabranch.operators.state.final_names import UNKNOWN, FinalNames


def some_state():
    kernel = Kernel()
    kernel.attach("late", guarantee=40)
    kernel.step(
        [("1", parse("insert a 1..9; insert b 2..3; stable 5")), ("2", parse("stable 1"))]
    )
    return kernel.state


def restored(state, schema=SCHEMA):
    return MergeState.from_parts(state.parts().written, schema)


def test_a_state_survives_its_parts():
    state = some_state()
    again = restored(state)
    again.check()
    assert again.parts().written == state.parts().written
    assert again.inputs == state.inputs
    assert (again.live, again.frontier, len(again.final_names)) == (1, 5, 1)
    assert [(r.name, r.joined, r.guarantee) for r in again.inputs] == [
        ("late", False, 40),
        ("1", True, None),
        ("2", True, None),
    ]


def test_times_come_back_however_far_they_are_from_each_other():
    """They are saved as distances, which wrap around."""
    far = 2**63 - 2
    kernel = Kernel()
    kernel.attach("silent")
    emitted = [
        Insert("a", -far, far),
        Insert("b", far - 1, math.inf),
        Insert("c", 1 - far, math.inf),
    ]
    kernel.take("1", emitted)
    kernel.take("2", [Insert("a", -far, far), Insert("d", -far, 1 - far)])
    state = kernel.state
    again = restored(state)
    again.check()
    was, now = live_events(state), live_events(again)
    same_events(was, now)
    assert ABSENT in was.ends


def same_events(was, now):
    for name in ("start", "high", "low", "output_end", "ends"):
        assert getattr(was, name).tolist() == getattr(now, name).tolist(), name
    assert was.payload == now.payload


def test_an_empty_state_survives_its_parts():
    restored(MergeState.empty(SCHEMA)).check()


def test_another_version_is_refused_by_both_names(monkeypatch):
    monkeypatch.setattr(codec, "KIND", replace(codec.KIND, version=7))
    data = some_state().parts().written
    monkeypatch.undo()
    with pytest.raises(StateError, match=r"'anabranch merge' version 7.*version 3;"):
        MergeState.from_parts(data, SCHEMA)


def test_foreign_bytes_are_refused():
    with pytest.raises(StateError, match="not a state of"):
        MergeState.from_parts({"control": b"something else"}, SCHEMA)
    table = write_tables(pa.table({"x": [1]}))
    with pytest.raises(StateError, match="'unknown' version unknown"):
        MergeState.from_parts({"control": table}, SCHEMA)
    saved = dict(some_state().parts().written)
    with pytest.raises(StateError, match="not a state of"):
        MergeState.from_parts(saved | {"control": saved["control"][:-400]}, SCHEMA)


@pytest.mark.parametrize(
    "other",
    [
        ElementSchema(TimeType.TIMESTAMP, SCHEMA.payload),
        ElementSchema(TimeType.BIGINT, pa.schema({"p": pa.int64()})),
    ],
)
def test_a_state_of_other_columns_is_refused(other):
    with pytest.raises(StateError, match="cannot change"):
        restored(some_state(), other)
    empty = Batch(
        other, *(np.empty(0, t) for t in ("i1", "i8", "i8", "i8")), other.payload.empty_table()
    )
    with pytest.raises(SchemaError, match="input 'x' has"):
        step(some_state(), [Arrival("x", empty)])


def test_a_replaced_attachment_is_refused_and_nothing_changes():
    kernel, reference = Kernel(), Reference()
    for merge in (kernel, reference):
        merge.attach("1", attachment=3)
    before = kernel.state.parts().written
    with pytest.raises(UsageError, match="attachment 2, but 3"):
        step(kernel.state, [Arrival("new", batch_of([])), Arrival("1", batch_of([]), None, 2)])
    with pytest.raises(UsageError, match="attachments 3 and 4 in one step"):
        step(kernel.state, [Arrival("1", batch_of([]), None, n) for n in (3, 4)])
    with pytest.raises(UsageError, match="number 3, but number 3"):
        reference.attach("1", attachment=3)
    assert kernel.state.parts().written == before


def test_detach_needs_a_name_that_is_there():
    with pytest.raises(
        UsageError, match=r"'x' cannot be detached, attached are \['late', '1', '2'\]"
    ):
        some_state().detach("x")
    Reference().detach("x")


def test_a_silent_replica_holds_what_is_settled_until_it_is_detached():
    for merge in (Kernel(), Reference()):
        merge.attach("silent")
        merge.take("1", parse("insert a 1..3; stable 9"))
        assert merge.settled == 1
        merge.detach("silent")
        assert merge.settled == 0


def test_a_seq_that_was_consumed_is_a_redelivery():
    state, reference = MergeState.empty(SCHEMA), Reference()
    elements = parse("insert a 1..3; insert a 1..3; stable 2; insert b 4..5; stable 9")
    seq = [10, 10, 11, 12, 7]
    first = step(state, [Arrival("1", batch_of(elements[:3], seq=seq[:3]))])
    state = restored(state)
    second = step(state, [Arrival("1", batch_of(elements[3:], seq=seq[3:]))])
    names = [REASONS[code].name for r in (first, second) for code in r.reasons[0]]
    assert names == ["FIRST", "REDELIVERY", "LEADS", "FIRST", "REDELIVERY"]
    outcomes = [reference.merge.push("1", e, seq=s) for e, s in zip(elements, seq, strict=True)]
    assert [outcome.reason.name for outcome in outcomes] == names


def test_seq_is_for_all_replicas_or_for_none():
    arrivals = [
        Arrival("1", batch_of([Stable(1)])),
        Arrival("2", batch_of([Stable(1)], seq=[1])),
    ]
    with pytest.raises(SchemaError, match=r"\['1'\] have no seq"):
        step(MergeState.empty(SCHEMA), arrivals)


def test_a_step_of_nothing():
    result = step(MergeState.empty(SCHEMA), [])
    assert (len(result.output), result.buckets, result.stable) == (0, (), None)


def test_payloads_without_columns():
    schema = ElementSchema(TimeType.BIGINT, pa.schema([]))
    state = MergeState.empty(schema)
    elements = [Insert((), 1, 5), Insert((), 2, 3), Adjust((), 1, 5, 4), Stable(3)]
    result = step(state, [Arrival("1", from_elements(elements, schema))])
    state = restored(state, schema)
    state.check()
    assert to_elements(result.output) == [Insert((), 1, 4), Insert((), 2, 3), Stable(3)]
    assert state.live == 2
    assert set(route(from_elements(elements, schema), 1)) == {0, EVERY_LANE}


@pytest.fixture
def colliding(monkeypatch):
    """Every payload has the same hash, so that only values distinguish them."""

    def hash_names(columns, count):
        return np.zeros((count, 2), np.uint64)

    monkeypatch.setattr(pieces, "hash_names", hash_names)


@pytest.mark.usefixtures("colliding")
def test_payloads_with_one_hash_are_distinguished():
    kernel, reference = Kernel(), Reference()
    text = (
        "insert a 1..3; insert b 1..9; insert c 1..9; insert b 1..4; stable 5; adjust c 1..9->7"
    )
    more = "adjust b 1..9->8; insert d 5..6; adjust c 1..7->6; insert e 5..7; adjust d 5..6->9"
    for some in (parse(text), parse(more), parse("insert f 5..6; stable forever")):
        kernel.take("1", some)
        reference.take("1", some)
        kernel.restart()
    assert [e.payload for e in kernel.output if isinstance(e, Insert)] == list("abcdef")
    assert [r.bucket.word for r in kernel.reasons].count("violation") == 1
    assert kernel.live == 0


def names_of(*names):
    return np.array(names, np.int64)


def test_settled_distinguishes_names_and_forgets_by_end():
    settled = FinalNames()
    settled.remember(names_of((1, 7, 0), (2, 7, 1), (3, 7, 2)), np.array([4, 6, 5]), 1)
    settled.check()
    hashes = np.array([[2, 7], [1, 7], [9, 7]], np.uint64)
    assert settled.ends(np.array([3, 3, 3]), hashes).tolist() == [5, UNKNOWN, UNKNOWN]
    settled.forget(5, 2)
    assert settled.rows(settled.first, settled.next)[:, 3].tolist() == [5, 6]
    settled.forget(FOREVER_UNITS, 3)
    assert len(settled) == 0
    assert repr(settled) == "FinalNames(0 names, the first is number 3)"
    settled.remember(names_of((5, 7, 0)), np.array([9]), 4)
    settled.check()
    assert settled.rows(3, 4).tolist() == [[5, 7, 0, 9]]


def test_a_batch_is_located_in_pieces(monkeypatch):
    elements = parse("insert a 1..9; insert b 2..9; adjust a 1..9->7; insert c 3..9; stable 4")
    whole = Kernel().take("1", elements)
    monkeypatch.setattr(pieces, "_STRIDE", 2)
    assert Kernel().take("1", elements) == whole


def test_payloads_are_located_where_they_lie(monkeypatch):
    """Chunks that are large enough are not joined with others; small ones are."""
    monkeypatch.setattr(pieces, "_STRIDE", 5)
    monkeypatch.setattr(pieces, "_ENOUGH", 3)

    def ranges(*sizes):
        chunks = [pa.array(range(size), pa.int64()) for size in sizes]
        table = pa.table({"x": pa.chunked_array(chunks, pa.int64())})
        return list(pieces._ranges(table, table.num_rows))

    assert ranges() == []
    assert ranges(2) == [(0, 2)]
    assert ranges(3, 3) == [(0, 3), (3, 6)]
    assert ranges(1, 1, 1, 1) == [(0, 3), (3, 4)]
    assert ranges(2, 4) == [(0, 2), (2, 6)]
    assert ranges(12, 1) == [(0, 5), (5, 10), (10, 13)]
    assert list(pieces._ranges(pa.table({}), 6)) == [(0, 5), (5, 6)]


def test_a_state_prints_what_it_holds():
    state = some_state()
    assert repr(state.nodes) == "Events(1 of 2 live, 2 payloads)"
    events = live_events(state)
    assert len(events) == 1
    assert events.output_end.tolist() == [9]
    assert events.ends[:, 1:].tolist() == [[9, ABSENT]]
    assert not events.in_conflict.any()
    assert state.work.elements == 4
    assert state.nbytes > 0


def test_payloads_are_kept_once_and_released():
    kernel = Kernel()
    kernel.take("1", [Insert(f"p{i}", i, 10_000) for i in range(3_000)])
    kernel.take("2", [Insert(f"p{i}", i, 10_000) for i in range(3_000)])
    assert kernel.state.nodes.stored == 3_000
    for replica in "12":
        kernel.take(replica, [Adjust(f"p{i}", i, 10_000, 4_000) for i in range(2_900)])
    kernel.take("1", [Stable(5_000)])
    assert kernel.live == 100
    assert kernel.state.nodes.stored == 100
    assert live_events(kernel.state).payload.column("p").to_pylist()[0] == "p2900"


def test_route_is_fixed_for_ever():
    elements = [
        Insert("a", 1, 5),
        Adjust("a", 1, 5, 6),
        Insert("a", 2, 5),
        Insert("b", -1, 5),
        Stable(3),
    ]
    lanes = route(batch_of(elements), 16).tolist()
    assert lanes[0] == lanes[1]
    assert lanes[4] == EVERY_LANE
    assert lanes == PINNED
    with pytest.raises(UsageError, match="0 lanes"):
        route(batch_of(elements), 0)


PINNED = [11, 11, 0, 13, EVERY_LANE]
