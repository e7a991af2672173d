"""`Grouped`: events by key, as `group_by` returns them; aggregates and rankings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from anabranch.errors import SchemaError, UsageError
from anabranch.model.emission import Emit
from anabranch.offered import Offered
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator, fits
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.plan.node import Native, Node, Step
from anabranch.spark.query.fluent import WINDOW
from anabranch.spark.query.native import Where
from anabranch.spark.query.query import Query


@dataclass(frozen=True, eq=False)
class Grouped(Offered):
    """Events of a query by the values of some columns; the result of `group_by`."""

    _hidden = "query"
    query: Query
    keys: tuple[str, ...]

    def aggregate(
        self,
        *,
        emit: "Literal['at_once', 'ordered', 'passed'] | None" = None,
        cut_every: str | int | None = None,
        id: str | None = None,  # noqa: A002
        **functions: Aggregate,
    ) -> Query:
        """One result per group for each interval in which the group's events do not change.

        After `window(size, slide)` there is one result per group and window, after `session`
        one per group and session.

        Args:
            emit: When an event is emitted. "at_once": as soon as it is known, which is the
                least latency. "ordered": when its start is reached, without its end as long as
                it goes on; input in order gives output in order. "passed": when time has
                passed its end; input in order is never corrected. Time is the greatest start
                that the group has seen, or the frontier. Default: "at_once"; "passed" with a
                `consistency` that waits for stables.
            cut_every: Cuts results at the multiples of a duration. With "passed" the output's
                stable is held at the start of the first result that may still change; this
                bounds by how much.
            id: The name of the step.
            **functions: The columns of the result, such as `n=ab.count()`.
        """
        way = _emission(emit, cut_every, self.query)
        wanted = tuple(
            replace(_function(one, name), name=name) for name, one in functions.items()
        )
        node = self.query.node
        keys = self.keys
        words = f"{', '.join(f'{one.name} = {one}' for one in wanted)} by {_shown(keys)}"
        words += way.words
        both = _in_one_step(node, keys, wanted, way.emit) if isinstance(node, Step) else None
        if isinstance(node, Step) and both is not None:
            step = Step(
                id or "aggregate",
                both,
                node.reads,
                f"{words}, in {node.words}",
                final_at_start=True,
                in_windows=True,
                is_named=id is not None,
                emits=way.asked,
            )
            return replace(self.query, node=step)
        operator = AggregateOperator(
            self.query._plain,
            keys,
            wanted,
            final_at_start=node.final_at_start,
            emit=way.emit,
            cut_every=way.cut_every,
            by_window=WINDOW in keys and _behind_grid(node),
        )
        known = node.in_windows
        made = self.query._step("aggregate", operator, words, id=id, in_windows=known)
        assert isinstance(made.node, Step), f"{made.node.id} is in lanes"
        return replace(made, node=replace(made.node, emits=way.asked))

    def top_k(
        self,
        k: int,
        *,
        by: "str | Sequence[str]",
        id: str | None = None,  # noqa: A002
    ) -> Query:
        """At every time the first `k` rows of each group.

        Args:
            k: How many rows.
            by: Columns that rank the rows, the first one first; "-price" ranks by greatest
                price.  Ties are broken by the whole row, so that copies of a query agree.
            id: The name of the step.
        """
        from anabranch.operators.by_key.top_k import TopKOperator

        names = (by,) if isinstance(by, str) else tuple(by)
        if k < 1:
            message = f"top_k: k is {k}; it must be 1 or more"
            raise UsageError(message)
        order = tuple((name.removeprefix("-"), not name.startswith("-")) for name in names)
        for name, _ in order:
            if name not in self.query.columns:
                message = f"top_k: there is no column '{name}'; there are {self.query.columns}"
                raise SchemaError(message)
        operator = TopKOperator(self.query._plain, self.keys, k, order)
        words = f"first {k} by {', '.join(names)} of {_shown(self.keys)}"
        known = self.query.node.in_windows
        return self.query._step("top_k", operator, words, id=id, in_windows=known)


def _in_one_step(
    node: Step, keys: tuple[str, ...], wanted: tuple[Aggregate, ...], emit: Emit
) -> PaneAggregateOperator | SessionAggregateOperator | None:
    """Windows or sessions and the aggregate behind them as one operator, if there is one.

    Rows before windows are added up by panes, and not copied; with sessions, what is remembered
    are the open ones alone.
    """
    operator = node.operator
    if isinstance(operator, SessionOperator) and emit is Emit.AT_ONCE:
        return SessionAggregateOperator(operator, keys, wanted)
    is_open = emit is Emit.ORDERED  # then a window has no end at first
    if isinstance(operator, GridWindowOperator) and fits(wanted) and not is_open:
        rows, windows = operator.schema, operator.windows
        return PaneAggregateOperator(rows, keys, wanted, windows=windows, emit=emit)
    return None


@dataclass(frozen=True)
class _Emission:
    """When results are emitted, and how that is recorded."""

    emit: Emit
    cut_every: int | None
    words: str
    asked: Emit | None


def _emission(emit: object, cut_every: str | int | None, query: Query) -> _Emission:
    """The options of `aggregate`; UsageError if they are wrong, or do not go with windows."""
    asked = None if emit is None else Emit.of(emit, where="aggregate")
    way = asked or Emit.AT_ONCE
    words = "" if way is Emit.AT_ONCE else f", emit {way.value}"
    if cut_every is None:
        return _Emission(way, None, words, asked)
    if isinstance(cut_every, Aggregate):
        message = (
            f"aggregate: cut_every={cut_every} is no duration; a column of the result cannot "
            "be called cut_every"
        )
        raise UsageError(message)
    if query.node.in_windows:
        message = (
            f"aggregate: cut_every={cut_every!r} would cut windows into pieces; leave it out: "
            "the output waits for nothing but the ends of windows"
        )
        raise UsageError(message)
    every = query._units(cut_every, "aggregate: cut_every")
    return _Emission(way, every, f"{words}, cut every {query._span(every)}", asked)


def _behind_grid(node: Node) -> bool:
    """Whether the events of a node are windows of one grid as they were made."""
    while isinstance(node, Native) and isinstance(node.change, Where):
        node = node.of
    return isinstance(node, Step) and isinstance(node.operator, GridWindowOperator)


def _function(given: object, name: str) -> Aggregate:
    if isinstance(given, Aggregate):
        return given
    message = (
        f"aggregate: {name}={given!r} is no aggregate; write {name}=ab.count(), "
        f"{name}=ab.sum('column') or another function of ab"
    )
    raise UsageError(message)


def _shown(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "nothing"
