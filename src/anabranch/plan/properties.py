"""Properties through a plan: what the output of each node promises, and how replicas merge.

A source states its own, a step has the rule of its operator (`Operator.properties`), and what
Spark changes has the rule here.  All hold if every replica runs the same plan on a copy of the
input, without gaps.  They may be too few, never too many.

Operators state what one lane emits.  Lanes run beside one another, so of several lanes together
no order is known, and neither after a shuffle.  Identities stay unique: a step that promises
them has all events of an identity in one lane.
"""

from collections.abc import Mapping
from dataclasses import replace

from anabranch.model.properties import PROPERTIES, StreamProperties, cheapest
from anabranch.plan.node import Node, Source, Step, nodes
from anabranch.plan.stages import stages


def properties(last: Source | Step, lanes: int) -> Mapping[str, StreamProperties]:
    """What the output of each node promises, by its id, if the query has this many lanes."""
    cut, _ = stages(last)
    stage = {one.node.id: at for at, each in enumerate(cut) for one in each.steps}
    found: dict[str, StreamProperties] = {}

    def read(node: Node, by: Step) -> StreamProperties:
        is_here = stage.get(node.id) == stage[by.id]
        return found[node.id] if is_here else unordered(found[node.id])

    for node in nodes(last):
        if isinstance(node, Source):
            known = node.properties
        elif isinstance(node, Step):
            known = node.operator.properties(*(read(one, node) for _, one in node.reads))
        else:
            known = unordered(after_native(found[node.of.id], one_to_one=node.one_to_one))
        found[node.id] = known if lanes == 1 else unordered(known)
    return found


def after_native(properties: StreamProperties, *, one_to_one: bool) -> StreamProperties:
    """Rows that Spark keeps by start and payload (`where`), or whose payload it changes.

    The output of a `where` is a subsequence: order, uniqueness and the absence of adjusts are
    inherited.  An element is kept for what its event is, so of two groups of equal starts, one
    of which is the beginning of the other, the same positions are kept.

    A `select` keeps times, and so order; the k-th event of a start has the same image in every
    replica.  Two payloads with one image and one start are two events with one identity, unless
    the function is `one_to_one` or no two events share a start.
    """
    keyed = properties.strictly_increasing or (properties.keyed and one_to_one)
    return replace(properties, keyed=keyed)


def unordered(properties: StreamProperties) -> StreamProperties:
    """What is left if the order is not known: after a shuffle, or of several lanes."""
    return StreamProperties(insert_only=properties.insert_only, keyed=properties.keyed)


def in_words(properties: StreamProperties) -> str:
    """What is promised, and the case in which replicas of such a stream merge.

    >>> in_words(StreamProperties(insert_only=True, strictly_increasing=True))
    'promises insert_only, strictly_increasing; replicas of it merge by case R0'
    >>> in_words(StreamProperties())
    'promises nothing; replicas of it merge by case R4'
    """
    case = cheapest(properties).name
    names = [name for name in PROPERTIES if getattr(properties, name)]
    if properties.strictly_increasing:
        names = [name for name in names if name in ("insert_only", "strictly_increasing")]
    promised = ", ".join(names) or "nothing"
    return f"promises {promised}; replicas of it merge by case {case}"
