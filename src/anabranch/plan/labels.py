"""Labels: the sources whose stables a step waits for, as data over the nodes of a plan.

Our operators read any order, so nothing but an `align` in front of a step waits.  It releases
what all sources of the step's label have passed.  There are three ways to label a plan:

    query       every step waits for all sources
    operator    a step waits for the sources below it
    memory      the same, but a step that multiplies rows waits like the step that takes them
                away again: what it would emit earlier must be remembered until then

The *selectivity* of a step is the number of elements that it emits per element that it reads:
declared, or measured; if neither is known the step counts as one that multiplies nothing.  A
chain of steps has the product of theirs, and nothing reads what the last step of a plan emits:
its selectivity is 0.  The *memory link* of a step leads to the nearest step above it such that
the chain from the one to the other, both included, has at most 1; that is the step itself if it
multiplies nothing (erratum H20).  Labels are the smallest that

* contain all sources below the step,
* contain the labels of the steps that it reads,
* are equal at all steps that a memory link passes.

In a tree these are the labels of Figure 6.  A step that two others read has a link along each
way, and the greater product counts where the ways meet.

A label is an upper limit (erratum H24): the frontier of a step is the least of the frontiers of
its label and of the steps that it reads.  Selectivity is a mean, so memory is saved on average,
and not at every moment (erratum H27).

Papers: Heartbeats 7, with errata H20, H24, H25, H27.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.plan.node import Node, Source, Step, nodes, reads_of

_ABOVE_ONE: Final = 1 + 1e-9
"""A product of selectivities up to this is at most 1: it is a product of floats."""


class Waiting(Enum):
    """Which sources the steps of a plan wait for."""

    QUERY = "query"
    OPERATOR = "operator"
    MEMORY = "memory"


@dataclass(frozen=True)
class Label:
    """The sources that a step waits for, in the order of the plan.

    `below` are those that it reads, directly or through other steps.  `link` is the memory link
    that makes the label greater: the step that multiplies rows, its selectivity, and the step
    that it waits with; None if the label is `below` alone.
    """

    sources: tuple[str, ...]
    below: tuple[str, ...]
    link: "Link | None" = None


@dataclass(frozen=True)
class Link:
    """A memory link: from a step that multiplies rows to the one that it waits with."""

    of: str
    selectivity: float
    to: str
    passes: frozenset[str] = frozenset()
    """All steps from the one to the other, both included."""


def labels(
    last: Node,
    waiting: Waiting = Waiting.MEMORY,
    measured: Mapping[str, float] | None = None,
) -> Mapping[str, Label]:
    """The label of each node of a plan, by its id.

    `measured` are selectivities by ids of nodes, for those that have none declared.
    """
    every = nodes(last)
    order = [one.id for one in every if isinstance(one, Source)]
    below = _below(every)
    links: list[Link] = []
    found = {name: set(some) for name, some in below.items()}
    if waiting is Waiting.QUERY:
        found = {one.id: set(_of_query(one, order)) for one in every}
    elif waiting is Waiting.MEMORY:
        links = memory_links(last, selectivities(every, measured or {}))
        _widen(found, every, links)
    return {
        one.id: Label(
            _sorted(found[one.id], order),
            _sorted(below[one.id], order),
            None if found[one.id] == below[one.id] else _why(one.id, links),
        )
        for one in every
    }


def in_short(label: Label) -> str:
    """A label in words.

    >>> in_short(Label(("trades", "rates"), ("trades", "rates")))
    'follows trades, rates'
    >>> link = Link("join", 4.0, "join_2")
    >>> in_short(Label(("trades", "rates", "news"), ("trades", "rates"), link))
    'follows trades, rates, news: join emits 4 rows per row, so it waits with join_2'
    """
    words = f"follows {', '.join(label.sources)}"
    if label.link is None:
        return words
    one = label.link
    return (
        f"{words}: {one.of} emits {one.selectivity:g} rows per row, so it waits with {one.to}"
    )


def is_order_insensitive(node: Node) -> bool:
    """Whether a node looks at each element by itself, so that it never needs an `align` (7.5).

    It passes stables on nevertheless: everything above it waits for them (erratum H25).
    """
    return not isinstance(node, Step) or node.any_lane


def selectivities(every: Iterable[Node], measured: Mapping[str, float]) -> Mapping[str, float]:
    """Elements out per element in, of each step where it is declared, else measured."""
    declared = {
        one.id: one.selectivity
        for one in every
        if not isinstance(one, Source) and one.selectivity is not None
    }
    return {**measured, **declared}


def memory_links(last: Node, selectivity: Mapping[str, float]) -> list[Link]:
    """The memory links of the steps that multiply rows, in the order of the plan."""
    every = nodes(last)
    readers: dict[str, list[Node]] = {one.id: [] for one in every}
    for one in every:
        for read in reads_of(one):
            if one not in readers[read.id]:
                readers[read.id].append(one)

    def of(node: Node) -> float:
        return 0.0 if node is last else selectivity.get(node.id, 1.0)

    links = []
    for at, one in enumerate(every):
        if isinstance(one, Source) or of(one) <= _ABOVE_ONE:
            continue
        links += _links_of(one, every[at:], readers, of)
    return links


def _links_of(
    one: Node,
    above: list[Node],
    readers: Mapping[str, list[Node]],
    of: Callable[[Node], float],
) -> list[Link]:
    """From a step up to where its rows are taken away, on each way."""
    product, came_from = {one.id: of(one)}, {one.id: {one.id}}
    links = []
    for node in above:  # each after those that it reads
        if node.id not in product:
            continue
        passed = product[node.id]
        if node is not one and passed <= _ABOVE_ONE:
            links.append(Link(one.id, of(one), node.id, frozenset(came_from[node.id])))
            continue
        for reader in readers[node.id]:
            known = product.get(reader.id, 0.0)
            product[reader.id] = max(known, passed * of(reader))
            came_from.setdefault(reader.id, {reader.id}).update(came_from[node.id])
    return links


def _of_query(node: Node, order: list[str]) -> list[str]:
    return [node.id] if isinstance(node, Source) else order


def _below(every: list[Node]) -> dict[str, set[str]]:
    """The sources that each node reads, directly or through others."""
    found: dict[str, set[str]] = {}
    for one in every:
        mine = {one.id} if isinstance(one, Source) else set()
        found[one.id] = mine.union(*(found[read.id] for read in reads_of(one)))
    return found


def _widen(found: dict[str, set[str]], every: list[Node], links: list[Link]) -> None:
    """Make labels greater until they keep the three rules."""
    before = -1
    while (size := sum(map(len, found.values()))) != before:
        before = size
        for one in every:
            if not isinstance(one, Source):
                found[one.id] |= set().union(*(found[read.id] for read in reads_of(one)))
        for link in links:
            both = set().union(*(found[name] for name in link.passes))
            for name in link.passes:
                found[name] |= both


def _why(name: str, links: list[Link]) -> Link | None:
    """The link that a label follows, of several the first; those of its own go first."""
    passing = [one for one in links if name in one.passes]
    return next((one for one in passing if one.of == name), passing[0] if passing else None)


def _sorted(some: set[str], order: list[str]) -> tuple[str, ...]:
    return tuple(name for name in order if name in some)
