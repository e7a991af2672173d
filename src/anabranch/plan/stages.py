"""Stages: which steps of a query share the lanes of one shuffle.

A step runs in the stage of what it reads if all elements that it must compare are in one lane
there; else a stage ends, and its output is shuffled.  A `where` or `select` of Spark's always
ends one.  A source takes the lane key of the steps above it, where that is a function of the
payload: a merge and the group-by after it run in one stage.

The *placement* of a stream is what has decided the lane of its elements.  It serves a step that
needs columns K if it is by some of the columns K: equal keys are then in one lane.

>>> serves(Routing(Route.KEY, ("a",)), Routing(Route.KEY, ("a", "b")))
True
>>> serves(Routing(Route.IDENTITY), Routing(Route.KEY, ("a",)))
False
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anabranch.operators.contract import Port, Route, ports_of
from anabranch.operators.pipeline import Edge
from anabranch.operators.route import BY_IDENTITY, Routing
from anabranch.plan.node import Native, Node, Source, Step, base_of, nodes, reads_of

Placement = Routing | None
"""None: nothing is known about the lane of an element."""


@dataclass(frozen=True)
class Send:
    """A stream from one stage to the next: how Spark changes it, and how it is routed."""

    name: str
    of: str
    node: Node
    natives: tuple[Native, ...]
    routing: Routing


@dataclass(frozen=True)
class Placed:
    """A step or source in its stage, with what each port reads there."""

    node: Source | Step
    edges: tuple[Edge, ...] = ()


@dataclass(frozen=True)
class Stage:
    """The steps of one stage in order, and what it sends to the next one."""

    steps: tuple[Placed, ...]
    sends: tuple[Send, ...] = ()

    @property
    def holds_stables(self) -> bool:
        """Whether its lanes reach different frontiers."""
        return any(isinstance(one.node, Step) and one.node.holds_stables for one in self.steps)


@dataclass
class _Cut:
    """What is known while a query is cut into stages, by the ids of nodes."""

    stage: dict[str, int] = field(default_factory=dict)
    placement: dict[str, Placement] = field(default_factory=dict)
    routing: dict[tuple[str, str], Routing] = field(default_factory=dict)


def stages(last: Source | Step) -> tuple[tuple[Stage, ...], Mapping[str, Routing]]:
    """The stages of a query, and the routing of its sources by id."""
    every, cut = nodes(last), _cut(last)
    steps = [one for one in every if not isinstance(one, Native)]
    sends, edges = _sends(steps, cut)
    made = []
    for number in range(cut.stage[last.id] + 1):
        mine = [one for one in steps if cut.stage[one.id] == number]
        placed = tuple(Placed(one, tuple(edges.get(one.id, ()))) for one in mine)
        made.append(Stage(placed, tuple(sends.get(number, ()))))
    routings = {
        one.id: cut.placement[one.id] or one.routing for one in every if isinstance(one, Source)
    }
    return tuple(made), routings


def placement(last: Source | Step) -> Placement:
    """What decides the lane of the elements of the output."""
    return _cut(last).placement[last.id]


def _cut(last: Source | Step) -> _Cut:
    every, cut = nodes(last), _Cut()
    for node in every:
        if isinstance(node, Source):
            cut.stage[node.id], cut.placement[node.id] = 0, source_routing(node, every)
        elif isinstance(node, Step):
            _place(node, cut)
    return cut


def source_routing(source: Source, every: Sequence[Node]) -> Routing:
    """The lane key of the steps above a source, if they agree on one that it may follow."""
    if not source.may_follow:
        return source.routing
    wanted = _wanted(source, every)
    known = set(source.schema.payload.names)
    if wanted is None or not wanted or not set(wanted) <= known:
        return source.routing
    return Routing(Route.KEY, wanted)


def _wanted(node: Node, every: Sequence[Node]) -> tuple[str, ...] | None:
    """The key columns that all readers of a node need; None if they need different ones."""
    found: set[tuple[str, ...]] = set()
    for reader in every:
        if node not in reads_of(reader):
            continue
        if isinstance(reader, Native):
            return None  # a shuffle comes anyway
        if not isinstance(reader, Step):
            continue
        if reader.any_lane or (reader.keeps_payload and len(reader.reads) == 1):
            below = _wanted(reader, every)
            if below is None:
                return None
            found.add(below)
            continue
        ports = ports_of(reader.operator)
        for name, one in reader.reads:
            if one is node:
                port = ports[name]
                found.add(tuple(port.route_columns) if port.route is Route.KEY else ())
    return found.pop() if len(found) == 1 else (None if found else ())


def _place(step: Step, cut: _Cut) -> None:
    """Find the first stage that a step can run in, and how what it reads is routed there."""
    ports, number = ports_of(step.operator), 0
    for _, node in step.reads:
        base, natives = base_of(node)
        number = max(number, cut.stage[base.id] + bool(natives))
    here = {
        name: cut.placement[node.id]
        for name, node in step.reads
        if not isinstance(node, Native) and cut.stage[node.id] == number
    }
    share = _share(ports, here)
    if here and share is None and not step.any_lane:
        number, here = number + 1, {}  # what is here lies in other lanes
    cut.stage[step.id] = number
    first = next(iter(ports.values()))
    for name, _ in step.reads:
        if name not in here:
            port = ports[name]
            full = Routing(port.route, port.route_columns)
            how = full if share is None else _renamed(share, first, port)
            cut.routing[step.id, name] = how
    cut.placement[step.id] = _placement(step, ports, here, share)


def _share(ports: Mapping[str, Port], here: Mapping[str, Placement]) -> Routing | None:
    """What decides the lane at all of these ports, in terms of the first port's columns."""
    first = next(iter(ports.values()))
    found = set()
    for name, placement in here.items():
        port = ports[name]
        if placement is None or not serves(placement, Routing(port.route, port.route_columns)):
            return None
        found.add(_renamed(placement, port, first))
    return found.pop() if len(found) == 1 else None


def serves(placement: Routing, needed: Routing) -> bool:
    """Whether all elements that a step must compare are in one lane already."""
    if placement.by is Route.KEY:
        if needed.by is Route.KEY:
            return set(placement.columns) <= set(needed.columns)
        return needed.by in (Route.PAYLOAD, Route.IDENTITY)
    return placement.by is needed.by or (
        placement.by is Route.PAYLOAD and needed.by is Route.IDENTITY
    )


def _renamed(routing: Routing, port: Port, other: Port) -> Routing:
    """A routing by columns of one port, by those of another: keys are paired by position."""
    if routing.by is not Route.KEY or port.route is not Route.KEY:
        return routing
    at = [port.route_columns.index(name) for name in routing.columns]
    return Routing(Route.KEY, tuple(other.route_columns[number] for number in at))


def _placement(
    step: Step,
    ports: Mapping[str, Port],
    here: Mapping[str, Placement],
    share: Routing | None,
) -> Placement:
    """What has decided the lane of an element of the output."""
    first = next(iter(ports.values()))
    routing = share if here else Routing(first.route, first.route_columns)
    if step.any_lane:
        places = set(here.values())
        routing = places.pop() if len(here) == len(step.reads) and len(places) == 1 else None
    if routing is None:
        return None
    names = step.schema.payload.names
    if routing.by is Route.KEY:
        return routing if set(routing.columns) <= set(names) else None
    same = step.schema.payload == first.schema.payload and not step.any_lane
    return Routing(Route.PAYLOAD) if same and routing.by is Route.PAYLOAD else None


def _sends(
    steps: Sequence[Source | Step], cut: _Cut
) -> tuple[dict[int, list[Send]], dict[str, list[Edge]]]:
    """The streams between stages, by the stage that sends, and what the ports read."""
    sends: dict[int, list[Send]] = {}
    edges: dict[str, list[Edge]] = {}
    for step in steps:
        for name, node in () if isinstance(step, Source) else step.reads:
            base, natives = base_of(node)
            of, at, end = base.id, cut.stage[base.id], cut.stage[step.id]
            routing = cut.routing.get((step.id, name))
            while at < end:
                # A stream that a later stage reads passes the ones between on any lane.
                how = routing if at + 1 == end and routing is not None else BY_IDENTITY
                of = _sent(sends.setdefault(at, []), of, node, natives, how)
                at, natives = at + 1, ()
            edges.setdefault(step.id, []).append(Edge(of, name))
    return sends, edges


def _sent(
    known: list[Send], of: str, node: Node, natives: tuple[Native, ...], routing: Routing
) -> str:
    """The name of a stream between two stages; two readers of one stream share it."""
    for one in known:
        if (one.of, one.natives, one.routing) == (of, natives, routing):
            return one.name
    root = natives[-1].id if natives else of.partition(">")[0]
    number = sum(one.name.partition(">")[0] == root for one in known)
    name = f"{root}>" if not number else f"{root}>{number}"
    known.append(Send(name, of, node, natives, routing))
    return name
