"""Nodes of a query: sources, steps in lanes, and changes that Spark makes between them.

A node is frozen and has a user-visible id, unique in its query.  Nodes point at what they read,
so that a query is its last node; a node that two others read is one stream, read once.

`final_at_start`: the ends of the node's events are known, so that an event is final as soon as
the frontier has passed its start.

`in_windows`: the lifetime of each event is its column `window`.  It begins at windows of a
grid, and only steps that keep both keep it; a column of that name alone has no such meaning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.emission import Emit
from anabranch.model.properties import StreamProperties
from anabranch.operators.abilities import KeepsPayload, TakesAnyLane
from anabranch.operators.contract import Operator
from anabranch.operators.route import Routing
from anabranch.operators.waiting.level import Level


@dataclass(frozen=True, eq=False)
class Source:
    """Where elements enter and are validated: a merge of replicas, or one stream.

    `entry` is opaque.  `routing` is what its operator asks for; `may_follow`: its lanes may be
    those of a key of the payload as well, since all elements of an event have the same payload.
    `properties` are what one lane of it promises.  `may_drop`: rows that come late are dropped,
    so that two sources of the same rows need not have the same history.  `level`, of any node:
    the level of consistency that was asked for there, of the whole query.
    """

    id: str
    entry: Any
    schema: ElementSchema
    routing: Routing
    words: str
    may_follow: bool = True
    final_at_start: bool = False
    in_windows: bool = False
    renamed: "Callable[[str], Source] | None" = None
    """The same source under a name, if the user gave it none."""
    has_word: bool = False
    """Whether its id is a word (`merge`), which it keeps unless another source has it."""
    properties: StreamProperties = field(default_factory=StreamProperties)
    may_drop: bool = False
    level: Level | None = None


@dataclass(frozen=True, eq=False)
class Step:
    """An operator in lanes, and what each of its ports reads."""

    id: str
    operator: Operator
    reads: "tuple[tuple[str, Node], ...]"
    words: str
    final_at_start: bool = False
    in_windows: bool = False
    is_named: bool = False
    """Whether the user gave it its id; else it gets a number if another step has the id."""
    why: str = ""
    """Why it is there, if the user did not ask for it."""
    selectivity: float | None = None
    """Elements out per element in, on average, as the user declared it."""
    emits: Emit | None = None
    """When an aggregate emits, if the user asked for it."""
    level: Level | None = None

    @property
    def schema(self) -> ElementSchema:
        """The columns of the output."""
        output = self.operator.output
        assert isinstance(output, ElementSchema), f"{self.id} emits no elements"
        return output

    @property
    def any_lane(self) -> bool:
        """Whether any lane may take any element: it looks at each element by itself."""
        return isinstance(self.operator, TakesAnyLane) and self.operator.any_lane

    @property
    def keeps_payload(self) -> bool:
        """Whether the lanes of any key of the payload serve it."""
        return isinstance(self.operator, KeepsPayload) and self.operator.keeps_payload

    @property
    def holds_stables(self) -> bool:
        """Whether its frontier depends on its data, so that lanes reach different ones."""
        return bool(getattr(self.operator, "holds_stables", False))


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
    in_windows: bool = False
    is_named: bool = False
    one_to_one: bool = False
    selectivity: float | None = None
    level: Level | None = None


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

    What was shared stays shared, and a node stays itself if nothing below it changes.
    """
    known: dict[int, Node] = {}
    for one in nodes(last):
        made: Node = one
        if any(known[id(read)] is not read for read in reads_of(one)):
            if isinstance(one, Native):
                made = replace(one, of=known[id(one.of)])
            elif isinstance(one, Step):
                made = replace(one, reads=tuple((port, known[id(n)]) for port, n in one.reads))
        known[id(one)] = change(made)
    return known[id(last)]


def with_names(last: Node) -> Node:
    """The same query with ids that are unique, as far as the user gave none.

    If there are several sources, each that has no name gets one.  A step whose id another step
    has gets a number, in the order in which steps read one another.
    """
    entries = _names_of_sources(sources(last))
    taken = {*entries.values()}
    taken |= {one.id for one in nodes(last) if not isinstance(one, Source) and one.is_named}

    def named(one: Node) -> Node:
        if isinstance(one, Source):
            name = entries[id(one)]
            return one.renamed(name) if one.renamed and name != one.id else one
        if not one.is_named:
            one = replace(one, id=next(name for name in _names(one.id) if name not in taken))
        taken.add(one.id)
        return one

    return rewritten(last, named)


def _names_of_sources(every: Sequence[Source]) -> dict[int, str]:
    """Their ids, or numbered ones where they have no names and there are several."""
    ids, found = [one.id for one in every], {}
    for number, one in enumerate(every, 1):
        is_unclear = ids.count(one.id) > 1 if one.has_word else len(ids) > 1
        rename = is_unclear and one.renamed is not None
        found[id(one)] = f"{one.id}_{number}" if rename else one.id
    return found


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
