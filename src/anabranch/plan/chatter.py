"""How many changes an aggregate emits for one row, and which way to emit is the cheapest.

The numbers are for rows that arrive in the order of their starts, in triggers of one row; a
trigger emits only its net change, so with more rows it is less.  Rows that come late cost as
much in every way to emit: what was emitted is corrected.

    windows of a grid           w windows contain a row
        at once                 2 w: a removal and an insert in each
        ordered                 3 w: and the end of each, when it is over
        passed                  w at most: each window once
    window(size)                k other rows of the group are alive
        at once                 2 k + 1: the results up to the end of each of them
        ordered                 3: two ends and starts, one of which is shown open before
        passed                  2: one result for each end point
    hop(size, slide)            as window(size), with k hops instead of rows

`tests/operators/test_emission.py` measures them.
"""

from typing import Final

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.batch.times import show_span
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import AlterLifetime, DurationConstant, GridWindows, Hop
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.plan.node import Step, base_of

_CHEAPEST: Final = "emit='passed'"


def changes_per_row(step: Step) -> str | None:
    """What one row changes behind sliding windows, and what is cheaper; None behind others."""
    operator = step.operator
    if not isinstance(operator, AggregateOperator):
        return None
    windows = _windows(step)
    if windows is not None:
        count = -(-windows.size // windows.slide)
        return None if count == 1 else _of_grid(count, operator.emit)
    rule = _lifetimes(step)
    if isinstance(rule, Hop):
        hops = -(-rule.size // rule.slide)
        return _of_lifetimes(f"up to {2 * hops + 1} ({hops} hops)", operator.emit)
    if isinstance(rule, AlterLifetime) and isinstance(rule.duration, DurationConstant):
        size = rule.duration.size
        if size == FOREVER:
            return None
        span = _span(int(size), step.schema)
        return _of_lifetimes(
            f"2 k + 1 for k other rows of its group within {span}", operator.emit
        )
    return None


def holds_its_stable(step: Step) -> bool:
    """Whether one long event holds the stable of an aggregate back without a limit."""
    operator = step.operator
    if not isinstance(operator, AggregateOperator) or operator.emit is not Emit.PASSED:
        return False
    if step.in_windows or operator.by_window or operator.cut_every is not None:
        return False
    rule = _lifetimes(step)
    if isinstance(rule, AlterLifetime) and isinstance(rule.duration, DurationConstant):
        return rule.duration.size == FOREVER
    return not isinstance(rule, Hop)


def _of_grid(count: int, emit: Emit) -> str:
    if emit is Emit.PASSED:
        return f"at most {count} ({count} windows, each emitted once), the cheapest choice"
    each = 2 if emit is Emit.AT_ONCE else 3
    return (
        f"up to {each * count} ({count} windows); cheaper: {_CHEAPEST}, which emits each "
        "window once, when it is over"
    )


def _of_lifetimes(at_once: str, emit: Emit) -> str:
    if emit is Emit.PASSED:
        return f"2 ({_CHEAPEST} is the cheapest choice)"
    return f"{'3' if emit is Emit.ORDERED else at_once}; cheaper: {_CHEAPEST}, 2 per row"


def _windows(step: Step) -> GridWindows | None:
    """The windows of the grid that an aggregate reads, by panes or as rows."""
    if isinstance(step.operator, PaneAggregateOperator):
        return step.operator.windows
    below = base_of(step.reads[0][1])[0]
    operator = below.operator if isinstance(below, Step) else None
    return operator.windows if isinstance(operator, GridWindowOperator) else None


def _lifetimes(step: Step) -> AlterLifetime | Hop | None:
    """The rule of the lifetimes that an aggregate reads."""
    below = base_of(step.reads[0][1])[0]
    operator = below.operator if isinstance(below, Step) else None
    return operator.rule if isinstance(operator, AlterLifetimeOperator) else None


def _span(units: int, schema: ElementSchema) -> str:
    assert units < FOREVER_UNITS, f"{units} is no duration"
    return show_span(units) if schema.time is TimeType.TIMESTAMP else f"{units} units"
