"""Rules: a plan as another one of the same history that costs less.

A rule is a pure function: it takes a plan, and returns a better one with the reason, or nothing
where it does not apply.  `improved` applies the `RULES` until none does.  Each takes away work
that is done between stages, so it ends.  Ids stay: a step that both plans have has one id.

A `where` is opaque.  A rule moves it only below a step for which the history of the output,
filtered, is the output of the filtered input, and asks the `where` itself whether it can be
evaluated on the columns that the step passes on unchanged (`Native.reads_only`).  It stays
where it is if Spark would have to open rows that it does not open already: a boundary between
stages must be gone.
As with Spark's own optimiser, a condition may then be evaluated for rows that would have had no
partner in a join, and fail there.

What no rule does: a `where` does not move below a merge, whose replicas are judged and counted
as they come, nor into the DataFrame of a source, where validation would miss the rows.  A
`select` stays where it is: what it computes is opaque, and so is what it needs.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from anabranch.model.emission import Emit
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.aggregate.panes import fits as fits_panes
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.runs.difference import DifferenceOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.stateless import StatelessOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.node import Native, Node, Source, Step, nodes, reads_of, rewritten
from anabranch.plan.replicas import NORMAL_FORM


class Rewritten(NamedTuple):
    """A plan, and what has changed in it."""

    plan: Node
    why: str


Rule: TypeAlias = Callable[[Node], Rewritten | None]


class Passes(NamedTuple):
    """The columns that a port passes on unchanged, and whether it passes `start` as well."""

    columns: Sequence[str]
    start: bool = False


def improved(last: Source | Step) -> tuple[Source | Step, tuple[str, ...]]:
    """The plan after all rules, and what each has done, for `explain`."""
    plan: Node = last
    done: list[str] = []
    while True:
        for rule in RULES:
            found = rule(plan)
            if found is not None:
                plan = found.plan
                done.append(f"rule {rule.__name__}: {found.why}")
                break
        else:
            assert not isinstance(plan, Native), f"{plan.id} is not in lanes"
            return plan, tuple(done)


def push_where(last: Node) -> Rewritten | None:
    """A `where` goes below the step that it filters.

    It goes where Spark opens the rows already, so a boundary between stages is gone; or below
    windows, which would copy the rows that it drops.
    """
    readers = _readers(last)
    for one in nodes(last):
        if not isinstance(one, Native) or one.reads_only is None:
            continue
        step = one.of
        if not isinstance(step, Step) or readers[id(step)] > 1:
            continue
        ports = _ports_for(one, step, readers)
        if ports:
            return _pushed(last, one, step, ports)
    return None


def drop_repeated(last: Node) -> Rewritten | None:
    """A `normalise` of what is in normal form, a `distinct` of what is distinct: both go.

    A `where` between the two keeps whole events, and so the form.
    """
    for one in nodes(last):
        if not isinstance(one, Step) or one.why:
            continue
        if isinstance(one.operator, NormaliseOperator):
            forms: tuple[str, ...] = NORMAL_FORM
        elif isinstance(one.operator, DistinctOperator):
            forms = ("distinct",)
        else:
            continue
        read = below = one.reads[0][1]
        while isinstance(below, Native) and below.reads_only is not None:
            below = below.of
        is_last = one is last and isinstance(read, Native)
        if isinstance(below, Step) and below.operator.name in forms and not is_last:
            plan = _replaced(last, one, read)
            return Rewritten(plan, f"{one.id} changes nothing after {below.id}")
    return None


def panes(last: Node) -> Rewritten | None:
    """Windows and the aggregate above them are one step, which does not copy rows."""
    readers = _readers(last)
    for one in nodes(last):
        if not isinstance(one, Step) or type(one.operator) is not AggregateOperator:
            continue
        below, aggregate = one.reads[0][1], one.operator
        windows = below.operator if isinstance(below, Step) else None
        if (
            isinstance(below, Step)
            and isinstance(windows, GridWindowOperator)
            and readers[id(below)] == 1
            and "window" in aggregate.keys
            and aggregate.emit is Emit.AT_ONCE
            and aggregate.cut_every is None
            and fits_panes(aggregate.functions)
        ):
            operator = PaneAggregateOperator(
                windows.schema, aggregate.keys, aggregate.functions, windows=windows.windows
            )
            words = f"{one.words}, in {below.words}"
            made = replace(one, operator=operator, reads=below.reads, words=words)
            return Rewritten(_replaced(last, one, made), f"{below.id} is a part of {one.id}")
    return None


def drop_output(last: Node) -> Rewritten | None:
    """The step that ends a query in lanes is not needed after another step."""
    if not isinstance(last, Step) or not isinstance(last.operator, UnionOfOperator):
        return None
    if len(last.reads) > 1 or last.is_named or not isinstance(last.reads[0][1], Step):
        return None
    return Rewritten(last.reads[0][1], f"{last.id} changes nothing")


RULES: Final[tuple[Rule, ...]] = (push_where, panes, drop_repeated, drop_output)


def _passes(operator: Any) -> Mapping[str, Passes]:
    """The ports below which a condition on these columns may go, without another output.

    What changes lifetimes, or cuts them, does not pass `start`; a group is all or nothing, so
    its keys pass.
    """
    found: Mapping[str, Passes] = {}
    match operator:
        case UnionOfOperator():
            names = operator.schema.payload.names
            found = {port: Passes(names, start=True) for port in operator.ports}
        case DifferenceOperator():
            names = operator.schema.payload.names
            found = {port: Passes(names) for port in operator.ports}
        case JoinOperator(how="inner"):
            left, right = operator.left.payload.names, operator.added
            found = {"left": Passes(left), "right": Passes(right)}
        case JoinOperator():
            found = {"left": Passes(operator.left.payload.names)}
        case StatelessOperator() | DistinctOperator() | NormaliseOperator():
            found = {"input": Passes(operator.schema.payload.names)}
        case AggregateOperator() if operator.emit is not Emit.AT_ONCE:
            pass  # when its results come depends on all groups of a lane
        case AggregateOperator() | TopKOperator() | SessionOperator():
            found = {"input": Passes(tuple(operator.route_columns))}
        case SessionAggregateOperator():
            found = {"input": Passes(operator.route_columns)}
    return found


def _ports_for(one: Native, step: Step, readers: Mapping[int, int]) -> tuple[str, ...]:
    """The ports of a step below which a `where` may go; empty if it must stay."""
    assert one.reads_only is not None, f"{one.id} is no where"
    reads, passes = dict(step.reads), _passes(step.operator)
    copies = isinstance(step.operator, GridWindowOperator)
    ports = [port for port in passes if copies or _is_open(reads[port], readers)]
    is_join = isinstance(step.operator, JoinOperator)
    if not is_join and len(ports) < len(reads):
        return ()
    # Asked last: Spark's analyser answers.
    legal = tuple(
        port
        for port in ports
        if _is_clear(reads[port])
        and one.reads_only(tuple(passes[port].columns), passes[port].start)
    )
    if is_join:
        return legal[:1]
    return legal if len(legal) == len(reads) else ()


def _pushed(last: Node, one: Native, step: Step, ports: Sequence[str]) -> Rewritten:
    """The plan with a `where` below the step that it reads, at these ports."""
    taken = {each.id for each in nodes(last)} - {one.id}
    reads = []
    for port, node in step.reads:
        if port in ports:
            name = next(name for name in _names(one.id) if name not in taken)
            taken.add(name)
            node = replace(  # noqa: PLW2901
                one,
                id=name,
                of=node,
                schema=node.schema,
                final_at_start=node.final_at_start,
                in_windows=node.in_windows,
                is_moved=True,
            )
        reads.append((port, node))
    plan = _replaced(last, one, replace(step, reads=tuple(reads)))
    side = f" on the {ports[0]} side" if isinstance(step.operator, JoinOperator) else ""
    return Rewritten(plan, f"{one.id} goes before {step.id}{side}")


def _names(word: str) -> Iterator[str]:
    yield word
    yield from (f"{word}_{number}" for number in count(2))


def _is_clear(node: Node) -> bool:
    """Whether no two columns differ in letter case alone, which Spark would not accept."""
    names = node.schema.payload.names
    return len({name.lower() for name in names}) == len(names)


def _is_open(node: Node, readers: Mapping[int, int]) -> bool:
    """Whether Spark opens the rows of a node, for one reader alone."""
    return isinstance(node, Native) and readers[id(node)] == 1


def _readers(last: Node) -> Counter[int]:
    """How many ports read each node."""
    return Counter(id(read) for one in nodes(last) for read in reads_of(one))


def _replaced(last: Node, old: Node, new: Node) -> Node:
    """The plan with one node in the place of another, which is not below it."""
    return rewritten(last, lambda one: new if one is old else one)
