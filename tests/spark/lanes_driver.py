"""Lanes without Spark: triggers, a store that commits or forgets, workers that come and go.

What Spark promises is played by hand: a trigger is worked on until each lane's attempt is
committed; attempts that are not committed leave the store as it was, and whatever they left in
the worker's memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import concat
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Element, Event, Insert
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.rows import LANE_ARROW, LaneRow
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.state import LaneId, WarmCopies, load, store
from anabranch.spark.lane.trigger import Made, make
from anabranch.spark.pack.parcels import Facts, Parcel, from_row, in_every_lane, pieces, to_rows
from anabranch.spark.progress import LaneRecord, Totals
from anabranch.spark.write.formats import ElementsForm, Unpacker
from anabranch.testing.in_lanes import Parts, redistributed

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))


def lane_spec(
    case: str = "auto",
    lanes: int = 2,
    policy: Policy = DEFAULT,
    *,
    final: bool = False,
    **options: Any,
) -> LaneSpec:
    asked = None if case == "auto" else MergeCase(case)
    operator = MergeOperator.of(SCHEMA, choose({"x": None}, asked=asked), policy)
    pipeline = (PipelineStep("merge", operator, operator.label),)
    if final:
        pipeline = with_final(pipeline)
    return LaneSpec("run", lanes, pipeline, Order(SCHEMA), final=final, **options)


@dataclass
class Runtime:
    """Some lanes, their stores, and one worker's warm copies."""

    spec: LaneSpec
    warm: WarmCopies = field(default_factory=WarmCopies)
    totals: Totals = field(default_factory=Totals)
    rows: list[LaneRow] = field(default_factory=list)
    written: list[Element] = field(default_factory=list)
    records: list[LaneRecord] = field(default_factory=list)
    trigger: int = 0
    seq: int = -1

    def __post_init__(self) -> None:
        self.stores = [Parts() for _ in range(self.spec.lanes)]

    def which(self, lane: int) -> LaneId:
        return self.spec.lane_id(lane)

    def parcels(self, arrivals: dict[str, Sequence[Element]], **base: Any) -> list[Parcel]:
        """What the packers make of these elements, and of who is only announced."""
        made: list[Parcel] = []
        for name, elements in arrivals.items():
            options = {"attachment": 1, "log": self.trigger, "file": "f"} | base
            common = Parcel(lane=0, input=name, **options)
            batch = from_elements(elements, SCHEMA)
            places = pa.table({"row": pa.array(np.arange(len(elements)))})
            made += pieces(common, batch, places, self.spec.lanes, self.spec.routing)
            made += in_every_lane(common, self.spec.lanes, Facts(len(elements)))
        return [from_row(row, lambda _: SCHEMA, None) for row in crossed(made, self.spec.lanes)]

    def control(self, entry: str, replica: str, **base: Any) -> list[Parcel]:
        """An entry of the control log, in every lane."""
        options = {"attachment": 1, "log": self.trigger} | base
        common = Parcel(lane=0, input=replica, entry=entry, **options)
        return in_every_lane(common, self.spec.lanes)

    def attempt(self, lane: int, parcels: list[Parcel]) -> tuple[Parts, Made]:
        """One task: what it would commit, and what it made."""
        parts = Parts(self.stores[lane])
        mine = [one for one in parcels if one.lane == lane]
        state = load(parts, self.which(lane), self.warm) or self.spec.new_lane()
        made = make(lane, state, mine, self.spec)
        store(parts, self.which(lane), state, self.warm)
        return parts, made

    def commit(self, parcels: list[Parcel]) -> list[Parcel]:
        """All lanes, once; what they sent to the next stage."""
        records, sent, rows = [], [], []
        for lane in range(self.spec.lanes):
            self.stores[lane], made = self.attempt(lane, parcels)
            rows += made.rows
            sent += made.parcels
            records.append(LaneRecord.from_json(made.record.to_json()))
        self._write(rows)
        self.records += records
        self.totals.add(records, self.trigger)
        self.trigger += 1
        lanes = self.spec.after.lanes if self.spec.after else 1
        return [from_row(row, lambda _: SCHEMA, None) for row in crossed(sent, lanes)]

    def redistribute(self, lanes: int) -> None:
        """Go on in another number of lanes."""
        self.spec, self.stores = redistributed(self.spec, self.stores, lanes)

    def final(self) -> list[Event]:
        """The events that became final."""
        batches = [row.batch for row in self.rows if row.channel == "final"]
        found = [to_elements(batch) for batch in batches if batch is not None]
        return [one.event for some in found for one in some if isinstance(one, Insert)]

    def output(self) -> list[Element]:
        """The merged stream in the order of seq."""
        return self.written

    def _write(self, rows: Sequence[LaneRow]) -> None:
        """Rows of a trigger: each seq comes once, after all those of the triggers before."""
        self.rows += rows
        seq, elements = output_of(rows, self.spec.lanes)
        assert seq == sorted({self.seq, *seq})[1:]
        self.seq = max([self.seq, *seq])
        self.written += elements


def crossed(parcels: Sequence[Parcel], lanes: int) -> list[dict[str, Any]]:
    """Parcels as a lane gets them from Spark."""
    found: list[dict[str, Any]] = to_rows(parcels, lanes).to_pylist()
    return found


def output_of(made: Sequence[LaneRow], lanes: int) -> tuple[list[int], list[Element]]:
    """The elements of some lanes' rows in the order of seq, and seq."""
    rows = [row for row in made if row.channel == "elements"]
    if not rows:
        return [], []
    form = ElementsForm(SCHEMA, lanes)
    seq = np.concatenate([form(row).column("seq").to_numpy() for row in rows])
    sent = [row.to_dict() for row in rows]
    travelled = pa.RecordBatch.from_pylist(sent, schema=LANE_ARROW)
    unpacked = pa.Table.from_batches(Unpacker(form, SCHEMA)(iter([travelled])))
    assert unpacked.column("seq").to_numpy().tolist() == seq.tolist()
    elements = concat([row.batch for row in rows if row.batch is not None])
    order = np.argsort(seq)
    return seq[order].tolist(), to_elements(elements.take(order))
