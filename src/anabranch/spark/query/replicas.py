"""`ab.merge` of queries: replicas of one result, in one Spark query.

Columns, types, times, a mix of batches and streams, and the case that was asked for are
validated at the call; `anabranch.plan.replicas` has the meaning.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from anabranch.errors import SchemaError, UsageError
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.plan.node import Native, Node, Step, nodes, rewritten
from anabranch.plan.replicas import merged
from anabranch.sources.inbox import Inbox
from anabranch.spark.frames import require_frame
from anabranch.spark.query.asked import case_named, remember_units
from anabranch.spark.query.fluent import Fluent
from anabranch.spark.query.query import Query
from anabranch.spark.query.streams import elements

_OF_SOURCES: Final = ("gaps", "violations", "promote", "wait")
"""Choices of a policy about copies that lack rows, break promises, or come and go."""


def merge_queries(
    inputs: Sequence[Any],
    *,
    names: Sequence[str] = (),
    case: str = "auto",
    policy: str | Policy | None = None,
    remember: str | int | None = None,
    options: Collection[str] = (),
) -> Query:
    """The queries as replicas, as one query; `options` are others that were given."""
    if options:
        message = (
            f"ab.merge: {', '.join(f'{one}=' for one in sorted(options))} is for merges of "
            "streams and inboxes, and these inputs are queries: give it to the ab.merge that "
            "they begin with"
        )
        raise UsageError(message)
    replicas = dict(zip(_names(names, len(inputs)), map(_plan, inputs), strict=True))
    chosen = Policy.parse(policy) if isinstance(policy, str) else policy or DEFAULT
    if remember is not None:
        time = next(iter(replicas.values()))._node.schema.time
        chosen = replace(chosen, remember=remember_units(remember, time))
    wrong = [one for one in chosen.chosen if one in _OF_SOURCES]
    if wrong:
        message = (
            f"ab.merge: policy {wrong[0]}={chosen.chosen[wrong[0]]} is for copies of a stream; "
            "replicas of a query lack nothing, break no promise and are there from the "
            "beginning: merge the streams that they read"
        )
        raise UsageError(message)
    _require_same(replicas)
    step = merged(
        {name: one._node for name, one in _alike(replicas).items()},
        plans={name: one._node for name, one in replicas.items()},
        asked=case_named(case),
        policy=chosen,
    )
    query = Query(_with_own_ids(step))
    query.planned  # noqa: B018  raises now what is wrong with the sources or the case
    return query


def _names(given: Sequence[str], count: int) -> list[str]:
    """The names of the replicas; their positions, if none are given."""
    if isinstance(given, str) or (given and len(given) != count):
        message = (
            f"ab.merge: names={given!r} for {count} queries; give a list with a name for each"
        )
        raise UsageError(message)
    names = [str(one) for one in given] or [str(at) for at in range(count)]
    twice = sorted({one for one in names if names.count(one) > 1 or not one})
    if twice:
        message = (
            f"ab.merge: names={names}: {twice[0]!r} is empty or there twice; give each replica "
            "a name of its own"
        )
        raise UsageError(message)
    return names


def _plan(given: Any) -> Fluent:
    """An input as a plan."""
    if isinstance(given, Inbox):
        message = (
            "ab.merge: an inbox is an input beside queries; ab.merge(ab.inbox(...)) makes a "
            "stream of it that can be one"
        )
        raise UsageError(message)
    if isinstance(given, Fluent):
        return given
    require_frame(given, "ab.merge: an input")
    return elements(given)


def _require_same(replicas: Mapping[str, Fluent]) -> None:
    """Reject plans whose results cannot be equal: other times, other columns, other types."""
    (first, one), *others = replicas.items()
    for name, other in others:
        a, b = one._node.schema, other._node.schema
        if a.time is not b.time:
            message = (
                f"ab.merge: times are {a.time.value} in replica '{first}', {b.time.value} in "
                f"'{name}'; replicas of a query have the same, cast those of the source"
            )
            raise SchemaError(message)
        if sorted(a.payload.names) != sorted(b.payload.names):
            message = (
                f"ab.merge: replica '{first}' has the columns {a.payload.names}, '{name}' has "
                f"{b.payload.names}; replicas of a query have the same, select them"
            )
            raise SchemaError(message)
        for column in a.payload.names:
            was, now = a.payload.field(column).type, b.payload.field(column).type
            if was != now:
                message = (
                    f"ab.merge: column '{column}' is {was} in replica '{first}', {now} in "
                    f"'{name}'; replicas of a query have the same types, cast one in a select"
                )
                raise SchemaError(message)


def _alike(replicas: Mapping[str, Fluent]) -> dict[str, Fluent]:
    """The same with their columns in the order of the first."""
    order = next(iter(replicas.values()))._node.schema
    return {name: one._in_order(order, "ab.merge") for name, one in replicas.items()}


def _with_own_ids(merge: Step) -> Step:
    """The merge with ids that are unique where the user named steps of two replicas alike.

    One function may have built both: such a step gets the name of its replica too.
    """
    every = nodes(merge)
    owner: dict[int, str] = {}
    for name, plan in merge.reads:
        for one in nodes(plan):
            owner.setdefault(id(one), name)
    named = [one.id for one in every if isinstance(one, Step | Native) and one.is_named]
    originals = iter(every)

    def own(node: Node) -> Node:
        before = next(originals)
        if isinstance(node, Step | Native) and node.is_named and named.count(node.id) > 1:
            return replace(node, id=f"{node.id}_{owner[id(before)]}")
        return node

    found = rewritten(merge, own)
    assert isinstance(found, Step), f"{found.id} is no step"
    return found
