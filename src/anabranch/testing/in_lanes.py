"""The back end of an `Engine` in lanes: the code of Spark's workers, without Spark.

Elements are packed into parcels, cross as rows, are put into order by the lanes, and each lane
runs its pipeline on a state that it saves after every trigger.  A restart is another worker: it
has nothing but what was saved.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import concat
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema
from anabranch.model.element import Element
from anabranch.operators.contract import (
    Attach,
    ControlEntry,
    Detach,
    NewSettings,
    Operator,
    PassOver,
    Reached,
    Route,
    ports_of,
)
from anabranch.operators.pipeline import PipelineStep
from anabranch.operators.state.reshape import Reshape
from anabranch.operators.union_of import UnionOfOperator
from anabranch.sources.channels import ELEMENTS, FINAL
from anabranch.spark.lane.exported import HeldParts
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.redistribute import split, unite
from anabranch.spark.lane.rows import LaneRow
from anabranch.spark.lane.spec import Entry, LaneSpec, with_stables
from anabranch.spark.lane.state import NO_COPIES, load, store
from anabranch.spark.lane.state_cache import WarmCopies
from anabranch.spark.lane.trigger import Made, make
from anabranch.spark.pack.parcels import (
    ATTACH,
    CHANGE,
    DETACH,
    NOTE,
    PASS,
    Facts,
    Parcel,
    from_row,
    in_every_lane,
    pieces,
    to_rows,
)
from anabranch.spark.progress import LaneRecord, Totals
from anabranch.spark.write.formats import ElementsForm
from anabranch.spark.write.reports import require_one_frontier
from anabranch.testing.backends import COUNTED, Pushed
from anabranch.testing.ledger import Account


class Parts(HeldParts):
    """What lanes use of Spark's map state."""


def redistributed(
    spec: LaneSpec, stores: Sequence[Parts], lanes: int, reshape: Reshape | None = None
) -> tuple[LaneSpec, list[Parts]]:
    """The same run in another number of lanes, with other columns; every state is checked."""
    pipeline, then = spec.pipeline, replace(spec, lanes=lanes)
    former = [
        load(parts, spec.lane_id(number), NO_COPIES) or spec.new_lane()
        for number, parts in enumerate(stores)
    ]
    shares = [split(lane, pipeline, lanes, reshape) for lane in former]
    made = [Parts() for _ in range(lanes)]
    for number, parts in enumerate(made):
        lane = unite([each[number] for each in shares], pipeline, reshape)
        for state in lane.states.values():
            state.check()
        store(parts, then.lane_id(number), lane, NO_COPIES)
    return then, made


@dataclass
class InLanes:
    """Some lanes, their stores, and the copies of states that one worker keeps."""

    operator: Operator
    lanes: int
    shows_final: bool = False
    check_every: int = 1
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=dict)
    expelled: set[str] = field(default_factory=set)
    totals: Totals = field(default_factory=Totals)
    warm: WarmCopies = field(default_factory=WarmCopies)
    trigger: int = 0
    reasons: None = None
    gaps: None = None

    def __post_init__(self) -> None:
        pipeline = (PipelineStep(self.operator.name, self.operator),)
        order = Order(self.operator.schema)
        self.spec = LaneSpec("engine", self.lanes, pipeline, order, final=self.shows_final)
        step, others = self.operator.name, self._of_other_columns()
        if others:
            entries = [Entry(step, Order(one), frozenset({name})) for name, one in others]
            self.spec = replace(self.spec, entries=(*entries, Entry(step, order)))
        self.stores = [Parts() for _ in range(self.lanes)]
        self.behind: LaneSpec | None = None
        if getattr(self.operator, "holds_stables", False):
            output = self.operator.output
            assert isinstance(output, ElementSchema), f"{self.operator.name} emits no elements"
            self.spec, self.behind = with_stables(self.spec, UnionOfOperator(output))
            self.stores.append(Parts())

    @property
    def counts(self) -> Mapping[str, int]:
        """What the records of the lanes add up to."""
        made = {name: self.totals.output.get(name, 0) for name in COUNTED}
        return made | {"live": self.totals.live}

    def control(self, entry: ControlEntry) -> None:
        """An entry of the control log, in every lane."""
        self.expelled.discard(entry.input)
        kind = PASS if isinstance(entry, PassOver) else DETACH
        one = Parcel(0, entry.input, log=self.trigger, entry=kind)
        if isinstance(entry, Reached):
            one = replace(one, entry=NOTE, greatest=entry.start, at=entry.time)
        if isinstance(entry, NewSettings):
            one = replace(one, entry=CHANGE, settings=entry.settings)
        if isinstance(entry, Attach):
            number, guarantee = entry.attachment, entry.guarantee
            one = replace(one, entry=ATTACH, attachment=number, guarantee=guarantee)
        self._commit(in_every_lane(one, self.lanes))

    def step(self, pushed: Sequence[Pushed]) -> None:
        """What the packers make of these elements, in one trigger."""
        together: dict[tuple[str, int], list[Element]] = {}
        for name, attachment, elements in pushed:
            together.setdefault((name, attachment), []).extend(elements)
        made: list[Parcel] = []
        for (name, attachment), elements in together.items():
            one = Parcel(0, name, attachment, log=self.trigger, file="pushed")
            batch = from_elements(elements, self.spec.schema(name))
            places = pa.table({"row": pa.array(np.arange(len(elements)))})
            made += pieces(one, batch, places, self.lanes, self.spec.routing)
            made += in_every_lane(one, self.lanes, Facts(len(elements)))
        if made:
            self._commit(made)

    def _of_other_columns(self) -> list[tuple[str, ElementSchema]]:
        """Inputs that have columns of their own, as promises have."""
        schema = self.operator.schema
        return [
            (name, one.schema)
            for name, one in ports_of(self.operator).items()
            if one.route is Route.ALL and one.schema != schema
        ]

    def redistribute(self, lanes: int, operator: Operator | None = None) -> None:
        """Go on in another number of lanes, with what was saved.

        `operator`: the same with other payload columns.
        """
        reshape = None
        if operator is not None:
            reshape = Reshape(self.operator.schema.payload, operator.schema.payload)
        self.spec, self.stores = redistributed(self.spec, self.stores, lanes, reshape)
        self.lanes, self.warm = lanes, WarmCopies()
        if operator is not None:
            self.operator = operator
            pipeline = (PipelineStep(operator.name, operator),)
            order = Order(operator.schema)
            self.spec = replace(self.spec, pipeline=pipeline, order=order)

    def restart(self) -> None:
        """The worker is another one: it loads what the lanes have saved."""
        self.warm = WarmCopies()

    def close(self) -> None:
        """Nothing runs."""

    def _commit(self, parcels: Sequence[Parcel]) -> None:
        """One trigger of all lanes; violators are detached in the next, as a driver would."""
        crossed = to_rows(parcels, self.lanes).to_pylist()
        arrived = [from_row(row, self.spec.schema, None) for row in crossed]
        rows: list[LaneRow] = []
        records: list[LaneRecord] = []
        sent: list[Parcel] = []
        for number in range(self.lanes):
            mine = [one for one in arrived if one.lane == number]
            made = self._take(self.spec, number, self.stores[number], mine)
            rows, sent = rows + made.rows, sent + made.parcels
            records.append(LaneRecord.from_json(made.record.to_json()))
        if self.behind is not None:
            made = self._take(self.behind, 0, self.stores[-1], sent)
            rows = rows + made.rows
            records.append(LaneRecord.from_json(made.record.to_json()))
        require_one_frontier(records)
        self.output += self._shown(rows)
        self.totals.add(records, self.trigger)
        self.trigger += 1
        self.account = {
            name: Counter(one.buckets) for name, one in self.totals.replicas.items() if one.rows
        }
        for name in sorted({name for record in records for name in record.violators}):
            self.control(Detach(name))
            self.expelled.add(name)

    def _take(self, spec: LaneSpec, number: int, parts: Parts, mine: Sequence[Parcel]) -> Made:
        """One trigger of one lane, on the state that it has saved."""
        which = spec.lane_id(number)
        lane = load(parts, which, self.warm) or spec.new_lane()
        made = make(number, lane, mine, spec)
        if self.trigger % self.check_every == 0:
            for state in lane.states.values():
                state.check()
        store(parts, which, lane, self.warm)
        return made

    def _shown(self, rows: Sequence[LaneRow]) -> list[Element]:
        """The elements of a trigger in the order of seq, or the events that became final."""
        channel = FINAL if self.shows_final else ELEMENTS
        found = [row for row in rows if row.channel == channel and row.batch is not None]
        if not found:
            return []
        elements = concat([row.batch for row in found if row.batch is not None])
        if self.shows_final:
            return to_elements(elements)
        made = self.operator.output
        assert isinstance(made, ElementSchema), f"{self.operator.name} emits no elements"
        form = ElementsForm(made, self.lanes)
        seq = np.concatenate([form(row).column("seq").to_numpy() for row in found])
        assert len(np.unique(seq)) == len(seq), (
            f"{len(seq)} elements, {len(np.unique(seq))} different seq"
        )
        return to_elements(elements.take(np.argsort(seq)))
