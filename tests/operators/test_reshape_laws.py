"""Payload columns that come and go at any cut, as a run has them after an upgrade.

A merge with columns (p, q) that drops q is, from then on, a merge of (p): as if q had never
been there, wherever identities stay apart.  A column that is added is null in what is
remembered: an event with null in it is the same event.
"""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_laws_on_engines import cuts

from anabranch.batch.hashing import hash_rows
from anabranch.batch.index import HIGH, LOW
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.report_final import ReportFinalOperator
from anabranch.operators.state.reshape import Reshape
from anabranch.operators.union import UnionOperator
from anabranch.testing import engine, interleavings, replicas

ONE = pa.schema({"p": pa.string()})
TWO = pa.schema({"p": pa.string(), "q": pa.int64()})
KINDS = [pa.int64(), pa.string(), pa.list_(pa.string()), pa.struct({"a": pa.int8()})]
CASES = {"r1": MergeCase.R1, "r2": MergeCase.R2, "r3": MergeCase.R3, "r4": MergeCase.R4}


def wide(element, q=None):
    """The element with a second column."""
    if isinstance(element, Stable):
        return element
    if isinstance(element, Insert):
        return Insert((element.payload, q), element.start, element.end)
    return Adjust((element.payload, q), element.start, element.old_end, element.end)


def operator_of(case, payload, policy):
    schema = ElementSchema(TimeType.BIGINT, payload)
    return MergeOperator(schema, CASES[case], Policy.parse(policy))


@pytest.mark.parametrize("case", ["r1", "r2", "r3", "r4"])
@given(st.data())
def test_an_added_column_is_null_in_what_is_remembered(case, data):
    """Nothing is late or doubled that would not be without the change.

    Lanes take the elements of a step input by input, by name (`in_turn`).  Which input brought
    an event, and whether a copy that is adjusted is absorbed or corrected, depends on that
    order; the history and the number of counted elements do not (`mixed`).
    """
    policies = ["default", "stable_lag=2"] + ["inserts=quorum(0.5)"] * (case == "r3")
    policy = data.draw(st.sampled_from(policies))
    streams = data.draw(replicas(case=CASES[case], min_inputs=2))
    arrived = data.draw(interleavings(streams))
    at = data.draw(st.integers(0, len(arrived)))
    lanes = st.integers(1, 3)
    with (
        engine("lanes", case=case, policy=policy, payload=ONE, lanes=data.draw(lanes)) as merge,
        engine("kernel", case=case, policy=policy, payload=TWO) as mixed,
        engine("kernel", case=case, policy=policy, payload=TWO) as in_turn,
    ):
        before, used = [], {merge._backend.lanes}
        for number in range(len(streams)):
            for one in (merge, mixed, in_turn):
                one.attach(f"r{number}")
        for start, stop in cuts(data, len(arrived)):
            if merge._backend.operator.schema.payload == ONE and start >= at:
                before = [wide(one) for one in merge.output]
                operator = operator_of(case, TWO, policy)
                merge._backend.redistribute(data.draw(lanes), operator)
                used.add(merge._backend.lanes)
                merge._backend.output.clear()
            take_step(arrived[start:stop], merge, mixed, in_turn)
        if merge._backend.operator.schema.payload == ONE:
            return
        output = [*before, *merge.output]
        assert replay(output).violations == ()
        assert History.of(output) == mixed.history == in_turn.history
        if case in ("r3", "r4"):
            assert total(merge) == total(in_turn)
            assert total(merge).total() == total(mixed).total()
            if used == {1}:
                assert merge.account == in_turn.account


def take_step(arrived, merge, mixed, in_turn):
    """One step of each: as it arrived, and input by input."""
    is_wide = merge._backend.operator.schema.payload == TWO
    for number, element in arrived:
        merge.push(f"r{number}", [wide(element) if is_wide else element])
        mixed.push(f"r{number}", [wide(element)])
    for number in sorted({number for number, _ in arrived}):
        in_turn.push(f"r{number}", [wide(one) for by, one in arrived if by == number])
    for one in (merge, mixed, in_turn):
        one.cut()


def total(merge):
    """How many elements are in each bucket, of all inputs together."""
    return +sum(map(Counter, merge.account.values()), Counter())


@given(st.data())
def test_names_of_final_events_go_on_with_any_type(data):
    """Their hashes are those of the events with null in the new columns."""
    texts = data.draw(st.lists(st.text(max_size=3), max_size=5))
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    then = pa.schema([*ONE, *(pa.field(f"c{i}", kind) for i, kind in enumerate(kinds))])
    reshape = Reshape(ONE, then)
    table = pa.table({"p": pa.array(texts, pa.string())})
    rows = np.zeros((len(texts), 4), np.int64)
    rows[:, [LOW, HIGH]] = hash_rows(table, len(texts)).view(np.int64)
    wanted = hash_rows(reshape.payload(table, len(texts)), len(texts)).view(np.int64)
    assert (reshape.names(rows)[:, [LOW, HIGH]] == wanted).all()
    assert len(Reshape(then, ONE).names(rows)) == 0


@pytest.mark.parametrize("case", ["r3", "r4"])
@given(st.data())
def test_without_a_dropped_column_the_rest_goes_on(case, data):
    """`q` follows from the rest of the payload here, so that identities stay apart."""
    streams = data.draw(replicas(case=CASES[case], min_inputs=2))
    arrived = data.draw(interleavings(streams))
    at, lanes = data.draw(st.integers(0, len(arrived))), st.integers(1, 3)
    with engine("lanes", case=case, payload=TWO, lanes=data.draw(lanes)) as merge:
        for number in range(len(streams)):
            merge.attach(f"r{number}")
        for number, element in arrived[:at]:
            q = 0 if isinstance(element, Stable) else ord(str(element.payload)[0])
            merge.push(f"r{number}", [wide(element, q)])
        merge.cut()
        before = [narrow(one) for one in merge.output]
        merge._backend.redistribute(data.draw(lanes), operator_of(case, ONE, "default"))
        merge._backend.output.clear()
        for number, element in arrived[at:]:
            merge.push(f"r{number}", [element])
            merge.cut()
        output = [*before, *merge.output]
        assert replay(output).violations == ()
        assert History.of(output) == History.of(streams[0])
        assert merge.counts["live"] == 0


def narrow(element):
    """The element without its second column."""
    if isinstance(element, Stable):
        return element
    if isinstance(element, Insert):
        return Insert(element.payload[0], element.start, element.end)
    return Adjust(element.payload[0], element.start, element.old_end, element.end)


TWINS = [Insert(("a", 1), 5, 9), Insert(("a", 2), 5, 8), Insert(("b", 1), 5, 9)]


@pytest.mark.parametrize("lanes", [1, 3])
def test_events_that_become_equal_are_refused_under_r3(lanes):
    with engine("lanes", case="r3", payload=TWO, lanes=lanes) as merge:
        merge.push("east", TWINS)
        merge.cut()
        with pytest.raises(UsageError, match=r"without the column 'q' events .* become equal"):
            merge._backend.redistribute(2, operator_of("r3", ONE, "default"))


@pytest.mark.parametrize("lanes", [1, 3])
def test_events_that_become_equal_are_a_bag_under_r4(lanes):
    """One of them is adjusted later, one was removed by a replica."""
    with engine("lanes", case="r4", payload=TWO, lanes=lanes) as merge:
        merge.push("east", [*TWINS, Insert(("a", 3), 5, 7)])
        merge.push("west", [*TWINS, Adjust(("a", 2), 5, 8, 5)])
        merge.cut()
        merge._backend.redistribute(2, operator_of("r4", ONE, "default"))
        merge._backend.output.clear()
        assert sum(len(store) for store in merge._backend.stores)
        merge.push("west", [Insert("a", 5, 8), Insert("a", 5, 7)])
        merge.cut()
        assert merge.output == ()
        merge.push("east", [Adjust("a", 5, 8, 10)])
        merge.push("east", [Stable(20)])
        merge.cut()
        known = [Insert("a", 5, 9), Insert("a", 5, 8), Insert("a", 5, 7), Insert("b", 5, 9)]
        found = History.of([*known, *merge.output])
        assert sorted((e.payload, e.end) for e in found) == [
            ("a", 7),
            ("a", 9),
            ("a", 10),
            ("b", 9),
        ]


@pytest.mark.parametrize("make", [UnionOperator, ReportFinalOperator])
def test_groups_that_become_equal_are_one(make):
    before, then = (ElementSchema(TimeType.BIGINT, one) for one in (TWO, ONE))
    name = "union" if make is UnionOperator else "final"
    with engine("lanes", name, payload=TWO, lanes=2) as one:
        one.push("east", [*TWINS, Stable(2)])
        one.cut()
        assert one._backend.operator.schema == before
        one._backend.redistribute(3, make(then))
        one._backend.output.clear()
        one.push("east", [Adjust("a", 5, 8, 10), Stable(20)])
        one.cut()
        found = {"union": [("a", 9), ("a", 10), ("b", 9)]}.get(name)
        if found is None:
            assert sorted((e.payload, e.end) for e in one.output) == [
                ("a", 9),
                ("a", 10),
                ("b", 9),
            ]
        else:
            known = [Insert("a", 5, 9), Insert("a", 5, 8), Insert("b", 5, 9)]
            history = History.of([*known, *one.output])
            assert sorted((e.payload, e.end) for e in history) == found
