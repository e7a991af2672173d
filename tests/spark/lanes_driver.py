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
from anabranch.operators.merge.choose import choose
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.spark.forms import LANE_ARROW, ElementsForm, Unpacker, opened, travelling
from anabranch.spark.lane import LaneSpec, make
from anabranch.spark.lane_case import LaneCase
from anabranch.spark.parcels import DATA, in_every_lane, packed, pieces
from anabranch.spark.progress import Totals
from anabranch.spark.receive import Order
from anabranch.spark.store import LaneId, WarmCopies, load, store

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
Row = dict[str, Any]


class FakeParts(dict[tuple[str], tuple[bytes]]):
    """What is used of Spark's map state."""

    def getValue(self, key: tuple[str]) -> tuple[bytes] | None:  # noqa: N802
        return self.get(key)

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        self[key] = value

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802
        self.pop(key, None)

    def iterator(self) -> Any:
        return iter(list(self.items()))


def lane_spec(
    case: str = "auto", lanes: int = 2, policy: Policy = DEFAULT, **options: Any
) -> LaneSpec:
    asked = None if case == "auto" else LaneCase.named(case).case
    lane_case = LaneCase.of(choose({"x": None}, asked=asked), policy)
    return LaneSpec("run", lanes, lane_case, Order(SCHEMA), **options)


@dataclass
class Runtime:
    """Some lanes, their stores, and one worker's warm copies."""

    spec: LaneSpec
    warm: WarmCopies = field(default_factory=WarmCopies)
    totals: Totals = field(default_factory=Totals)
    rows: list[Row] = field(default_factory=list)
    trigger: int = 0

    def __post_init__(self) -> None:
        self.stores = [FakeParts() for _ in range(self.spec.lanes)]

    def which(self, lane: int) -> LaneId:
        return self.spec.lane_id(lane)

    def parcels(self, arrivals: dict[str, Sequence[Element]], **base: Any) -> list[Row]:
        """What the packers make of these elements, and of who is only announced."""
        rows: list[Row] = []
        for name, elements in arrivals.items():
            common = {"replica": name, "attachment": 1, "log": self.trigger, "file": "f"}
            common |= {"part": 0, "guarantee": None, "note": None, "entry": DATA} | base
            batch = from_elements(elements, SCHEMA)
            places = pa.table({"row": pa.array(np.arange(len(elements)))})
            by_start = self.spec.case.by_start
            rows += pieces(common, batch, places, self.spec.lanes, by_start=by_start)
            facts = {"file": "f", "replica": name, "rows": len(elements), "refused": []}
            nothing = {"parcel": None, "places": None}
            rows += in_every_lane({**common, **nothing}, self.spec.lanes, facts)
        return [packed(row) for row in rows]

    def control(self, entry: str, replica: str, **base: Any) -> list[Row]:
        """An entry of the control log, in every lane."""
        common = {"replica": replica, "attachment": 1, "log": self.trigger, "file": None}
        common |= {"part": 0, "guarantee": None, "entry": entry, "parcel": None} | base
        return in_every_lane(common, self.spec.lanes)

    def attempt(self, lane: int, parcels: list[Row]) -> tuple[FakeParts, list[Row]]:
        """One task: what it would commit, and what it made."""
        parts = FakeParts(self.stores[lane])
        mine = [row for row in parcels if row["lane"] == lane]
        state = load(parts, self.which(lane), self.warm) or self.spec.new_lane()
        made = list(make(lane, state, mine, self.spec))
        store(parts, self.which(lane), state, self.warm)
        return parts, made

    def commit(self, parcels: list[Row]) -> None:
        """All lanes, once."""
        import json

        made = []
        for lane in range(self.spec.lanes):
            self.stores[lane], rows = self.attempt(lane, parcels)
            made += rows
        self.rows += made
        notes = [json.loads(row["note"]) for row in made if row["note"]]
        self.totals.add(notes, self.trigger)
        self.trigger += 1

    def final(self) -> list[Event]:
        """The events that became final."""
        parcels = [row["parcel"] for row in self.rows if row["channel"] == "final"]
        found = [to_elements(opened(parcel, SCHEMA)) for parcel in parcels]
        return [one.event for some in found for one in some if isinstance(one, Insert)]

    def output(self) -> list[Element]:
        """The merged stream in the order of seq."""
        parcels = [row for row in self.rows if row["channel"] == "elements"]
        if not parcels:
            return []
        form = ElementsForm(SCHEMA, self.spec.lanes)
        seq = np.concatenate([form(row).column("seq").to_numpy() for row in parcels])
        assert len(set(seq.tolist())) == len(seq)
        travelled = pa.RecordBatch.from_pylist(travelling(parcels), schema=LANE_ARROW)
        unpacked = pa.Table.from_batches(Unpacker(form)(iter([travelled])))
        assert unpacked.column("seq").to_numpy().tolist() == seq.tolist()
        elements = concat([opened(row["parcel"], SCHEMA) for row in parcels])
        return to_elements(elements.take(np.argsort(seq)))
