"""Lanes with clocks, without Spark: plain rows in triggers with times, packed as packers do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from lanes_driver import Runtime, crossed

from anabranch.batch.batch import FOREVER_UNITS, KINDS
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.clocks import Clock
from anabranch.model.element import Event
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Operator
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy
from anabranch.operators.pipeline import PipelineStep, with_final
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.spec import Founder, LaneSpec
from anabranch.spark.pack.beats import ARRIVAL, Beating, Tally
from anabranch.spark.pack.parcels import BEAT, CLOCK, Parcel, from_row, in_every_lane
from anabranch.spark.pack.rows import RowsSpec, pack_table
from anabranch.spark.pack.sources import Groups

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("name", pa.string())]))
SOURCE = "__source"
"""A column beside the payload, as the partition of Kafka is one."""
GAPS = Policy.parse("gaps=true")


def arrived(parcels: Sequence[Parcel], lanes: int) -> list[Parcel]:
    """Parcels that crossed Spark."""
    return [from_row(row, lambda _: SCHEMA, None) for row in crossed(parcels, lanes)]


@dataclass(frozen=True)
class Row:
    """A plain row: its time, its name; its source and its arrival if they are columns."""

    time: int
    name: str = "a"
    source: str | None = None
    arrival: int | None = None


@dataclass
class ClockedLanes:
    """A merge of plain rows with a clock; `trigger` is one trigger of all lanes."""

    clock: Clock
    lanes: int = 2
    replicas: tuple[str, ...] = ("east", "west")
    by: tuple[str, ...] = ()
    has_arrival: bool = False
    guard: int | None = None
    groups: Mapping[str, str] = field(default_factory=dict)
    lifetime: int | None = 5
    operator: Operator = field(
        default_factory=lambda: MergeOperator(SCHEMA, MergeCase.R4, GAPS)
    )

    def __post_init__(self) -> None:
        groups = Groups.of(self.groups) if self.groups else None
        self.how = Beating(self.clock, self.by, self.has_arrival, self.guard, groups)
        timed = self.how.needs_time
        served = LaneClock(
            self.clock,
            self.replicas,
            self.by,
            timed,
            has_arrival=self.has_arrival,
            groups=groups,
        )
        step = PipelineStep(self.operator.name, self.operator)
        self.spec = LaneSpec(
            "run",
            self.lanes,
            with_final((step,)),
            Order(SCHEMA),
            tuple(Founder(name) for name in self.replicas),
            final=True,
            clocks=(served,),
        )
        self.runtime = Runtime(self.spec)

    def packed(
        self, rows: Mapping[str, Sequence[Row]], at: int, tasks: int = 1
    ) -> list[Parcel]:
        """What some tasks make of these rows."""
        order = (SOURCE,) if SOURCE in self.by else ()
        spec = RowsSpec(
            SCHEMA,
            order,
            self.lanes,
            self.spec.routing,
            self.replicas,
            beating=tuple((name, self.how) for name in self.replicas),
        )
        made: list[Parcel] = []
        for task in range(tasks):
            tally = Tally(dict(spec.beating))
            mine = {name: list(some)[task::tasks] for name, some in rows.items()}
            table = self._table(mine, at)
            if len(table):
                made += pack_table(spec, table, f"{task:08d}", 0, tally)
                made += tally.parcels(Parcel(0, "", log=int(FOREVER_UNITS)), self.lanes)
        return arrived(made, self.lanes)

    def _table(self, rows: Mapping[str, Sequence[Row]], at: int) -> pa.Table:
        numbers = {name: at for at, name in enumerate(self.replicas)}
        pairs = [(numbers[name], one) for name, some in rows.items() for one in some]
        count = len(pairs)
        columns: dict[str, Any] = {
            "kind": pa.array([number << 2 for number, _ in pairs], pa.int32()),
            "start": pa.array([one.time for _, one in pairs], pa.int64()),
            "end": self._ends([one.time for _, one in pairs]),
            "old_end": pa.nulls(count, pa.int64()),
            "name": pa.array([one.name for _, one in pairs], pa.string()),
            "__kind_0": pa.array([f"{at:X}"] * count, pa.string()),
        }
        if SOURCE in self.by:
            columns[SOURCE] = pa.array([one.source for _, one in pairs], pa.string())
        if self.has_arrival:
            columns[ARRIVAL] = pa.array([one.arrival for _, one in pairs], pa.timestamp("us"))
        assert KINDS[0] == "insert"
        return pa.table(columns)

    def _ends(self, starts: Sequence[int]) -> pa.Array:
        """The ends of rows; null where they have none."""
        if self.lifetime is None:
            return pa.nulls(len(starts), pa.int64())
        return pa.array([start + self.lifetime for start in starts], pa.int64())

    def trigger(self, rows: Mapping[str, Sequence[Row]], at: int, tasks: int = 1) -> None:
        """One trigger of all lanes."""
        self.runtime.commit(self.packed(rows, at, tasks))

    def tick(self, at: int) -> None:
        """A trigger without rows."""
        beat = Parcel(0, "", log=self.runtime.trigger, entry=BEAT, at=at)
        made = in_every_lane(beat, self.lanes)
        self.runtime.commit(
            [from_row(row, lambda _: SCHEMA, None) for row in crossed(made, self.lanes)]
        )

    def declare(self, replica: str, settings: str, at: int) -> None:
        """A trigger with an entry of the control log about a replica."""
        one = Parcel(
            0, replica, log=self.runtime.trigger, entry=CLOCK, settings=settings, at=at
        )
        made = in_every_lane(one, self.lanes)
        self.runtime.commit(
            [from_row(row, lambda _: SCHEMA, None) for row in crossed(made, self.lanes)]
        )

    def redistribute(self, lanes: int) -> None:
        """Go on in another number of lanes."""
        self.runtime.redistribute(lanes)
        self.lanes, self.spec = lanes, self.runtime.spec
        self.restart()

    def restart(self, clock: Clock | None = None) -> None:
        """Another worker, perhaps with another clock and other columns for its sources."""
        if clock is not None:
            self.clock, self.how = clock, replace(self.how, clock=clock, by=self.by)
            served = replace(self.spec.clocks[0], clock=clock, by=self.by)
            self.spec = replace(self.spec, clocks=(served,))
            self.runtime.spec = self.spec
        self.runtime.warm = type(self.runtime.warm)()

    @property
    def frontier(self) -> int | str | None:
        """How far the output is final; all lanes agree."""
        found = {one.frontier for one in self.runtime.records[-self.lanes :]}
        assert len(found) == 1, found
        return found.pop()

    @property
    def final(self) -> list[Event]:
        """The events that became final, in order."""
        return sorted(self.runtime.final(), key=lambda one: (one.start, one.payload))

    def bucket(self, name: str) -> int:
        """How many rows of all replicas are in this bucket."""
        assert self.runtime.totals.adds_up
        return self.runtime.totals.bucket(name)
