"""What the output of an aggregate promises, by how the physical operator emits its results.

The input matters only by being in order.  Our aggregates answer at once and correct, so that
nothing is left but unique identities; the other ways to emit are those of LMerge IV-G.

Papers: LMerge IV-G, examples 3 to 6, with erratum X3.

>>> from anabranch.model.properties import cheapest
>>> source = StreamProperties(insert_only=True, ordered=True)
>>> cheapest(after_aggregate(source)), cheapest(after_aggregate(source, Results.GROUPED))
(MergeCase.R0, MergeCase.R3)
"""

from enum import Enum

from anabranch.model.properties import StreamProperties


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


def after_aggregate(
    properties: StreamProperties,
    results: Results = Results.ONE,
    *,
    emission: Emission = Emission.WHEN_PASSED,
    in_order: bool = False,
) -> StreamProperties:
    """Values over the events alive at each time.

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
