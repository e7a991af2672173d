"""The operators that keep the contract's laws, each with the streams that reach it.

A new operator is one more entry in OPERATORS; `test_every_operator_has_an_entry` finds one that
has none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from merge_driver import SCHEMA
from merge_r4_driver import conflicting_r4
from ordered_driver import ordered_conflicts
from two_sided_laws import COLUMNS, sides
from unary_laws import broken_streams, streams

from anabranch.batch.batch import Batch
from anabranch.batch.codec import from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Element, Insert, Stable
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationConstant,
    GridWindows,
    Hop,
    StartRounded,
)
from anabranch.model.properties import MergeCase
from anabranch.model.time import FOREVER
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.aggregate.sessions import SessionAggregateOperator
from anabranch.operators.align import AlignOperator
from anabranch.operators.by_key.keyed import KeyedOperator
from anabranch.operators.by_key.replaced_by import ReplacedByOperator
from anabranch.operators.by_key.session import SessionOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.cleanse import CleanseOperator
from anabranch.operators.contract import Operator, Port, ports_of
from anabranch.operators.grid_windows import GridWindowOperator
from anabranch.operators.inserts import DeletesOperator, InsertsOperator
from anabranch.operators.join.operator import HOWS, JoinOperator
from anabranch.operators.key import Key
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge_of import MergeOfOperator
from anabranch.operators.report_final import ReportFinalOperator
from anabranch.operators.runs.difference import DifferenceOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.operators.runs.normalise import NormaliseOperator
from anabranch.operators.union import UnionOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import Release
from anabranch.operators.waiting.promised import PromisedOperator
from anabranch.operators.windows import OUT, WindowsOperator
from anabranch.testing.strategies import (
    conflicting_arrivals,
    histories,
    interleavings,
    replicas,
)
from anabranch.windows.profiles.known import engine
from anabranch.windows.trace import Query

Arrived = list[tuple[str, Element]]
"""Elements with the names of their inputs, in the order of arrival."""


@dataclass(frozen=True)
class Entry:
    """An operator; what may come, and inputs that keep their promises.

    `members`: inputs attach and detach, and those of `valid` have one history; else the inputs
    are the operator's ports, each with a history of its own.  `keys`: the columns that choose
    the lane.  `in_order`: what an input sends comes in one parcel, in order.
    """

    operator: Operator
    anything: st.SearchStrategy[Arrived]
    valid: st.SearchStrategy[Arrived]
    members: bool = False
    keys: tuple[str, ...] = ()
    in_order: bool = False

    @property
    def emits_rows(self) -> bool:
        """Whether the output is a table of its own, and no stream of elements."""
        return not isinstance(self.operator.output, ElementSchema)

    def batch(self, name: str, elements: list[Element]) -> Batch:
        """Elements of an input with the columns of its port."""
        ports: Mapping[str, Any] = ports_of(self.operator)
        port = ports.get(name) or next(iter(ports.values()))
        return from_elements(elements, port.schema)


def named(arrived) -> Arrived:
    """The replicas of the merge drivers have numbers."""
    return [(f"r{number}", element) for number, element in arrived]


def merge(
    case: MergeCase | None, anything: st.SearchStrategy, policy: str = "default"
) -> Entry:
    choice = choose({"any": None}, asked=case)
    operator = MergeOperator.of(SCHEMA, choice, Policy.parse(policy))
    valid = replicas(case=case or MergeCase.R4).flatmap(interleavings)
    return Entry(operator, anything.map(named), valid.map(named), members=True)


def keyed(entry: Entry, key: Key, valid: st.SearchStrategy | None = None) -> Entry:
    """The same behind a table of keys; valid inputs have one event per key."""
    return Entry(
        KeyedOperator(entry.operator, key),
        entry.anything,
        entry.valid if valid is None else valid.map(named),
        members=True,
        keys=key.columns,
    )


def once_each(case: MergeCase) -> st.SearchStrategy:
    """Replicas of histories in which a payload has one event, also provisionally."""
    alone = histories(case=MergeCase.R3, payloads=st.sampled_from("abcdefghijkl")).filter(
        lambda truth: len({event.payload for event in truth}) == len(list(truth))
    )
    made = replicas(case=case, history=alone, payloads=st.just("phantom"), phantoms=0)
    return made.flatmap(interleavings)


def unary(of: Callable[..., Operator]) -> Entry:
    def alone(stream):
        return [("input", element) for element in stream]

    return Entry(of(SCHEMA), broken_streams().map(alone), streams().map(alone))


def trusting(operator: Operator, keys: tuple[str, ...] = ()) -> Entry:
    """An operator inside a query: its input was validated."""
    valid = streams().map(lambda stream: [("input", element) for element in stream])
    return Entry(operator, valid, valid, keys=keys)


def promised(operator: Operator) -> Entry:
    """Elements in any order, and numbers that are promises or none."""
    counts = st.builds(Insert, st.integers(0, 3), st.integers(-3, 9), st.integers(-3, 9)).map(
        lambda one: ("promises", one)
    )
    anything = st.tuples(broken_streams(), st.lists(counts, max_size=4)).flatmap(
        lambda both: st.permutations([*(("input", e) for e in both[0]), *both[1]])
    )
    valid = streams().flatmap(
        lambda stream: st.permutations(
            [("input", e) for e in stream if not isinstance(e, Stable)]
        )
    )
    return Entry(operator, anything, valid)


def several(operator: Operator, keys: tuple[str, ...] = ()) -> Entry:
    """An operator inside a query with a key and a value, and perhaps with two ports."""
    valid = sides(tuple(ports_of(operator)))
    return Entry(operator, valid, valid, keys=keys)


def union(operator: Operator, case: MergeCase = MergeCase.R4) -> Entry:
    valid = replicas(case=case).flatmap(interleavings)
    return Entry(operator, conflicting_r4.map(named), valid.map(named), members=True)


def merge_of(case: MergeCase) -> Entry:
    """A merge inside a query: its replicas were validated, and never leave."""
    two = replicas(case=case, min_inputs=2, max_inputs=2)
    valid = two.flatmap(interleavings).map(named)
    return Entry(MergeOfOperator(SCHEMA, ("r0", "r1"), case), valid, valid, in_order=True)


GROUPED = pa.schema(
    [
        ("key_0", pa.string()), ("value", pa.int64()), ("absent", pa.bool_()),
        ("order", pa.int64()), ("batch", pa.int64()), ("flaw", pa.string()),
    ]
)  # fmt: skip
"""The columns of a window query with one column of groups."""
_TYPES = {"reported": pa.bool_(), "late": pa.bool_(), "reason": pa.string()}
MADE = pa.schema([("key_0", pa.string()), *((n, _TYPES.get(n, pa.int64())) for n in OUT)])


def windows(like: str) -> Entry:
    """A window query: its elements are rows, and so is its output."""
    query = Query(4, 2, "sum")
    operator = WindowsOperator(engine(like), query, GROUPED, MADE, 1, False, "keep")
    row = st.tuples(st.sampled_from("abc"), st.integers(0, 30), st.integers(-5, 5))

    def made(rows, flawed) -> Arrived:
        flaws = ["no value" if place in flawed else "" for place in range(len(rows))]
        payloads = [
            ((key, value, False, place, 0, flaw), time)
            for place, ((key, time, value), flaw) in enumerate(zip(rows, flaws, strict=True))
        ]
        return [("rows", Insert(payload, time, FOREVER)) for payload, time in payloads]

    rows = st.lists(row, max_size=16)
    anything = st.builds(made, rows, st.sets(st.integers(0, 15), max_size=2))
    return Entry(operator, anything, st.builds(made, rows, st.just(())), keys=("key_0",))


PAIRS = ElementSchema(TimeType.BIGINT, COLUMNS)
ITS_PAIRS = ElementSchema(TimeType.BIGINT, pa.schema({"k": pa.string(), "w": pa.int64()}))
FUNCTIONS = (
    Aggregate("count", None, "n"),
    Aggregate("sum", "v", "total"),
    Aggregate("min", "v", "least"),
    Aggregate("count_distinct", "v", "different"),
)
POLICIES = [
    "stable_lag=2",
    "adjusts=always",
    "inserts=half_frozen",
    "inserts=quorum(0.5),adjusts=follow_leader",
    "promote=true",
    "shrink_only=true",
    "gaps=true",
    "gaps=true,wait=2",
    "remember=2",
]
BAG_POLICIES = ["shrink_only=true", "gaps=true,wait=2", "remember=2"]
"""Of the choices that R4 has, those that bags make different."""

OPERATORS: dict[str, Entry] = {
    "merge r0": merge(MergeCase.R0, ordered_conflicts(MergeCase.R0)),
    "merge r1": merge(MergeCase.R1, ordered_conflicts(MergeCase.R1)),
    "merge r2": merge(MergeCase.R2, ordered_conflicts(MergeCase.R2)),
    "merge r3": merge(MergeCase.R3, conflicting_arrivals()),
    "merge r4": merge(MergeCase.R4, conflicting_r4),
    "merge auto": merge(None, conflicting_r4),
    **{
        f"merge r3 {policy}": merge(MergeCase.R3, conflicting_arrivals(), policy)
        for policy in POLICIES
    },
    **{
        f"merge r4 {policy}": merge(MergeCase.R4, conflicting_r4, policy)
        for policy in BAG_POLICIES
    },
    "keyed merge": keyed(
        merge(MergeCase.R3, conflicting_arrivals()), Key(("p",)), once_each(MergeCase.R3)
    ),
    "keyed merge by start": keyed(
        merge(MergeCase.R3, conflicting_arrivals()), Key(("p",), with_start=True)
    ),
    "keyed union that drops": keyed(
        union(UnionOperator(SCHEMA)), Key(("p",), drops=True), once_each(MergeCase.R4)
    ),
    **{f"merge of queries {case.value}": merge_of(case) for case in MergeCase},
    "normalise": unary(NormaliseOperator),
    "cleanse": unary(CleanseOperator),
    "align": unary(AlignOperator),
    "final": unary(ReportFinalOperator),
    "union": union(UnionOperator(SCHEMA)),
    "union of inserts": union(UnionOperator(SCHEMA, insert_only=True), MergeCase.R1),
    "union inside a query": several(UnionOfOperator(PAIRS, ("one", "other"))),
    "alter_lifetime": trusting(AlterLifetimeOperator(SCHEMA, AlterLifetime())),
    "tumbling": trusting(
        AlterLifetimeOperator(SCHEMA, AlterLifetime(StartRounded(4), DurationConstant(4)))
    ),
    "hop": trusting(AlterLifetimeOperator(SCHEMA, Hop(3, 2))),
    "window": trusting(GridWindowOperator(SCHEMA, GridWindows(5, 2))),
    "aggregate": several(AggregateOperator(PAIRS, ("k",), FUNCTIONS), keys=("k",)),
    "aggregate that reports final": several(
        AggregateOperator(PAIRS, ("k",), FUNCTIONS).reporting_final(), keys=("k",)
    ),
    **{
        f"aggregate {emit.value} {every}": several(
            AggregateOperator(PAIRS, ("k",), FUNCTIONS, emit=emit, cut_every=every),
            keys=("k",),
        )
        for emit, every in [(Emit.PASSED, None), (Emit.ORDERED, 3), (Emit.AT_ONCE, 3)]
    },
    "aggregate passed 3 that reports final": several(
        AggregateOperator(
            PAIRS, ("k",), FUNCTIONS, emit=Emit.PASSED, cut_every=3
        ).reporting_final(),
        keys=("k",),
    ),
    "panes": trusting(
        PaneAggregateOperator(
            SCHEMA, ("p", "window"), (Aggregate("count", None, "n"),), windows=GridWindows(5, 2)
        ),
        keys=("p",),
    ),
    "panes when passed": trusting(
        PaneAggregateOperator(
            SCHEMA,
            ("p", "window"),
            (Aggregate("count", None, "n"),),
            windows=GridWindows(5, 2),
            emit=Emit.PASSED,
        ),
        keys=("p",),
    ),
    "replaced_by": trusting(ReplacedByOperator(SCHEMA, ())),
    "session": trusting(SessionOperator(SCHEMA, 2, ("p",)), keys=("p",)),
    "sessions": trusting(
        SessionAggregateOperator(
            SessionOperator(SCHEMA, 2, ("p",)),
            ("p", "window"),
            (Aggregate("count", None, "n"), Aggregate("min", "p", "least")),
        ),
        keys=("p",),
    ),
    "top_k": trusting(TopKOperator(SCHEMA, (), 2, ())),
    "finalize": trusting(FinalizeOperator(SCHEMA, 3)),
    "promises": promised(PromisedOperator(SCHEMA, -3)),
    "promises that are forced": promised(PromisedOperator(SCHEMA, -3, remember=3)),
    "hold": trusting(HoldOperator(SCHEMA)),
    "hold of final events": trusting(HoldOperator(SCHEMA, release=Release.FINAL)),
    "hold beside another": several(HoldOperator(PAIRS, beside=(Port(PAIRS),))),
    "inserts": trusting(InsertsOperator(SCHEMA)),
    "deletes": trusting(DeletesOperator(SCHEMA)),
    "distinct": several(DistinctOperator(PAIRS)),
    "difference": several(DifferenceOperator(PAIRS)),
    **{
        f"join {how}": several(JoinOperator(PAIRS, ITS_PAIRS, (("k", "k"),), how), keys=("k",))
        for how in HOWS
    },
    "windows one by one": windows("streambase"),
    "windows every": windows("anabranch"),
}
