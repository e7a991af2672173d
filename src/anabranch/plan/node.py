"""Nodes of a query: sources, steps in lanes, and changes that Spark makes between them.

A node is frozen and has a user-visible id, unique in its query.  Nodes point at what they read,
so that a query is its last node; a node that two others read is one stream, read once.

`final_at_start`: the ends of the node's events are known, so that an event is final as soon as
the frontier has passed its start.
"""

from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.contract import Operator
from anabranch.operators.route import Routing


@dataclass(frozen=True, eq=False)
class Source:
    """Where elements enter and are validated: a merge of replicas, or one stream.

    `entry` is opaque.  `routing` is what its operator asks for; `may_follow`: its lanes may be
    those of a key of the payload as well, since all elements of an event have the same payload.
    `properties` are what one lane of it promises.
    """

    id: str
    entry: Any
    schema: ElementSchema
    routing: Routing
    words: str
    may_follow: bool = True
    final_at_start: bool = False
    renamed: "Callable[[str], Source] | None" = None
    """The same source under a name, if the user gave it none."""
    properties: StreamProperties = field(default_factory=StreamProperties)


@dataclass(frozen=True, eq=False)
class Step:
    """An operator in lanes, and what each of its ports reads."""

    id: str
    operator: Operator
    reads: "tuple[tuple[str, Node], ...]"
    words: str
    final_at_start: bool = False
    is_named: bool = False
    """Whether the user gave it its id; else it gets a number if another step has the id."""
    is_apart: bool = False
    """Whether it has a stage of its own, whatever it reads."""

    @property
    def schema(self) -> ElementSchema:
        """The columns of the output."""
        output = self.operator.output
        assert isinstance(output, ElementSchema), f"{self.id} emits no elements"
        return output

    @property
    def any_lane(self) -> bool:
        """Whether any lane may take any element: it looks at each element by itself."""
        return bool(getattr(self.operator, "any_lane", False))


@dataclass(frozen=True, eq=False)
class Native:
    """A `where` or `select` that Spark evaluates, on the output of another node.

    `change` is opaque: what Spark gets.  `one_to_one`: two payloads that differ stay different,
    as in every `where`.
    """

    id: str
    of: "Node"
    change: Any
    schema: ElementSchema
    words: str
    final_at_start: bool = False
    is_named: bool = False
    one_to_one: bool = False


Node: TypeAlias = Source | Step | Native


def reads_of(node: Node) -> tuple[Node, ...]:
    """The nodes that a node reads, in order."""
    if isinstance(node, Source):
        return ()
    return (node.of,) if isinstance(node, Native) else tuple(one for _, one in node.reads)


def nodes(last: Node) -> list[Node]:
    """All nodes of a query, each after those that it reads."""
    found: dict[int, Node] = {}

    def visit(node: Node) -> None:
        if id(node) in found:
            return
        for one in reads_of(node):
            visit(one)
        found[id(node)] = node

    visit(last)
    return list(found.values())


def rewritten(last: Node, change: "Callable[[Node], Node]") -> Node:
    """The same query with each node changed, after those that it reads.

    What was shared stays shared.
    """
    known: dict[int, Node] = {}
    for one in nodes(last):
        if isinstance(one, Native):
            made: Node = replace(one, of=known[id(one.of)])
        elif isinstance(one, Step):
            made = replace(one, reads=tuple((port, known[id(n)]) for port, n in one.reads))
        else:
            made = one
        known[id(one)] = change(made)
    return known[id(last)]


def with_names(last: Node) -> Node:
    """The same query with ids that are unique, as far as the user gave none.

    If there are several sources, each that has no name gets one.  A step whose id another step
    has gets a number, in the order in which steps read one another.
    """
    given = {one.id for one in nodes(last) if isinstance(one, Source) or one.is_named}
    several, taken, count = len(sources(last)) > 1, set(given), 0

    def named(one: Node) -> Node:
        nonlocal count
        if isinstance(one, Source):
            count += 1
            can = several and one.renamed is not None
            return one.renamed(f"source_{count}") if can and one.renamed else one
        if not one.is_named:
            one = replace(one, id=free_name(one.id, taken))
        taken.add(one.id)
        return one

    return rewritten(last, named)


def sources(last: Node) -> list[Source]:
    """The sources of a query, in the order in which they are read."""
    return [one for one in nodes(last) if isinstance(one, Source)]


def base_of(node: Node) -> tuple[Source | Step, tuple[Native, ...]]:
    """The step or source below the changes that Spark makes, and these, the first one first."""
    chain: list[Native] = []
    while isinstance(node, Native):
        chain.append(node)
        node = node.of
    return node, tuple(reversed(chain))


def free_name(word: str, taken: Container[str]) -> str:
    """The word, or the word with a number that is not taken."""
    return next(name for name in _names(word) if name not in taken)


def _names(word: str) -> Iterator[str]:
    yield word
    number = 2
    while True:
        yield f"{word}_{number}"
        number += 1


def require_unique(last: Node) -> None:
    """Reject a query in which two nodes have one id."""
    names = [one.id for one in sources(last)]
    twice = sorted({one for one in names if names.count(one) > 1})
    if twice:
        message = (
            f"two streams of this query are called {', '.join(twice)}; give each its own name: "
            "ab.events(df, ..., name='trades'), or use one stream twice"
        )
        raise UsageError(message)
    ids = [one.id for one in nodes(last)]
    twice = sorted({one for one in ids if ids.count(one) > 1})
    if twice:
        message = (
            f"two steps of this query are called {', '.join(twice)}; a step keeps its state "
            "under its id: give one of them another, with id="
        )
        raise UsageError(message)
