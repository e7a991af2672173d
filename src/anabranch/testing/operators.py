"""The operators that an `Engine` can run: a new one is one more entry here.

An entry defines how the operator is made from the options of `engine`, its reference, and
which view of a query on Spark has its output.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.element import Element, Event, Stable
from anabranch.model.frozen import Status, status
from anabranch.model.time import Time
from anabranch.operators.align import AlignOperator
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.operators.cleanse import CleanseOperator
from anabranch.operators.contract import (
    Attach,
    ControlEntry,
    Detach,
    Gap,
    Operator,
    Outcome,
    Reason,
    Released,
)
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.inserts import DeletesOperator, InsertsOperator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.reference.align import Align
from anabranch.operators.reference.cleanse import Cleanse
from anabranch.operators.reference.lifetimes import Deletes, Inserts, NewLifetimes
from anabranch.operators.reference.normalise import Normalise
from anabranch.operators.reference.replaced_by import ReplacedBy
from anabranch.operators.reference.report_final import ReportFinal
from anabranch.operators.reference.union import Union
from anabranch.operators.report_final import ReportFinalOperator
from anabranch.operators.runs.difference import DifferenceOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.union import UnionOperator
from anabranch.testing.backends import Reference
from anabranch.testing.grouped import (
    aggregate_of,
    aggregate_reference,
    panes_of,
    panes_reference,
    session_of,
    session_reference,
    sessions_of,
    sessions_reference,
    top_k_of,
    top_k_reference,
)
from anabranch.testing.lifetime_rules import rule_of
from anabranch.testing.merging import (
    KeyedReference,
    KeyOf,
    MergeReference,
    keyed_of,
    merge_of,
)
from anabranch.testing.trusting import (
    difference_reference,
    distinct_reference,
    join_of,
    join_reference,
    union_of,
    union_of_reference,
)
from anabranch.testing.waiting import (
    finalize_of,
    finalize_reference,
    hold_of,
    hold_reference,
    promised_of,
    promised_reference,
)

Options = Mapping[str, Any]
Unary: TypeAlias = Normalise | Cleanse | Align | ReportFinal | NewLifetimes | ReplacedBy


@dataclass(frozen=True)
class Entry:
    """How an operator is made, what it means, and what shows it on Spark.

    `call` is the public function that runs it on Spark, and `spark_options` what that needs
    beside the options; without one the query of these functions hosts the operator itself.
    `typed` makes a reference that depends on the payload columns, instead of `reference`.
    `view` is the view with its output: of an operator whose view is `final` the output are the
    events that it reports as final.  `has_members`: inputs attach and leave; an operator of one
    input has none.
    """

    operator: Callable[[ElementSchema, Options], Operator]
    reference: Callable[[Options], Reference]
    view: str = "elements"
    call: str | None = None
    spark_options: Options = field(default_factory=dict)
    has_members: bool = True
    typed: Callable[[pa.Schema, Options], Reference] | None = None

    def reference_of(self, payload: pa.Schema, options: Options) -> Reference:
        """The reference for these columns and options."""
        return self.reference(options) if self.typed is None else self.typed(payload, options)


@dataclass
class StreamReference:
    """The reference of an operator of one input."""

    operator: Unary
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """Events that are not final, or wait for others."""
        if isinstance(self.operator, Normalise):
            return sum(own.total() for own in self.operator.live.values())
        return self.operator.waiting.total()

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The one input is always there."""
        del entry
        return (), ()

    def check(self) -> None:
        """Assert the invariants of the operator; report_final states none."""
        if not isinstance(self.operator, ReportFinal):
            self.operator.check()

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of the input, whatever its name."""
        del name
        broken, frontier = len(self.operator.violations), self.operator.frontier
        output = self.operator.push(element)
        if len(self.operator.violations) > broken:
            return Outcome(Reason[self.operator.violations[-1].reason.name])
        if isinstance(element, Stable):
            if any(isinstance(one, Stable) for one in output):
                return Outcome(Reason.LEADS, output)
            moved = self.operator.frontier > frontier
            return Outcome(Reason.APPLIED if moved else Reason.FOLLOWS, output)
        return Outcome(Reason.NO_CHANGE if element.changes_nothing else Reason.APPLIED, output)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: an operator of one input has no replica to detach."""
        del found
        return ()


@dataclass
class UnionReference:
    """The reference of union."""

    union: Union = field(default_factory=Union)
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @classmethod
    def of(cls, options: Options) -> "UnionReference":
        """From the keywords of `engine`."""
        return cls(Union(**options))

    @property
    def live(self) -> int:
        """Events of attached inputs that the output's frontier has not made final."""
        held = (one.live for one in self.union.inputs.values())
        frontier = self.union.frontier
        return sum(n for own in held for e, n in own.items() if not is_final(e, frontier))

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """An input comes or leaves."""
        if isinstance(entry, Attach):
            return self.union.attach(entry.input), ()
        return self.union.detach(entry.input) if isinstance(entry, Detach) else (), ()

    def check(self) -> None:
        """Union states no invariant of its own."""

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""
        return self.union.push(name, element)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: union has no policy."""
        del found
        return ()


def is_final(event: Event, frontier: Time) -> bool:
    """Whether a stable at this time leaves nothing to change about the event."""
    return status(event.start, event.end, frontier=frontier) is Status.FROZEN


def _union(schema: ElementSchema, options: Options) -> Operator:
    if unknown := sorted(options.keys() - {"insert_only"}):
        message = f"engine: union has no option {unknown[0]!r}; it has insert_only"
        raise UsageError(message)
    return UnionOperator(schema, **options)


def _plain(
    operator: Callable[[ElementSchema], Operator], reference: Callable[[], Reference]
) -> Entry:
    """An operator without options and members."""

    def made(schema: ElementSchema, options: Options) -> Operator:
        if options:
            message = f"engine: {operator(schema).name} has no option {min(options)!r}"
            raise UsageError(message)
        return operator(schema)

    return Entry(made, lambda _: reference(), has_members=False)


def _unary(
    operator: Callable[..., Operator],
    reference: Callable[..., Unary],
    options: Sequence[str] = (),
    **on_spark: Any,
) -> Entry:
    """An operator of one input; it and its reference have these options."""

    def made(schema: ElementSchema, given: Options) -> Operator:
        unknown = sorted(given.keys() - set(options))
        if unknown:
            message = f"engine: {operator(schema).name} has no option {unknown[0]!r}"
            raise UsageError(message)
        return operator(schema, **given)

    def referred(given: Options) -> Reference:
        return StreamReference(reference(**given))

    return Entry(made, referred, has_members=False, **on_spark)


def _rule(name: str, operator: Callable[..., Operator]) -> Entry:
    """An operator that is made from a rule for lifetimes."""

    def made(schema: ElementSchema, options: Options) -> Operator:
        return operator(schema, rule_of(name, options))

    def referred(options: Options) -> Reference:
        return StreamReference(NewLifetimes(rule_of(name, options)))

    return Entry(made, referred, has_members=False)


COMPLETE: Final = {"assume_complete": True}
"""An input that only pushes is complete from the beginning, as on every engine."""

OPERATORS: Final[Mapping[str, Entry]] = {
    "merge": Entry(merge_of, MergeReference.of, call="merge", spark_options=COMPLETE),
    "keyed": Entry(
        keyed_of,
        lambda options: KeyedReference.typed(pa.schema([]), options),
        spark_options=COMPLETE,
        typed=KeyedReference.typed,
    ),
    "normalise": _unary(NormaliseOperator, Normalise),
    "cleanse": _unary(CleanseOperator, Cleanse),
    "align": _unary(AlignOperator, Align),
    "hold": Entry(hold_of, hold_reference, has_members=False),
    "finalize": Entry(finalize_of, finalize_reference, has_members=False),
    "promised": Entry(promised_of, promised_reference, has_members=False),
    "final": _unary(
        ReportFinalOperator,
        ReportFinal,
        ["final_at_start"],
        view="final",
        call="merge",
        spark_options=COMPLETE,
    ),
    "alter_lifetime": _rule("alter_lifetime", AlterLifetimeOperator),
    "hop": _rule("hop", AlterLifetimeOperator),
    "window": _rule("window", GridWindowOperator),
    "replaced_by": Entry(
        lambda schema, options: ReplacedByOperator(schema, KeyOf.of(options).keys),
        lambda options: StreamReference(ReplacedBy(KeyOf.of(options))),
        has_members=False,
    ),
    "inserts": _unary(InsertsOperator, lambda: NewLifetimes(Inserts())),
    "deletes": _unary(
        DeletesOperator, lambda **known: NewLifetimes(Deletes(**known)), ["final_at_start"]
    ),
    "aggregate": Entry(
        aggregate_of,
        lambda options: aggregate_reference(pa.schema([]), options),
        has_members=False,
        typed=aggregate_reference,
    ),
    "panes": Entry(
        panes_of,
        lambda options: panes_reference(pa.schema([]), options),
        has_members=False,
        typed=panes_reference,
    ),
    "top_k": Entry(
        top_k_of,
        lambda options: top_k_reference(pa.schema([]), options),
        has_members=False,
        typed=top_k_reference,
    ),
    "session": Entry(
        session_of,
        lambda options: session_reference(pa.schema([]), options),
        has_members=False,
        typed=session_reference,
    ),
    "sessions": Entry(
        sessions_of,
        lambda options: sessions_reference(pa.schema([]), options),
        has_members=False,
        typed=sessions_reference,
    ),
    "union": Entry(_union, UnionReference.of, call="union"),
    "union_of": _plain(union_of, union_of_reference),
    "distinct": _plain(DistinctOperator, distinct_reference),
    "difference": _plain(DifferenceOperator, difference_reference),
    "join": Entry(join_of, join_reference, has_members=False),
}
