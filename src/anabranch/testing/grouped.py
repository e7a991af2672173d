"""Operators of groups, as an `Engine` runs them: aggregates, top_k, sessions; and references.

Each is made from the options of `engine`, which a case file writes as text too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.element import Element, Stable
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.contract import ControlEntry, Gap, Operator, Outcome, Reason, Released
from anabranch.operators.grid_windows import WINDOW
from anabranch.operators.reference.aggregate import AggregateByElement
from anabranch.operators.reference.panes import PanesByElement
from anabranch.operators.reference.session import SessionByElement, SessionsByElement
from anabranch.operators.reference.top_k import TopKByElement
from anabranch.testing.lifetime_rules import rule_of

Options = Mapping[str, Any]


Grouped: TypeAlias = (
    AggregateByElement | PanesByElement | SessionByElement | SessionsByElement | TopKByElement
)


@dataclass
class GroupedReference:
    """The reference of an operator of groups."""

    operator: Grouped
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """End points, events or rows that are still needed."""
        return self.operator.live

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The one input is always there."""
        del entry
        return (), ()

    def check(self) -> None:
        """It remembers everything, and states no invariant."""

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of the input, whatever its name."""
        del name
        output = self.operator.push(element)
        if isinstance(element, Stable):
            leads = any(isinstance(one, Stable) for one in output)
            return Outcome(Reason.LEADS if leads else Reason.FOLLOWS, output)
        return Outcome(Reason.NO_CHANGE if element.changes_nothing else Reason.APPLIED, output)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: it trusts its input."""
        del found
        return ()


def aggregate_of(schema: ElementSchema, options: Options) -> Operator:
    """The operator with these options."""
    when = _emission(options)
    return AggregateOperator(schema, *_aggregate_options(_without(options, when)), **when)


def aggregate_reference(payload: pa.Schema, options: Options) -> GroupedReference:
    """The reference for these columns."""
    when = _emission(options)
    keys, functions = _aggregate_options(_without(options, when))
    made = AggregateByElement(payload.names, keys, functions, payload, **when)
    return GroupedReference(made)


def _emission(options: Options) -> dict[str, Any]:
    """`emit`, `cut_every` and what is known of ends, as far as they are given."""
    names = ("emit", "cut_every", "final_at_start", "by_window")
    found = {name: options[name] for name in names if name in options}
    if "emit" in found:
        found["emit"] = Emit.of(found["emit"], where="engine")
    return found


def _without(options: Options, some: Options) -> Options:
    return {name: options[name] for name in options if name not in some}


def _aggregate_options(options: Options) -> tuple[tuple[str, ...], tuple[Aggregate, ...]]:
    """`keys`, names of columns, and `functions`: aggregates, or one as text, such as sum(x)."""
    unknown = sorted(options.keys() - {"keys", "functions"})
    if unknown:
        message = (
            f"engine: aggregate has no option {unknown[0]!r}; it has keys, functions, emit, "
            "cut_every, final_at_start and by_window"
        )
        raise UsageError(message)
    functions = options.get("functions", "count(*)")
    if isinstance(functions, str):
        kind, _, column = functions.removesuffix(")").partition("(")
        functions = [Aggregate(kind, None if column == "*" else column, "value")]
    return tuple(options.get("keys", ())), tuple(functions)


def panes_of(schema: ElementSchema, options: Options) -> Operator:
    """The operator with these options."""
    when = _emission(options)
    rule, keys, functions = _panes_options(_without(options, when))
    return PaneAggregateOperator(schema, keys, functions, windows=rule, **when)


def panes_reference(payload: pa.Schema, options: Options) -> GroupedReference:
    """The reference for these columns."""
    when = _emission(options)
    made = PanesByElement(payload, *_panes_options(_without(options, when)), **when)
    return GroupedReference(made)


def _panes_options(
    options: Options,
) -> tuple[GridWindows, tuple[str, ...], tuple[Aggregate, ...]]:
    """Those of `window` and of `aggregate`; the window is the last key."""
    own = {name: options[name] for name in ("keys", "functions") if name in options}
    rule = rule_of("window", {name: options[name] for name in options.keys() - own.keys()})
    assert isinstance(rule, GridWindows), f"{rule} is no grid of windows"
    keys, functions = _aggregate_options(own)
    return rule, (*keys, WINDOW), functions


def top_k_of(schema: ElementSchema, options: Options) -> Operator:
    """The operator with these options."""
    return TopKOperator(schema, *_top_k_options(options))


def top_k_reference(payload: pa.Schema, options: Options) -> GroupedReference:
    """The reference for these columns."""
    return GroupedReference(TopKByElement(payload.names, *_top_k_options(options)))


def _top_k_options(
    options: Options,
) -> tuple[tuple[str, ...], int, tuple[tuple[str, bool], ...]]:
    """`keys`, `k` (1), and `by`: names of columns, or one; with a minus, greatest first."""
    unknown = sorted(options.keys() - {"keys", "k", "by"})
    if unknown:
        message = f"engine: top_k has no option {unknown[0]!r}; it has keys, k and by"
        raise UsageError(message)
    by = options.get("by", ())
    names = (by,) if isinstance(by, str) else tuple(by)
    order = tuple((name.removeprefix("-"), not name.startswith("-")) for name in names)
    return tuple(options.get("keys", ())), int(options.get("k", 1)), order


def session_of(schema: ElementSchema, options: Options) -> Operator:
    """The operator with these options."""
    return SessionOperator(schema, *_session_options(options))


def session_reference(payload: pa.Schema, options: Options) -> GroupedReference:
    """The reference for these columns."""
    return GroupedReference(SessionByElement(payload.names, *_session_options(options)))


def sessions_of(schema: ElementSchema, options: Options) -> Operator:
    """The aggregate by session with these options."""
    own, keys, functions = _sessions_options(options)
    return SessionAggregateOperator(SessionOperator(schema, *own), keys, functions)


def sessions_reference(payload: pa.Schema, options: Options) -> GroupedReference:
    """The reference for these columns."""
    own, keys, functions = _sessions_options(options)
    return GroupedReference(SessionsByElement(payload, *own, keys, functions))


def _sessions_options(
    options: Options,
) -> tuple[tuple[int, tuple[str, ...]], tuple[str, ...], tuple[Aggregate, ...]]:
    """Those of `session`, and of `aggregate`; without keys, those of the session."""
    own = _session_options({name: options[name] for name in ("gap", "by") if name in options})
    more = {name: options[name] for name in options.keys() - {"gap", "by"}}
    keys, functions = _aggregate_options({"keys": own[1], **more})
    return own, (*keys, WINDOW), functions


def _session_options(options: Options) -> tuple[int, tuple[str, ...]]:
    """`gap`, and `by`: names of columns, or one."""
    unknown = sorted(options.keys() - {"gap", "by"})
    if unknown:
        message = f"engine: session has no option {unknown[0]!r}; it has gap and by"
        raise UsageError(message)
    by = options.get("by", ())
    return int(options["gap"]), (by,) if isinstance(by, str) else tuple(by)
