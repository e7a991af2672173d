"""Promises and broken chains, in any order of arrival (errata C18 to C25, D14, Table 5)."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from unary_laws import bags, cuts

from anabranch import testing
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import StateError
from anabranch.model import FOREVER, NEVER, Adjust, Insert, Stable, parse
from anabranch.model.chains import Promise, arrival_time, tiled, whole
from anabranch.model.history import History, replay
from anabranch.model.net_change import sync_time
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival, Bucket, Inputs, Reached, Reason
from anabranch.operators.report_final import ReportFinalState
from anabranch.operators.state.seq_set import SeqSet
from anabranch.operators.waiting.promise_book import PROMISES, PromiseBook, promises_schema
from anabranch.operators.waiting.promised import PromisedOperator
from anabranch.testing.strategies import presentations

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
WITH_SEQ = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]), has_seq=True)
ORIGIN = -3
NAMES = ("reference", "kernel", "lanes")


def step(state, elements=(), *control, promises=(), seq=None):
    """One step with elements, numbered or not, then promises."""
    arrivals = []
    if elements:
        batch = from_elements(elements, SCHEMA)
        arrivals.append(Arrival("input", batch if seq is None else numbered(batch, seq)))
    if promises:
        made = [Insert(one.count, one.start, one.end) for one in promises]
        arrivals.append(
            Arrival(PROMISES, from_elements(made, promises_schema(TimeType.BIGINT)))
        )
    return state.step(Inputs(tuple(arrivals), control))


def numbered(batch, seq):
    return replace(batch, schema=WITH_SEQ, seq=np.array(seq, np.int64))


@st.composite
def arrivals(draw):
    """The elements of a stream and true promises about them, in any order."""
    truth = draw(bags(MergeCase.R4))
    stream = draw(
        presentations(truth, case=MergeCase.R4, payloads=st.sampled_from("ab"), revisions=3)
    )
    data = [one for one in stream if not isinstance(one, Stable)]
    bounds = sorted(draw(st.sets(st.integers(ORIGIN + 1, 14), max_size=4)))
    tiles = list(pairwise([ORIGIN, *bounds, FOREVER]))
    times = Counter(arrival_time(one) for one in data)
    promises = [
        Insert(sum(n for t, n in times.items() if start <= t < end), start, end)
        for start, end in tiles
    ]
    every = [("input", one) for one in data] + [(PROMISES, one) for one in promises]
    return draw(st.permutations(every))


def split(arrived):
    """Elements, and promises as the model has them."""
    data = [one for name, one in arrived if name != PROMISES]
    made = [Promise(o.start, o.end, o.payload) for name, o in arrived if name == PROMISES]
    return data, made


def judge(engine, arrived):
    """The output is valid, final as far as promises go, and has what is whole."""
    data, promises = split(arrived)
    out = replay(engine.output)
    assert out.violations == ()
    known, broken = whole(data)
    reached = tiled(promises, map(arrival_time, data), origin=ORIGIN)
    assert out.frontier <= reached
    waiting = engine.account.get("input", {}).get("pending", 0)
    assert bool(waiting) >= (out.frontier < reached)
    if not waiting:
        assert out.frontier == reached
        assert not broken
    mine = [event for event in out.history if event.identity not in broken]
    assert History.from_events(mine) == known


@given(arrived=arrivals(), data=st.data())
def test_in_any_order_any_cut_any_restart(arrived, data):
    """All three engines, at every cut: the same history and frontier; at the end the truth."""
    ends = data.draw(cuts(len(arrived)))
    restarts = data.draw(st.lists(st.booleans(), min_size=len(ends), max_size=len(ends)))
    engines = [
        testing.engine(name, "promised", lanes=1, origin=ORIGIN, check_every=2)
        for name in (NAMES if len(arrived) % 3 == 0 else NAMES[:2])
    ]
    for (begin, end), again in zip(pairwise([0, *ends]), restarts, strict=True):
        for engine in engines:
            for name, element in arrived[begin:end]:
                engine.push(name, [element])
            engine.restart() if again else engine.cut()
            judge(engine, arrived[:end])
        seen = [replay(engine.output) for engine in engines]
        assert all(one.history == seen[0].history for one in seen)
        assert all(one.frontier == seen[0].frontier for one in seen)
    for engine in engines:
        assert replay(engine.output).frontier == FOREVER
        assert engine.counts["live"] == 0
        buckets = sum(map(Counter, engine.account.values()), Counter())
        assert (buckets["pending"], buckets["violation"], buckets["late"]) == (0, 0, 0)


@given(arrived=arrivals(), remember=st.sampled_from([None, 0, 2, 6]))
def test_the_kernel_emits_what_the_reference_emits(arrived, remember):
    """Element by element, for the same reasons; with forced stables the input without late."""
    options = {"origin": ORIGIN} | ({} if remember is None else {"remember": remember})
    engines = [testing.engine(name, "promised", **options) for name in NAMES[:2]]
    greatest = NEVER
    for name, element in arrived:
        made = []
        if name != PROMISES:
            greatest = max(greatest, element.start)
        for engine in engines:
            before = len(engine.output)
            engine.push(name, [element])
            engine.cut()
            if greatest != NEVER:
                engine.reach(greatest)
            made.append(engine.output[before:])
        assert made[0] == made[1]
        assert replay(engines[0].output).violations == ()
        assert engines[0].counts["live"] == engines[1].counts["live"]
    assert engines[0].reasons == engines[1].reasons
    taken = [
        one
        for (name, one), reason in zip(arrived, engines[0].reasons, strict=True)
        if name != PROMISES and Reason[reason].bucket is not Bucket.LATE
    ]
    assert not any(Reason[one].bucket is Bucket.VIOLATION for one in engines[0].reasons)
    assert whole(taken) == (engines[0].history, set())
    assert replay(engines[0].output).frontier == FOREVER, "late elements count (C24)"


@given(arrived=arrivals(), data=st.data(), remember=st.sampled_from([0, 2, 6]))
def test_forced_stables_at_the_end_of_any_step(arrived, data, remember):
    """As in lanes: valid, with what is not late, at every cut; saved between any two steps."""
    operator = PromisedOperator(SCHEMA, ORIGIN, remember=remember)
    state, output, greatest = operator.empty(), [], NEVER
    for begin, end in pairwise([0, *data.draw(cuts(len(arrived)))]):
        elements, promises = split(arrived[begin:end])
        greatest = max([greatest, *(one.start for one in elements)])
        control = [] if greatest == NEVER else [Reached(int(greatest))]
        output += to_elements(step(state, elements, *control, promises=promises).output)
        state.check()
        assert replay(output).violations == ()
        state = operator.from_parts(state.parts().written)
        state.check()
    assert state.facts["pending"] == 0


@given(arrived=arrivals(), data=st.data())
def test_elements_that_come_again_count_once_and_change_nothing(arrived, data):
    """Redelivery beside broken chains and promises: any element, any number of times."""
    elements, promises = split(arrived)
    numbers = list(range(len(elements)))
    extra = data.draw(st.lists(st.sampled_from(numbers), max_size=8)) if numbers else []
    order = data.draw(st.permutations([*numbers, *extra]))
    operator = PromisedOperator(SCHEMA, ORIGIN)
    state, output, repeated = operator.empty(), [], 0
    for begin, end in pairwise([0, *data.draw(cuts(len(order)))]):
        seq = order[begin:end]
        result = step(state, [elements[at] for at in seq], seq=seq)
        output += to_elements(result.output)
        codes = np.concatenate(result.reasons) if result.reasons else np.empty(0, np.int8)
        repeated += int((codes == Reason.REDELIVERY.code).sum())
        state = operator.from_parts(state.parts().written)
    output += to_elements(step(state, promises=promises).output)
    assert repeated == len(extra)
    assert replay(output).violations == ()
    assert replay(output).history == whole(elements)[0]
    assert replay(output).frontier == FOREVER


def test_table_5_of_the_paper():
    """Event by event: three adjusts wait, the insert leaves as [0, 4), all are counted."""
    state = PromisedOperator(SCHEMA, 0).empty()
    broken = parse("adjust a 0..10->8; adjust a 0..6->4; adjust a 0..8->6")
    for count, one in enumerate(broken, start=1):
        assert not len(step(state, [one]).output)
        assert state.facts["pending"] == count
    assert to_elements(step(state, parse("insert a 0..10")).output) == parse("insert a 0..4")
    assert not len(step(state, promises=[Promise(0, 8, 4)]).output), "8 itself is not in [0, 8)"
    assert state.facts["waits_for"] == {"start": 0, "end": 8, "count": 4, "arrived": 3}
    assert to_elements(step(state, parse("insert b 1..5")).output) == parse(
        "insert b 1..5; stable 8"
    )
    assert state.live == 0, "both events end before 8"


def test_the_count_of_the_paper_is_never_reached():
    """Erratum C25: with 5 the interval would have to contain 8."""
    state = PromisedOperator(SCHEMA, 0).empty()
    elements = parse("adjust a 0..10->8; adjust a 0..6->4; adjust a 0..8->6; insert a 0..10")
    step(state, [*elements, *parse("insert b 1..5")], promises=[Promise(0, 8, 5)])
    assert state.frontier == np.iinfo(np.int64).min
    assert state.facts["waits_for"]["arrived"] == 4


def test_what_overlaps_or_comes_behind_or_is_too_much_is_a_violation():
    state = PromisedOperator(SCHEMA, 0).empty()
    result = step(state, promises=[Promise(0, 5, 1), Promise(4, 9, 1), Promise(-2, 0, 0)])
    assert [Reason.NOT_PROMISED.code] * 2 == result.reasons[0].tolist()[1:]
    result = step(state, parse("insert a 1..3; insert b 2..3; insert c -1..3"))
    assert [Reason.FIRST.code, *[Reason.NOT_PROMISED.code] * 2] == result.reasons[0].tolist()
    assert to_elements(result.output) == parse("insert a 1..3; stable 5")
    result = step(state, parse("insert d 4..9"), promises=[Promise(5, 5, 0), Promise(5, 6, -1)])
    assert [code.tolist() for code in result.reasons] == [
        [Reason.NOT_PROMISED.code],
        [Reason.NOT_PROMISED.code] * 2,
    ]
    state.check()


def test_a_promise_that_comes_after_more_than_it_counts_is_reported():
    state = PromisedOperator(SCHEMA, 0).empty()
    step(state, parse("insert a 1..3; insert b 2..3"), promises=[Promise(0, 5, 1)])
    assert (state.facts["exceeded"], state.frontier) == (1, 5)


def test_a_hole_between_promises_is_named():
    state = PromisedOperator(SCHEMA, 0).empty()
    step(state, promises=[Promise(0, 5, 0), Promise(7, 9, 0)])
    assert (state.frontier, state.facts["hole"]) == (5, [5, 7])
    assert state.facts["waits_for"] is None
    step(state, promises=[Promise(5, 7, 0)])
    assert (state.frontier, state.facts["hole"]) == (9, None)


def test_elements_that_break_other_promises_are_counted_and_kept_apart():
    state = PromisedOperator(SCHEMA, 0).empty()
    elements = parse("insert a 3..3; adjust a 1..4->4; stable 9")
    elements += [Insert("a", 4, 2), Adjust("a", 2, 2, 6)]
    result = step(state, elements, promises=[Promise(0, 9, 4)])
    found = [list(Reason)[code].name for code in result.reasons[0]]
    assert found == ["NO_CHANGE", "NO_CHANGE", "FOLLOWS", "BACKWARDS", "NO_SUCH_EVENT"]
    assert state.frontier == 9


def test_a_returning_input_may_use_its_numbers_again():
    state = PromisedOperator(SCHEMA, 0).empty()
    batch = numbered(from_elements(parse("insert a 1..3"), SCHEMA), [7])
    for attachment, reason in ((1, "FIRST"), (1, "REDELIVERY"), (2, "FIRST")):
        result = state.step(Inputs((Arrival("input", batch, attachment=attachment),)))
        assert list(Reason)[result.reasons[0][0]].name == reason


def test_a_repair_looks_at_its_identity_only():
    """Operation counts are free of noise: other events, broken or not, cost nothing."""
    state = PromisedOperator(SCHEMA, 0).empty()
    step(state, [Insert(f"p{i}", i, i + 5_000) for i in range(1_000)])
    step(state, [Adjust(f"q{i}", i, i + 9, i + 4) for i in range(1_000)])
    first = step(state, [Adjust("r", 500, 900, 800), Adjust("r", 500, 950, 900)])
    repair = step(state, [Insert("r", 500, 950)])
    assert to_elements(repair.output) == [Insert("r", 500, 800)]
    assert (first.counts["looks"], repair.counts["looks"]) == (1, 2)
    assert first.counts["visits"] == repair.counts["visits"] == 0
    # A promise looks at what waits before its end, and at nothing else.
    assert step(state, promises=[Promise(0, 4, 4)]).counts["visits"] == 0
    assert step(state, promises=[Promise(4, 9, 10)]).counts["visits"] == 5
    assert state.frontier == 4, "five adjusts of times before 9 wait, the first of time 4"
    state.check()


def test_numbers_are_kept_as_ranges():
    seen = SeqSet()
    rng = np.random.default_rng(3)
    numbers = rng.permutation(10_000)
    for some in np.split(numbers, 20):
        assert seen.take(some).all()
        assert not seen.take(some[::-1]).any()
    assert seen.ranges.tolist() == [[0, 9_999]]


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6))
def test_a_number_is_new_once(lots):
    seen, known = SeqSet(), set()
    for some in lots:
        found = seen.take(np.array(some, np.int64)).tolist()
        expected = []
        for one in some:
            expected.append(one not in known)
            known.add(one)
        assert found == expected
    assert (np.diff(seen.ranges.reshape(-1)) >= 0).all()
    assert {n for a, b in seen.ranges.tolist() for n in range(a, b + 1)} == known


def test_a_book_that_is_saved_goes_on():
    book = PromiseBook(0)
    book.promise(np.array([5, 0]), np.array([9, 5]), np.array([2, 1]))
    book.count(np.array([6, 12, 12]))
    other = PromiseBook(0)
    other.read(*book.tables())
    for one in (book, other):
        one.count(np.array([1, 7]))
        one.advance()
        one.check()
        assert (one.done, one.early.tolist()) == (9, [[12, 2]])


def test_a_state_of_another_operator_is_refused():
    with pytest.raises(StateError, match="promises"):
        PromisedOperator(SCHEMA, 0).from_parts(ReportFinalState(SCHEMA).parts().written)


def test_a_chain_that_closes_on_itself_waits_for_nothing():
    """Two adjusts that come to nothing together: no count of ends is negative."""
    for name in ("reference", "kernel"):
        with testing.engine(name, "promised", origin=0) as engine:
            engine.push("input", parse("adjust a 1..5->7; adjust a 1..7->5"))
            engine.cut()
            assert engine.account["input"]["pending"] == 0
            engine.push("input", parse("insert a 1..5"))
            assert engine.cut() == (Insert("a", 1, 5),)


def test_sync_times_are_those_of_elements():
    assert arrival_time(Adjust("a", 1, 9, 1)) == sync_time(Adjust("a", 1, 9, 1)) == 1
