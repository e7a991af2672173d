"""One event per key and input: what repeats a key is kept back, however the input is cut."""

from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from state_store import Store

from anabranch.batch.batch import FOREVER_UNITS, INSERT, STABLE, Batch
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError, ViolationError
from anabranch.model.element import Insert, Stable
from anabranch.model.properties import MergeCase
from anabranch.operators.by_key.keyed import KeyedOperator
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Bucket,
    Detach,
    Inputs,
    PassOver,
    Reason,
)
from anabranch.operators.contract import Route as By
from anabranch.operators.key import Key
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.reference.keyed import Keys
from anabranch.operators.route import Routing
from anabranch.operators.union import UnionOperator
from anabranch.testing.step_account import StepAccount

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"id": pa.string(), "price": pa.int64()}))
BY_ID = Key(("id",))


def keyed(key=BY_ID, policy=DEFAULT):
    return KeyedOperator(MergeOperator(SCHEMA, MergeCase.R3, policy), key)


def insert(id_, start, end, price=0):
    return INSERT, start, end, id_, price


def stable(time):
    return STABLE, time, 0, None, None


def element(row):
    kind, start, end, *payload = row
    return Insert(tuple(payload), start, end) if kind == INSERT else Stable(start)


def batch_of(rows, *, seq=None):
    kind, start, end, names, prices = zip(*rows, strict=True) if rows else ((),) * 5
    none = np.zeros(len(rows), np.int64)
    payload = pa.table({"id": names, "price": prices}, schema=SCHEMA.payload)
    times = np.array(start, np.int64), np.array(end, np.int64)
    numbers = None if seq is None else np.array(seq, np.int64)
    return Batch(SCHEMA, np.array(kind, np.int8), *times, none, payload, numbers)


def step(state, *arrivals, control=(), seq=None):
    """One step of (input, rows); the reasons by name, and the result."""
    came = tuple(Arrival(name, batch_of(rows, seq=seq)) for name, rows in arrivals)
    result, account = state.step(Inputs(came, control)), StepAccount()
    account.add(came, result)
    assert account.adds_up, account
    state.check()
    return [REASONS[code].name for codes in result.reasons for code in codes], result


times = st.integers(0, 12)
rows = st.one_of(
    st.builds(insert, st.sampled_from("ab"), times, times, st.integers(0, 1)),
    st.builds(stable, times | st.just(FOREVER_UNITS)),
)
keys = st.sampled_from([BY_ID, Key(("id",), True), Key(("id", "price")), Key((), True)])


def in_steps(data, arrived):
    """The rows in steps of (input, rows), cut at random."""
    cuts = data.draw(st.lists(st.integers(0, len(arrived)), max_size=4).map(sorted))
    for begin, end in pairwise([0, *cuts, len(arrived)]):
        some = arrived[begin:end]
        yield [(name, [row for _, row in mine]) for name, mine in groupby(some, lambda o: o[0])]


@given(
    st.data(), keys, st.lists(st.tuples(st.sampled_from(["east", "west"]), rows), max_size=30)
)
def test_a_second_event_of_a_key_is_kept_back_however_it_is_cut(data, key, arrived):
    """Also over restarts; and the merge behind makes of the rest what it makes alone."""
    operator, store = keyed(key), Store()
    state, alone = operator.empty(), operator.inner.empty()
    names_of = {"id": 0, "price": 1}
    places = [names_of[name] for name in key.columns]
    judge = Keys(lambda row: tuple(row[at] for at in places), with_start=key.with_start)
    for arrivals in in_steps(data, arrived):
        second = [
            [judge.repeats(name, element(row)) for row in mine] for name, mine in arrivals
        ]
        names, result = step(state, *arrivals)
        flat = [one for part in second for one in part]
        assert [name == "SECOND_OF_KEY" for name in names] == flat
        passed = [
            (name, [row for row, is_second in zip(mine, part, strict=True) if not is_second])
            for (name, mine), part in zip(arrivals, second, strict=True)
        ]
        others, expected = step(alone, *passed)
        assert [n for n, is_second in zip(names, flat, strict=True) if not is_second] == others
        assert "SECOND_INSERT" not in others
        assert result.output.payload == expected.output.payload
        assert result.output.start.tolist() == expected.output.start.tolist()
        store.save(state)
        if data.draw(st.booleans()):
            state = operator.from_parts(store.parts)
            state.check()


def test_a_second_event_is_dropped_and_counted_if_the_key_drops():
    state = keyed(Key(("id",), drops=True)).empty()
    names, result = step(state, ("east", [insert("a", 1, 5), insert("a", 2, 6, price=7)]))
    assert names == ["FIRST", "DUPLICATE"]
    assert Reason.DUPLICATE.bucket is Bucket.ABSORBED
    assert result.output.payload.to_pylist() == [{"id": "a", "price": 0}]


def test_what_another_input_has_is_no_duplicate():
    state = keyed().empty()
    names, _ = step(state, ("east", [insert("a", 1, 5)]), ("west", [insert("a", 1, 5)]))
    assert names == ["FIRST", "KNOWN"]


def test_a_key_is_free_again_when_its_event_is_final_and_then_forgotten():
    state = keyed().empty()
    early = [insert("a", 1, 5), insert("b", 1, 50), stable(6), insert("a", 7, 9)]
    assert step(state, ("east", early))[0][-1] == "FIRST"
    assert state.facts["keys"] == 2
    step(state, ("east", [stable(20)]))
    assert state.facts["keys"] == 1
    assert step(state, ("east", [insert("b", 30, 40)]))[0] == ["SECOND_OF_KEY"]


def test_an_input_that_catches_up_in_the_step_in_which_it_attaches_leaves_no_keys():
    """They were kept until the least frontier moved again."""
    state = keyed().empty()
    step(state, ("east", [stable(2)]))
    step(state, ("west", [insert("a", 0, 1), stable(2)]))
    assert state.facts["keys"] == 0


def test_a_rejected_row_does_not_take_the_key():
    state = keyed().empty()
    came = [
        stable(5),
        insert("a", 1, 9),
        insert("a", 7, 7),
        insert("a", 9, 8),
        insert("a", 6, 9),
    ]
    names, _ = step(state, ("east", came))
    assert names[1:] == ["BEHIND_STABLE", "NO_CHANGE", "BACKWARDS", "FIRST"]


def test_a_redelivery_is_no_duplicate_also_of_a_row_that_was_one():
    state = keyed().empty()
    came = [insert("a", 1, 9), insert("a", 2, 9)]
    assert step(state, ("east", came), seq=[1, 2])[0] == ["FIRST", "SECOND_OF_KEY"]
    assert step(state, ("east", came), seq=[1, 2])[0] == ["REDELIVERY", "REDELIVERY"]


def test_a_new_attachment_may_bring_its_events_again():
    state = keyed().empty()
    step(state, ("east", [insert("a", 1, 9)]), ("west", [insert("a", 1, 9)]))
    step(state, control=(Detach("east"),))
    assert state.facts["keys"] == 1
    step(state, control=(Attach("east", 2), Attach("west", 2)))
    assert state.facts["keys"] == 0
    came = (Arrival("east", batch_of([insert("a", 1, 9)]), attachment=2),)
    result = state.step(Inputs(came))
    assert REASONS[result.reasons[0][0]] is Reason.KNOWN


def test_an_input_that_is_passed_over_keeps_its_keys():
    state = keyed().empty()
    step(state, ("east", [insert("a", 1, 9)]))
    step(state, control=(PassOver("east"),))
    assert step(state, ("east", [insert("a", 2, 9)]))[0] == ["SECOND_OF_KEY"]


@pytest.mark.parametrize(("verdict", "gone"), [("ignore", ()), ("detach", ("east",))])
def test_a_policy_decides_about_who_repeats_a_key(verdict, gone):
    twice = [insert("a", 1, 9), insert("a", 2, 9)]
    policy = Policy.parse(f"violations={verdict}")
    _, result = step(keyed(policy=policy).empty(), ("east", twice), ("west", []))
    assert result.violators == gone


def test_the_policy_raise_names_the_row():
    twice = [insert("a", 1, 9), insert("a", 2, 9)]
    with pytest.raises(ViolationError, match=r"'east'.*has an event with this key already"):
        step(keyed(policy=Policy.parse("violations=raise")).empty(), ("east", twice))


def test_all_events_of_a_key_meet_in_one_lane():
    batch = batch_of([insert("a", start, start + 5, price=start) for start in range(50)])
    by_id, by_start = keyed(), keyed(Key((), with_start=True))
    assert by_id.route is By.KEY
    assert len(set(Routing.of(by_id).lanes_of(batch, 4).tolist())) == 1
    assert by_start.route is By.START
    assert len(set(Routing.of(by_start).lanes_of(batch, 4).tolist())) > 1


def test_final_events_are_those_of_the_operator_behind():
    for inner in (keyed().inner, UnionOperator(SCHEMA)):
        operator = KeyedOperator(inner, BY_ID)
        [last] = with_final((PipelineStep("first", operator),))
        came = [insert("a", 1, 5), insert("a", 1, 5), stable(FOREVER_UNITS)]
        _, result = step(last.operator.empty(), ("east", came))
        assert result.final.payload.to_pylist() == [{"id": "a", "price": 0}]


def test_a_state_of_another_key_is_refused():
    state = keyed().empty()
    step(state, ("east", [insert("a", 1, 5)]))
    with pytest.raises(StateError, match="the columns of a running key cannot change"):
        keyed(Key(("price",))).from_parts(state.parts().written)


def test_without_a_key_a_merge_counts_what_an_input_has_twice():
    state = MergeOperator(SCHEMA, MergeCase.R4).empty()
    twice = [insert("a", 1, 9), insert("a", 1, 9), insert("b", 1, 9)]
    _, result = step(state, ("east", twice), ("west", [insert("a", 1, 9)]))
    assert result.repeated == {"east": 1}
    _, result = step(state, ("east", [insert("b", 1, 7)]), ("west", [insert("a", 1, 9)]))
    assert result.repeated == {"east": 1, "west": 1}
    _, result = step(state, ("west", [insert("b", 1, 9)]))
    assert result.repeated == {}
