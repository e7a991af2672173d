"""The cost of a clock per row: many sources against few, learned bounds against fixed ones.

    python benchmarks/clocks_cost.py

Rows of a step take the way of a query on Spark, without Spark: a packer summarises them by
source or group and sends the lines, a lane opens these and steps its clock.  All steps have the
same 100,000 rows in other orders; what differs is the column that names the source:

    few       ten sources
    many      100,000 sources: each has one row in every step
    site      the group of each of these sources, a column with ten values

All ratios are of one run, by CPU time (the median of the steps), to ten sources with fixed
bounds.  `clock` is what a clock costs alone: summaries, their way to the lane, and its step.
`packer` is that and the rest of a packer's work with these rows, which is decoding and routing.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from merging.clock import machine, report

from anabranch.batch.batch import NEVER_UNITS, Batch
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.clocks import Alike, Clock, Learning, Pair, disorder, group_alike
from anabranch.operators.contract import InputStatus
from anabranch.spark.lane.heartbeats import Clocks, LaneClock, advance
from anabranch.spark.pack.beats import Beating, Tally
from anabranch.spark.pack.parcels import Parcel, from_row, to_rows
from anabranch.spark.pack.rows import RowsSpec, pack_table
from anabranch.spark.pack.sources import Groups

ROWS = 100_000
FEW = 10
TASK = 50_000
"""Rows that a packer takes at once."""
STEPS = 40
WARM_UP = 5
LANES = 2
REPLICA = "east"
NAMES = pa.schema([(name, pa.string()) for name in ("few", "many", "site")])
SCHEMA = ElementSchema(TimeType.BIGINT, NAMES)


def rows_of(step: int) -> list[pa.Table]:
    """The rows of a step as packers get them, in as many parts as there are tasks."""
    chance = np.random.default_rng(step)
    source = chance.permutation(ROWS)
    start = step * 1_000_000 + chance.integers(0, 2_000_000, ROWS)
    few, many, site = ("sensor {}", "machine {:06d}", "site {}")
    texts = {
        "few": pa.array([few.format(n) for n in range(FEW)]).take(pa.array(source % FEW)),
        "many": pa.array([many.format(n) for n in range(ROWS)]).take(pa.array(source)),
        "site": pa.array([site.format(n) for n in range(FEW)]).take(pa.array(source % FEW)),
    }
    insert = {"kind": pa.array(np.zeros(ROWS, np.int32)), "start": pa.array(start)}
    insert |= {"end": pa.array(start + 1000), "old_end": pa.nulls(ROWS, pa.int64())}
    marks = {"__kind_0": pa.array([f"{step:X}"] * ROWS)}
    table = pa.table(insert | texts | marks)
    return [table.slice(first, TASK) for first in range(0, ROWS, TASK)]


@dataclass
class Side:
    """A clock, and the CPU seconds of each of its steps."""

    how: Beating
    clocks: Clocks = field(default_factory=Clocks)
    alone: list[float] = field(default_factory=list)
    packed: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lane = LaneClock(self.how.clock, (REPLICA,), self.how.by, groups=self.how.groups)
        beating = ((REPLICA, self.how),)
        self.spec = RowsSpec(SCHEMA, (), LANES, names=(REPLICA,), beating=beating)

    def step(self, tables: Sequence[pa.Table], batches: Sequence[Batch]) -> None:
        """The packer's whole work, and the clock's alone."""
        self.packed.append(taken(partial(self.pack, tables)))
        self.alone.append(taken(partial(self.beat, tables, batches)))

    def pack(self, tables: Sequence[pa.Table]) -> None:
        """Decode, summarise and route the rows, as a packer does."""
        for number, table in enumerate(tables):
            tally = Tally(dict(self.spec.beating))
            pack_table(self.spec, table, f"{number:08d}", 0, tally)
            tally.parcels(Parcel(0, ""), LANES)

    def beat(self, tables: Sequence[pa.Table], batches: Sequence[Batch]) -> None:
        """Summarise the rows, send the lines to a lane, and step its clock."""
        made: list[Parcel] = []
        for table, batch in zip(tables, batches, strict=True):
            tally = Tally(dict(self.spec.beating))
            tally.note_time(table.column("kind"), table.column("__kind_0"))
            tally.add(REPLICA, batch, table)
            made += tally.parcels(Parcel(0, ""), 1)
        arrived = [
            from_row(row, lambda _: SCHEMA, None) for row in to_rows(made, 1).to_pylist()
        ]
        inputs = [InputStatus(REPLICA, 1, None, int(NEVER_UNITS), joined=True)]
        advance(self.clocks, [self.lane], arrived, inputs)


def taken(work: Any) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def batch_of(table: pa.Table) -> Batch:
    start = table.column("start").to_numpy()
    nothing = np.zeros(len(start), np.int64)
    kind = np.zeros(len(start), np.int8)
    return Batch(SCHEMA, kind, start, start + 1000, nothing, table.select(NAMES.names))


def main() -> None:
    """Measure, print and write the ratios: clocks take their steps in turn."""
    of_groups = group_alike(Alike(own=(Pair(0, 10),), others=(Pair(0, 50),)))
    sites = {f"machine {n:06d}": f"site {n % FEW}" for n in range(ROWS)}
    ten = Side(Beating(Clock(disorder(10)), ("few",)))
    others = {
        "100000_by_group_column": Beating(Clock(of_groups), ("site",)),
        "100000_by_mapping": Beating(Clock(of_groups), ("many",), groups=Groups.of(sites)),
        "100000_not_grouped": Beating(Clock(disorder(10)), ("many",)),
        "learned": Beating(Clock(Learning()), ("few",)),
        "learned_by_mapping": Beating(Clock(Learning()), ("many",), groups=Groups.of(sites)),
        "quantile": Beating(Clock(Learning(target_loss=0.001)), ("few",)),
    }
    sides = {name: Side(how) for name, how in others.items()}
    facts = machine()
    for number in range(1, STEPS + 1):
        tables = rows_of(number)
        batches = [batch_of(table) for table in tables]
        for one in (ten, *sides.values()):
            one.step(tables, batches)
    found: dict[str, Any] = {"machine": facts, "rows": ROWS, "groups": FEW}
    for what in ("alone", "packed"):
        usual = median(getattr(ten, what)[WARM_UP:])
        ratios = {n: median(getattr(o, what)[WARM_UP:]) / usual for n, o in sides.items()}
        found["clock" if what == "alone" else "packer"] = {
            "ten_sources_ms": round(usual * 1000, 2),
            **{name: round(ratio, 2) for name, ratio in ratios.items()},
        }
    report("clocks_cost", found)


if __name__ == "__main__":
    main()
