"""What operators do to properties: the examples of LMerge IV-G, and rules against models."""

from dataclasses import replace

import operator_models as models
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.errors import UsageError
from anabranch.model.element import Insert, Stable
from anabranch.model.history import History, replays
from anabranch.model.notation import parse
from anabranch.model.operators import distinct, normalise
from anabranch.model.properties import (
    PROPERTIES,
    MergeCase,
    StreamProperties,
    cheapest,
    observe,
)
from anabranch.operators.aggregate.promises import Emission, Results, after_aggregate
from anabranch.operators.cleanse import after_cleanse
from anabranch.operators.join.operator import after_join
from anabranch.operators.lifetimes import StartChange, after_alter_lifetime
from anabranch.operators.merge.merge import after_merge
from anabranch.operators.runs.distinct import after_distinct
from anabranch.operators.runs.normalise import after_normalise
from anabranch.operators.union_of import after_union
from anabranch.plan.properties import after_native
from anabranch.testing.strategies import histories, interleavings, replicas

IN_ORDER = StreamProperties(insert_only=True, ordered=True)
DISORDERED = StreamProperties()

any_replicas = st.sampled_from(MergeCase).flatmap(
    lambda case: replicas(case=case, truncated=True)
)
replicas_of_a_case = st.sampled_from(MergeCase).flatmap(
    lambda case: st.tuples(st.just(case), replicas(case=case, truncated=True))
)
in_order_replicas = st.sampled_from([MergeCase.R0, MergeCase.R1, MergeCase.R2]).flatmap(
    lambda case: replicas(case=case, truncated=True)
)


def kept(inferred, outputs):
    """Every inferred property is there to be seen."""
    seen = observe(outputs)
    broken = [n for n in PROPERTIES if getattr(inferred, n) and not getattr(seen, n)]
    assert broken == [], outputs
    return True


def grouped(payload):
    return "c" if payload == "c" else "other"


def by_group(history):
    return models.counted_by(history, grouped)


# The six examples of IV-G


@pytest.mark.parametrize(
    ("published", "case"),
    [
        ({"insert_only": True, "strictly_increasing": True}, MergeCase.R0),
        ({"insert_only": True, "ordered": True, "ties_in_same_order": True}, MergeCase.R1),
        ({"insert_only": True, "ordered": True, "keyed": True}, MergeCase.R2),
        ({"ordered": True, "keyed": True}, MergeCase.R3),
        ({}, MergeCase.R4),
    ],
)
def test_lmerge_iv_g_example_1_published_properties(published, case):
    assert cheapest(StreamProperties.from_dict(published, where="a source")) is case


def test_lmerge_iv_g_example_2_enforced_order():
    keyed = StreamProperties(keyed=True)
    assert cheapest(keyed) is MergeCase.R3
    assert cheapest(after_cleanse(keyed, ties_by_value=False)) is MergeCase.R2
    assert cheapest(after_cleanse(DISORDERED)) is MergeCase.R1
    assert cheapest(after_cleanse(DISORDERED, ties_by_value=False)) is MergeCase.R4


def test_lmerge_iv_g_example_3_windowed_count_over_an_ordered_stream():
    windowed = after_alter_lifetime(IN_ORDER)
    assert cheapest(after_aggregate(windowed)) is MergeCase.R0


def test_lmerge_iv_g_example_4_top_k_over_an_ordered_stream():
    ranked = after_aggregate(IN_ORDER, Results.RANKED, in_order=True)
    assert cheapest(ranked) is MergeCase.R1
    assert not ranked.strictly_increasing


def test_lmerge_iv_g_example_5_grouped_aggregate_over_an_ordered_stream():
    """As the paper has it: only for an operator that emits in order (erratum X3)."""
    result = after_aggregate(IN_ORDER, Results.GROUPED, in_order=True)
    assert cheapest(result) is MergeCase.R2
    assert not result.ties_in_same_order


def test_lmerge_iv_g_example_6_grouped_aggregate_over_a_disordered_stream():
    result = after_aggregate(DISORDERED, Results.GROUPED, in_order=True)
    assert cheapest(result) is MergeCase.R3


def test_erratum_x3_grouped_results_over_an_ordered_stream_are_not_in_order():
    stream = parse("insert A 1..10; insert B 5..7; insert B 8..9; insert A 11..12")
    results = models.final(stream, lambda history: models.counted_by(history, str))
    assert [(e.payload[0], e.start, e.end) for e in results] == [
        ("B", 5, 7),
        ("B", 8, 9),
        ("A", 1, 10),
    ]
    assert observe([stream]).ordered
    assert not observe([results]).ordered
    inferred = after_aggregate(observe([stream]), Results.GROUPED)
    assert cheapest(inferred) is MergeCase.R3
    assert kept(inferred, [results])


def test_erratum_x3_for_ranks_that_are_not_cut_together():
    """Top-2 as long as each stays: `b` ends before `a`, which started earlier."""
    stream = parse("insert a 1..10; insert b 5..7; insert c 12..13")
    results = models.final(stream, lambda history: history)
    assert not observe([results]).ordered
    inferred = after_aggregate(observe([stream]), Results.RANKED)
    assert inferred == StreamProperties(insert_only=True)


# Rules against models


@given(any_replicas, st.sets(st.sampled_from("abc")), st.integers(0, 6))
def test_where_keeps_every_property(inputs, letters, bound):
    outputs = [
        models.where(s, lambda start, p: p in letters and start >= bound) for s in inputs
    ]
    assert kept(after_native(observe(inputs), one_to_one=True), outputs)


@given(any_replicas)
def test_project_may_make_identities_equal(inputs):
    known = observe(inputs)
    renamed = [models.changed(s, payload=lambda p: p + "!") for s in inputs]
    assert kept(after_native(known, one_to_one=True), renamed)
    grouped_up = [models.changed(s, payload=grouped) for s in inputs]
    assert kept(after_native(known, one_to_one=False), grouped_up)


def test_project_loses_keyed_unless_it_is_one_to_one():
    keyed = StreamProperties(keyed=True)
    assert after_native(keyed, one_to_one=True) == keyed
    assert after_native(keyed, one_to_one=False) == DISORDERED
    strict = StreamProperties(strictly_increasing=True)
    assert after_native(strict, one_to_one=False).keyed
    both = models.changed(parse("insert a 1..2; insert b 1..3"), payload=grouped)
    assert not observe([both]).keyed


def promised(case, inputs):
    """What replicas of a case promise: one that was cut off may lack its first adjust."""
    may_adjust = case in (MergeCase.R3, MergeCase.R4)
    return replace(observe(inputs), insert_only=False) if may_adjust else observe(inputs)


CUT_OFF = [parse("insert a 0..9; insert a 1..2"), parse("insert a 0..9; insert a 1..3")]


@given(replicas_of_a_case)
@example((MergeCase.R3, CUT_OFF))
def test_lifetimes_change_order_only_through_starts(drawn):
    case, inputs = drawn
    known = promised(case, inputs)
    windows = [models.changed(s, lifetime=lambda start, _: (start, start + 5)) for s in inputs]
    assert kept(after_alter_lifetime(known), windows)
    scaled = [models.changed(s, lifetime=lambda a, b: (2 * a, 2 * b)) for s in inputs]
    assert kept(after_alter_lifetime(known, start=StartChange.INCREASING), scaled)
    grid = [models.changed(s, lifetime=lambda a, b: (a // 4 * 4, b)) for s in inputs]
    assert kept(after_alter_lifetime(known, start=StartChange.NON_DECREASING), grid)
    turned = [models.changed(s, lifetime=lambda a, _: (-a, -a + 5)) for s in inputs]
    assert kept(after_alter_lifetime(known, start=StartChange.ANY), turned)


def test_a_grid_makes_unique_starts_equal():
    known = StreamProperties(insert_only=True, strictly_increasing=True)
    grid = after_alter_lifetime(known, start=StartChange.NON_DECREASING)
    assert cheapest(grid) is MergeCase.R1
    seen = observe([models.changed(parse("insert a 1..9; insert a 2..9"), lifetime=floor)])
    assert not seen.strictly_increasing
    assert not seen.keyed


def test_a_grid_keeps_ties_only_without_adjusts():
    phantom = parse("insert a 1..9; insert x 1..2; adjust x 1..2->1; insert c 2..9")
    plain = parse("insert a 1..9; insert c 2..9")
    known = observe([phantom, plain])
    assert known.ties_in_same_order
    grid = [models.changed(stream, lifetime=floor) for stream in (phantom, plain)]
    assert not observe(grid).ties_in_same_order
    assert kept(after_alter_lifetime(known, start=StartChange.NON_DECREASING), grid)


def floor(start, end):
    return start // 4 * 4, end


@given(st.data(), st.sampled_from(MergeCase))
def test_union_keeps_only_the_absence_of_adjusts(data, case):
    inputs = [data.draw(replicas(case=case, min_inputs=2, max_inputs=2)) for _ in range(2)]
    known = [observe(one) for one in inputs]
    copies = [[one[number] for one in inputs] for number in range(2)]
    dealt = [data.draw(interleavings(copy)) for copy in copies]
    arrived = [[e for _, e in turns if not isinstance(e, Stable)] for turns in dealt]
    assert kept(after_union(*known), arrived)
    marked = [
        [models.changed([e], payload=lambda p, n=n: f"{p}{n}")[0] for n, e in turns]
        for turns in [[t for t in one if not isinstance(t[1], Stable)] for one in dealt]
    ]
    assert kept(after_union(*known, disjoint=True), marked)
    in_order = [models.union_in_order(copy) for copy in copies]
    cut = [stream[: data.draw(st.integers(0, len(stream)))] for stream in in_order]
    assert kept(after_union(*known, in_order=True), cut)


def test_union_of_one_or_none():
    assert after_union(IN_ORDER) == IN_ORDER
    with pytest.raises(UsageError, match="union: no input"):
        after_union()


def test_union_in_order_keeps_order_and_ties():
    r1 = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True)
    assert cheapest(after_union(r1, r1, in_order=True)) is MergeCase.R1
    r2 = StreamProperties(insert_only=True, ordered=True, keyed=True)
    assert cheapest(after_union(r2, r2, in_order=True, disjoint=True)) is MergeCase.R2
    assert cheapest(after_union(r2, r2)) is MergeCase.R4


def join_outputs(turns):
    """What an eager join emits when its two inputs arrive in these turns."""
    sides = {0: [], 1: []}
    found = []
    for number, element in turns:
        sides[number].append(element)
        found.append(models.joined(*(History.of(side) for side in sides.values())))
    return models.eager(found)


@given(st.data(), st.sampled_from(MergeCase))
def test_join_of_any_inputs(data, case):
    small = histories(case=case, max_events=3, max_time=8)
    inputs = [data.draw(replicas(case=case, max_inputs=1, history=small)) for _ in range(2)]
    known = [observe(one) for one in inputs]
    turns = data.draw(interleavings([one[0] for one in inputs]))
    assert kept(after_join(*known), [join_outputs(turns)])
    by_start = sorted(
        (t for t in turns if isinstance(t[1], Insert)), key=lambda turn: turn[1].start
    )
    if all(one.insert_only and one.ordered for one in known):
        assert kept(after_join(*known, in_order=True), [join_outputs(by_start)])


def test_a_join_of_keyed_inputs_need_not_be_keyed():
    left, right = parse("insert a 1..9; insert a 2..8"), parse("insert b 3..5")
    assert observe([left, right]).keyed
    pairs = join_outputs([*((0, e) for e in left), *((1, e) for e in right)])
    assert not observe([pairs]).keyed
    keyed = StreamProperties(keyed=True)
    assert not after_join(keyed, keyed).keyed
    assert after_join(keyed, keyed, never_alive_twice=True).keyed


@given(histories(max_events=4), histories(max_events=4))
def test_a_join_of_payloads_alive_once_is_keyed(left, right):
    pairs = models.joined(distinct(left), distinct(right))
    assert pairs.is_keyed


AGGREGATES = {
    Results.ONE: models.counted,
    Results.RANKED: models.top_two,
    Results.GROUPED: by_group,
}


@given(in_order_replicas, st.sampled_from(Results), st.booleans())
def test_aggregates_over_ordered_inputs(inputs, results, in_order):
    ties = rank if results is Results.RANKED else repr
    outputs = [
        models.final(stream, AGGREGATES[results], in_order=in_order, ties=ties)
        for stream in inputs
    ]
    assert kept(after_aggregate(observe(inputs), results, in_order=in_order), outputs)


@given(any_replicas, st.sampled_from(Results), st.booleans())
def test_aggregates_that_wait_for_stables(inputs, results, in_order):
    ties = rank if results is Results.RANKED else repr
    shape = {"by_stables": True, "in_order": in_order, "ties": ties}
    outputs = [models.final(stream, AGGREGATES[results], **shape) for stream in inputs]
    inferred = after_aggregate(
        observe(inputs), results, emission=Emission.WHEN_STABLE, in_order=in_order
    )
    assert kept(inferred, outputs)


@given(any_replicas, st.sampled_from(Results))
def test_aggregates_that_answer_at_once(inputs, results):
    outputs = [
        models.eager(AGGREGATES[results](prefix.history) for prefix in replays(stream))
        for stream in inputs
    ]
    inferred = after_aggregate(observe(inputs), results, emission=Emission.AT_ONCE)
    assert kept(inferred, outputs)
    assert not inferred.insert_only


def rank(event):
    return event.payload


@given(in_order_replicas, st.booleans())
def test_distinct_over_ordered_inputs(inputs, in_order):
    outputs = [models.final(s, distinct, in_order=in_order) for s in inputs]
    promised = after_distinct(observe(inputs), emission=Emission.WHEN_PASSED, in_order=in_order)
    assert kept(promised, outputs)


@given(any_replicas)
def test_distinct_at_once(inputs):
    outputs = [models.eager(distinct(p.history) for p in replays(s)) for s in inputs]
    assert kept(after_distinct(observe(inputs)), outputs)


@given(any_replicas, st.randoms(use_true_random=False))
def test_cleanse_gives_order(inputs, random):
    known = observe(inputs)
    assert kept(after_cleanse(known), [models.cleansed(s) for s in inputs])
    unsorted = [models.cleansed(s, ties=lambda _: random.random()) for s in inputs]
    assert kept(after_cleanse(known, ties_by_value=False), unsorted)


@given(any_replicas)
def test_normalise_promises_little(inputs):
    outputs = [models.eager(normalise(p.history) for p in replays(s)) for s in inputs]
    assert kept(after_normalise(observe(inputs)), outputs)
    once = [models.eager(normalise(distinct(p.history)) for p in replays(s)) for s in inputs]
    assert kept(after_normalise(DISORDERED, max_multiplicity=1), once)


def test_normalise_adjusts_where_its_input_does_not():
    prefixes = replays(parse("insert a 1..3; insert a 3..5"))
    joined_up = models.eager(normalise(prefix.history) for prefix in prefixes)
    assert joined_up == parse("insert a 1..3; adjust a 1..3->5")
    twice = replays(parse("insert a 1..3; insert a 1..5"))
    assert not observe([models.eager(normalise(p.history) for p in twice)]).keyed


def test_merges_of_merges():
    """Hierarchies (LMerge II-1): a merge may be a replica of the next."""
    r0 = StreamProperties(insert_only=True, strictly_increasing=True)
    r1 = StreamProperties(insert_only=True, ordered=True, ties_in_same_order=True)
    r2 = StreamProperties(insert_only=True, ordered=True, keyed=True)
    for known in (r0, r1, r2, StreamProperties(keyed=True), DISORDERED):
        case = cheapest(known)
        assert cheapest(after_merge(known, case)) is case
    assert after_merge(r0, MergeCase.R2) == r2
    assert after_merge(r1, MergeCase.R4) == DISORDERED
