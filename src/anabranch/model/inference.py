"""Properties of an operator's output, inferred from the properties of its input.

Each rule holds if every replica runs the operator on a copy of the input with the given
properties, and the replicas have no gaps.  A rule may promise too little, never too much: it
describes what the physical operator emits (errata X3, D20), and where this depends on
how the operator is built, there is an argument.  Without it, nothing is promised.

`ties_in_same_order` is about all replicas together, so wherever starts that differed become
equal it needs `insert_only` as well: an event that one replica inserts and removes again would
shift the positions of all that follow it there.

Papers: LMerge IV-G; the operators are those of CEDR.

>>> from anabranch.model.properties import cheapest
>>> source = StreamProperties(insert_only=True, ordered=True)
>>> cheapest(after_aggregate(source)), cheapest(after_aggregate(source, Results.GROUPED))
(MergeCase.R0, MergeCase.R3)
"""

from dataclasses import replace
from enum import Enum

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties, shared


class StartChange(Enum):
    """What an operator does to starts, by a function of the start alone (`ANY`: of more)."""

    NONE = "none"
    INCREASING = "increasing"  # different starts stay different, in the same order
    NON_DECREASING = "non_decreasing"  # different starts may become equal: rounding to a grid
    ANY = "any"


class Results(Enum):
    """How many events an aggregate has at one time."""

    ONE = "one"  # one value: count, sum, mean
    RANKED = "ranked"  # several, ranked by a total order of payloads: top-k
    GROUPED = "grouped"  # one per group, with the group's key in its payload


class Emission(Enum):
    """When a physical aggregate emits a result."""

    WHEN_PASSED = "when_passed"  # when an element starts at or after its end; corrected if late
    AT_ONCE = "at_once"  # as soon as there is one; corrected by every element that follows
    WHEN_STABLE = "when_stable"  # when a stable makes it final


def after_where(properties: StreamProperties) -> StreamProperties:
    """Keep events by their start and payload: everything that was true stays true.

    The output is a subsequence: order, uniqueness and the absence of adjusts are inherited.
    An element is kept for what its event is, so of two groups of equal starts, one of which is
    the beginning of the other, the same positions are kept.
    """
    return properties


def after_project(
    properties: StreamProperties, *, one_to_one: bool = False
) -> StreamProperties:
    """Change payloads, one for one: times, and so order, stay; identities may fall together.

    The k-th event of a start has the same image in every replica, so ties keep their order.
    Two payloads with one image and one start are two events with one identity, unless the
    function is `one_to_one` or no two events share a start.
    """
    keyed = properties.strictly_increasing or (properties.keyed and one_to_one)
    return replace(properties, keyed=keyed)


def after_alter_lifetime(
    properties: StreamProperties, *, start: StartChange = StartChange.NONE
) -> StreamProperties:
    """Change lifetimes, each as a function of the event; ends do not affect properties.

    Windows that only set the end (`[start, start + size)`) keep all; so does a start function
    that is strictly increasing.  Rounding to a grid keeps order, but makes starts equal: what
    was unique need not be, and ties are those of all starts that fall on one grid point, in
    their order.  After any other change of starts only the absence of adjusts is known.
    """
    if start in (StartChange.NONE, StartChange.INCREASING):
        return properties
    insert_only = properties.insert_only
    if start is StartChange.ANY:
        return StreamProperties(insert_only=insert_only)
    return StreamProperties(
        insert_only=insert_only,
        ordered=properties.ordered,
        ties_in_same_order=_positions_agree(properties),
    )


def after_union(
    *inputs: StreamProperties, in_order: bool = False, disjoint: bool = False
) -> StreamProperties:
    """All events of all inputs, as they arrive.

    How the inputs interleave differs between replicas, so nothing is left of order, unless the
    operator waits and emits by start and, for equal starts, input after input (`in_order`).
    Two inputs may hold the same identity, unless their payloads are `disjoint`.
    """
    if not inputs:
        message = "union: no input; give the properties of at least one"
        raise UsageError(message)
    common = shared(inputs)
    if len(inputs) == 1:
        return common
    ordered = in_order and common.ordered
    return StreamProperties(
        insert_only=common.insert_only,
        ordered=ordered,
        ties_in_same_order=ordered and _positions_agree(common),
        keyed=common.keyed and disjoint,
    )


def after_join(
    left: StreamProperties,
    right: StreamProperties,
    *,
    in_order: bool = False,
    never_alive_twice: bool = False,
) -> StreamProperties:
    """Pairs of events that match, while both are alive: the start is the later of the two.

    An old event of a slow input pairs with others than those already paired, so starts may
    decrease, unless the operator takes its inputs together in the order of their starts
    (`in_order`); then each pair starts where the element that completes it does.  The pairs
    that one element completes come in an order of the operator's own.

    Keyed inputs are not enough for a keyed output: left 1..9 and 2..8 of one payload both pair
    with a right 3..5 as (3, the same payloads).  If in neither input a payload is alive twice
    at one time (`never_alive_twice`), pairs of the same payloads are disjoint.
    """
    common = shared([left, right])
    return StreamProperties(
        insert_only=common.insert_only,
        ordered=in_order and common.ordered and common.insert_only,
        keyed=never_alive_twice,
    )


def after_aggregate(
    properties: StreamProperties,
    results: Results = Results.ONE,
    *,
    emission: Emission = Emission.WHEN_PASSED,
    in_order: bool = False,
) -> StreamProperties:
    """Values over the events alive at each time; the input matters only by being in order.

    If results are emitted once they are final there are no adjusts: with stables always, when
    time has passed them only over an ordered, insert-only input.  Otherwise each result may be
    corrected, and is still the only one of its group at its start (removals come first).

    * ONE: results are disjoint in time and final from the left to the right: R0.
    * RANKED: the results of one time come by rank, R1, if they are all cut where one of them
      changes or are held back so that none starts before one emitted earlier (`in_order`).
      Payloads may tie in rank and value: not keyed.
    * GROUPED: groups finish at different times, so a result may start before one emitted
      earlier (erratum X3): R3, and R2 only if the operator holds results back (`in_order`).
    """
    in_time = properties.insert_only and properties.ordered
    final = emission is Emission.WHEN_STABLE or (emission is Emission.WHEN_PASSED and in_time)
    if not final:
        return StreamProperties(keyed=results is not Results.RANKED)
    if results is Results.ONE:
        return StreamProperties(insert_only=True, strictly_increasing=True)
    if results is Results.RANKED:
        return StreamProperties(insert_only=True, ordered=in_order, ties_in_same_order=in_order)
    return StreamProperties(insert_only=True, ordered=in_order, keyed=True)


def after_distinct(
    properties: StreamProperties,
    *,
    emission: Emission = Emission.WHEN_PASSED,
    in_order: bool = False,
) -> StreamProperties:
    """Each payload once while it is alive: a grouped aggregate whose group is the payload.

    A payload is alive in disjoint runs, so its start identifies a run; runs of different
    payloads finish at different times, as groups do.
    """
    return after_aggregate(properties, Results.GROUPED, emission=emission, in_order=in_order)


def after_cleanse(
    properties: StreamProperties, *, ties_by_value: bool = False
) -> StreamProperties:
    """Hold events back until they are frozen, and release them by start: in order, no adjusts.

    An event waits for every event that starts before it (erratum L13).  Ties come in the same
    order only if the values of whole start groups decide it, and not where the stables are
    (`ties_by_value`).  What is frozen is part of the history, so it is keyed if that is.
    """
    return StreamProperties(
        insert_only=True,
        ordered=True,
        strictly_increasing=properties.strictly_increasing,
        ties_in_same_order=ties_by_value,
        keyed=properties.keyed,
    )


def after_normalise(
    properties: StreamProperties, *, never_alive_twice: bool = False
) -> StreamProperties:
    """The normal form of the snapshots: little of the input's own form is left.

    Fragments that meet are joined by adjusts, also if the input has none.  Where several events
    of one payload start together, their levels have one identity.  This cannot be if the input
    is keyed, or if no payload is ever alive twice at one time (`never_alive_twice`).
    """
    return StreamProperties(keyed=properties.keyed or never_alive_twice)


def after_merge(properties: StreamProperties, case: MergeCase) -> StreamProperties:
    """The merge of such replicas by this case, as a replica of other such merges.

    R0 to R2 emit only what starts at or after all they emitted, as it came: in order, without
    adjusts; R1 by position, so that ties stay; R2 in the order of arrival.  R3
    and R4 correct ends, and remove what the deciding replica lacks; R4 may repeat an event.
    """
    if case is MergeCase.R0:
        return StreamProperties(insert_only=True, strictly_increasing=True)
    if case in (MergeCase.R1, MergeCase.R2):
        return StreamProperties(
            insert_only=True,
            ordered=True,
            ties_in_same_order=case is MergeCase.R1,
            keyed=properties.keyed or case is MergeCase.R2,
        )
    return StreamProperties(keyed=case is MergeCase.R3)


def _positions_agree(properties: StreamProperties) -> bool:
    """Whether the n-th insert is the same in all replicas, however they are grouped."""
    return properties.ordered and properties.ties_in_same_order and properties.insert_only
