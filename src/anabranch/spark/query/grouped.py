"""`Grouped`: events by key, as `group_by` returns them; aggregates and rankings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from anabranch.errors import SchemaError, UsageError
from anabranch.offered import Offered
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator, fits
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.plan.node import Step
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
        id: str | None = None,  # noqa: A002
        **functions: Aggregate,
    ) -> Query:
        """One result per group for each interval in which the group's events do not change.

        After `window(size, slide)` there is one result per group and window, after `session`
        one per group and session.

        Args:
            id: The name of the step.
            **functions: The columns of the result, such as `n=ab.count()`.
        """
        wanted = tuple(
            replace(_function(one, name), name=name) for name, one in functions.items()
        )
        node = self.query.node
        keys = self.keys
        words = f"{', '.join(f'{one.name} = {one}' for one in wanted)} by {_shown(keys)}"
        if isinstance(node, Step) and (both := _in_one_step(node, keys, wanted)) is not None:
            step = Step(
                id or "aggregate",
                both,
                node.reads,
                f"{words}, in {node.words}",
                final_at_start=True,
                in_windows=True,
                is_named=id is not None,
            )
            return replace(self.query, node=step)
        operator = AggregateOperator(
            self.query._plain, keys, wanted, final_at_start=node.final_at_start
        )
        known = node.in_windows
        return self.query._step("aggregate", operator, words, id=id, in_windows=known)

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
    node: Step, keys: tuple[str, ...], wanted: tuple[Aggregate, ...]
) -> PaneAggregateOperator | SessionAggregateOperator | None:
    """Windows or sessions and the aggregate behind them as one operator, if there is one.

    Rows before windows are added up by panes, and not copied; with sessions, what is remembered
    are the open ones alone.
    """
    operator = node.operator
    if isinstance(operator, SessionOperator):
        return SessionAggregateOperator(operator, keys, wanted)
    if isinstance(operator, GridWindowOperator) and fits(wanted):
        return PaneAggregateOperator(operator.schema, keys, wanted, windows=operator.windows)
    return None


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
