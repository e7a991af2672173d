"""Properties through a plan: what the output of each node promises, and how replicas merge.

A source states its own, a step has the rule of its operator (`Operator.properties`), and what
Spark changes has the rule here.  All hold if every replica runs the same plan on a copy of the
input, without gaps.  They may be too few, never too many.

Operators state what one lane emits.  Lanes run beside one another, so of several lanes together
no order is known, and neither after what Spark changes.  One lane sends its elements to the
lane of the next stage as it emits them.  Identities stay unique: a step that promises them has
all events of an identity in one lane.
"""

from collections.abc import Mapping
from dataclasses import replace

from anabranch.model.properties import PROPERTIES, StreamProperties, cheapest
from anabranch.plan.node import Node, Source, Step, nodes


def properties(last: Source | Step, lanes: int) -> Mapping[str, StreamProperties]:
    """What the output of each node promises, by its id, if the query has this many lanes."""
    found = properties_of(last, lanes)
    return {one.id: found[id(one)] for one in nodes(last)}


def properties_of(last: Node, lanes: int) -> Mapping[int, StreamProperties]:
    """The same by node (its Python `id`), for plans whose names are not unique yet."""
    found: dict[int, StreamProperties] = {}
    for node in nodes(last):
        if isinstance(node, Source):
            known = node.properties
        elif isinstance(node, Step):
            known = node.operator.properties(*(found[id(one)] for _, one in node.reads))
        else:
            known = unordered(after_native(found[id(node.of)], one_to_one=node.one_to_one))
        found[id(node)] = known if lanes == 1 else unordered(known)
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
    """What is left if the order is not known: after Spark's changes, or of several lanes."""
    return StreamProperties(insert_only=properties.insert_only, keyed=properties.keyed)


def in_words(properties: StreamProperties, *, doubt: str = "") -> str:
    """What is promised, and the case in which replicas of such a stream merge.

    `doubt` is why two replicas may differ although their inputs do not.

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
    merge = f"may differ: {doubt}" if doubt else f"merge by case {case}"
    return f"promises {promised}; replicas of it {merge}"
