"""Plans in lanes without Spark: sources, stages, and filters between them.

`PlanRun` runs a plan as `Planned` lays it out.  A `where` of Spark's is a function of an
element here.  A trigger reads all states from the stores and saves them there, as other workers
would.  What reaches each port of a merge of replicas is kept, lane by lane.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema
from anabranch.model import Element, Stable, StreamProperties
from anabranch.model.time import NEVER
from anabranch.operators.contract import Inputs, Operator, StepResult
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge_of import MergeOfState
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.operators.route import Routing
from anabranch.operators.union import UnionOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.operators.waiting.level import Level
from anabranch.plan.consistency import placed
from anabranch.plan.node import Native, Node, Source, Step, with_names
from anabranch.plan.properties import properties
from anabranch.plan.replicas import settled
from anabranch.plan.stages import Send, stages
from anabranch.sources.channels import ELEMENTS, FINAL, LATE
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.rows import LaneRow
from anabranch.spark.lane.spec import Entry, Founder, LaneSpec, with_stables
from anabranch.spark.lane.state import NO_COPIES, load, store
from anabranch.spark.lane.trigger import Made, make
from anabranch.spark.pack.parcels import (
    CLOCK,
    LEVEL,
    UNROUTED,
    Facts,
    Parcel,
    from_row,
    in_every_lane,
    pieces,
    to_rows,
)
from anabranch.spark.query.laid_out import laid_out, pipeline_of, sent_schema
from anabranch.spark.write.formats import ElementsForm
from anabranch.testing.in_lanes import Parts

Keep = Callable[[Element], bool]


def source(
    name: str,
    schema: ElementSchema,
    known: StreamProperties | None = None,
    operator: Operator | None = None,
) -> Source:
    """A stream that enters a plan: validated alone, or by the operator that it is given."""
    made = operator or UnionOperator(schema)
    entry = SimpleNamespace(spec=lambda: SimpleNamespace(pipeline=(PipelineStep(name, made),)))
    may_follow = not isinstance(made, MergeOperator) or made.route.value == "identity"
    return Source(
        name,
        entry,
        schema,
        Routing.of(made),
        "stream",
        may_follow=may_follow,
        properties=known or StreamProperties(),
    )


def where(node: Node, keep: Keep, words: str) -> Native:
    """A filter between two stages."""
    return Native("where", node, keep, node.schema, f"where {words}", one_to_one=True)


@dataclass
class PlanRun:
    """A plan in this number of lanes; each trigger is read from the stores and saved there.

    With a `level` of consistency rows may come late: `late` has them.
    """

    node: Source | Step
    lanes: int = 1
    final: bool = False
    output: list[Element] = field(default_factory=list)
    finals: list[Element] = field(default_factory=list)
    reads: dict[int, dict[str, list[Element]]] = field(default_factory=dict)
    """By lane: what each port of the last merge of replicas has read."""
    conflicts: int = 0
    trigger: int = 0
    level: Level | None = None
    late: list[Element] = field(default_factory=list)
    pending: int = 0
    due: int | None = None

    def __post_init__(self) -> None:
        node = self.node if self.level is None else placed(self.node, self.level)
        named = with_names(node)
        assert not isinstance(named, Native)
        self.last = settled(named, self.lanes)
        self.cut, self.routings = stages(self.last)
        sources = [one.node for one in self.cut[0].steps if isinstance(one.node, Source)]
        self.sources = {one.id: one for one in sources}
        entries = tuple(
            Entry(one.id, Order(one.schema), frozenset({one.id})) for one in sources
        )
        first = LaneSpec(
            "run",
            self.lanes,
            pipeline_of(self.cut[0]),
            entries[0].order,
            tuple(Founder(one.id) for one in sources),
            entries=entries,
        )
        self.specs = laid_out(self.cut, first)
        if self.final:
            at_start = isinstance(self.last, Step) and self.last.final_at_start
            pipeline = with_final(self.specs[-1].pipeline, at_start=at_start)
            self.specs[-1] = replace(self.specs[-1], pipeline=pipeline, final=True)
        if self.cut[-1].holds_stables and self.lanes > 1:
            self.specs += with_stables(self.specs.pop(), UnionOfOperator(self.last.schema))
        self.stores = [[Parts() for _ in range(one.lanes)] for one in self.specs]

    @property
    def frontier(self) -> float:
        """The last stable."""
        return max((one.time for one in self.output if isinstance(one, Stable)), default=NEVER)

    @property
    def promised(self) -> Mapping[str, StreamProperties]:
        """What the output of each node promises."""
        return properties(self.last, self.lanes)

    def push(
        self,
        arrivals: Mapping[str, Sequence[Element]],
        level: Level | None = None,
        time: int | None = None,
    ) -> None:
        """One trigger, at a time, in which these elements arrive; perhaps another level."""
        tick = Parcel(0, "", log=self.trigger, entry=CLOCK, at=time)
        parcels = [] if time is None else in_every_lane(tick, self.lanes)
        if level is not None:
            entry = Parcel(0, "", log=self.trigger, entry=LEVEL, settings=str(level))
            parcels += in_every_lane(entry, self.lanes)
        for name, elements in arrivals.items():
            base = Parcel(0, name, attachment=1, log=self.trigger, file="f")
            batch = from_elements(elements, self.sources[name].schema)
            places = pa.table({"row": pa.array(np.arange(len(elements)))})
            parcels += pieces(base, batch, places, self.lanes, self.routings[name])
            greatest = int(batch.start[batch.is_data].max(initial=NEVER_UNITS))
            base = replace(base, greatest=greatest)
            parcels += in_every_lane(base, self.lanes, Facts(len(elements)))
        self.pending, self.due = 0, None
        for number, spec in enumerate(self.specs):
            crossed = to_rows(parcels, self.lanes).to_pylist()
            parcels = [from_row(row, spec.schema, None) for row in crossed]
            made = [self._lane(number, lane, parcels) for lane in range(spec.lanes)]
            parcels = [parcel for one in made for parcel in one.parcels]
            self._emit([row for one in made for row in one.rows])
            if number < len(self.cut) - 1:
                parcels = self._changed(parcels, self.cut[number].sends)
        self.trigger += 1

    def _emit(self, rows: Sequence[LaneRow]) -> None:
        """The elements of a trigger, in the order of seq."""
        form, found = ElementsForm(self.last.schema, self.lanes), []
        for row in rows:
            if row.batch is None:
                continue
            elements = to_elements(row.batch)
            if row.channel == ELEMENTS:
                found += zip(form(row).column("seq").to_pylist(), elements, strict=True)
            elif row.channel == FINAL:
                self.finals += elements
            elif row.channel == LATE:
                self.late += elements
        self.output += [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def _lane(self, number: int, lane: int, parcels: Sequence[Parcel]) -> Made:
        spec, parts = self.specs[number], self.stores[number][lane]
        which = spec.lane_id(lane)
        state = load(parts, which, NO_COPIES) or spec.new_lane()
        with self._watched(lane):
            made = make(lane, state, [one for one in parcels if one.lane == lane], spec)
        for one in state.states.values():
            one.check()
        store(parts, which, state, NO_COPIES)
        self.conflicts += made.record.output["conflicts"]
        if made.record.due is not None:
            self.due = min(made.record.due, self.due or made.record.due)
        self.pending += sum(
            int(one.facts.get("pending", 0)) for one in made.record.operators.values()
        )
        assert self.level is not None or not made.record.output["late"], made.record
        assert not made.record.output["violations"], made.record
        return made

    @contextmanager
    def _watched(self, lane: int) -> Iterator[None]:
        """Keep what the ports of a merge of replicas read meanwhile."""
        reads = self.reads.setdefault(lane, defaultdict(list))
        step = MergeOfState.step

        def noting(state: MergeOfState, inputs: Inputs) -> StepResult:
            for one in inputs.arrivals:
                reads[one.input] += to_elements(one.batch)
            return step(state, inputs)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MergeOfState, "step", noting)
            yield

    def _changed(self, parcels: Sequence[Parcel], sends: Sequence[Send]) -> list[Parcel]:
        """What Spark does between two stages."""
        by_name = {one.name: one for one in sends}
        made: list[Parcel] = []
        for one in parcels:
            send = by_name[one.input]
            if one.entry != UNROUTED:
                made.append(one)
                continue
            base = replace(one, entry="data", batch=None, places=None)
            elements = [] if one.batch is None else to_elements(one.batch)
            for native in send.natives:
                elements = [each for each in elements if native.change(each)]
            if elements:
                batch = from_elements(elements, sent_schema(send))
                made += pieces(base, batch, pa.table({}), self.lanes, send.routing)
            else:
                made += in_every_lane(base, self.lanes)
        return made
