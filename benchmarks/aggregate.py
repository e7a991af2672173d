"""The grouped snapshot aggregate beside polars, and how its cost grows.

    make bench FIG=aggregate

Events with lifetimes of one length in groups by key, one starting per unit of time, 20 % of
them late, with a stable in every step of 10,000.  The aggregate emits the net change of every
step.  Beside count, sum and avg there is polars' answer to the same question of all events at
once, from cumulative sums over sorted end points: events per second of CPU time of both, on
one core.  Both have the same number of results, and the same sum of count times length.

`min_max` compares 10,000 with 1,000,000 live events in 1,000 groups.  `growth` is the cost of
one step of n events, beside 100,000 that live, and of steps of one size beside more and more
that live; `m` is the number of elements that come out.  Each has the exponent of n in
seconds / (n log n + m), which is 0 where the cost is O(n log n + m).
"""

import os

os.environ["POLARS_MAX_THREADS"] = "1"  # read when polars is imported

import time
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from merging.clock import machine, race, report, use_one_core

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch, Ints
from anabranch.batch.buffers import numbers, to_arrow
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.contract import Arrival, Inputs

STEP, KEYS, LATE = 10_000, 1_000, 100
SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"key": pa.int64(), "value": pa.int64()}))
SUMS = (
    Aggregate("count", None, "n"),
    Aggregate("sum", "value", "total"),
    Aggregate("avg", "value", "mean"),
)
EXTREMES = (Aggregate("min", "value", "least"), Aggregate("max", "value", "most"))


class Events:
    """Events in their order of arrival; `live` of them are alive at any time."""

    def __init__(self, count: int, live: int, keys: int = KEYS) -> None:
        rng = np.random.default_rng(7)
        late = np.where(rng.random(count) < 0.2, rng.integers(0, LATE, count), 0)
        self.start: Ints = np.argsort(np.arange(count) + late, kind="stable")
        self.end: Ints = self.start + live
        self.key: Ints = rng.integers(0, keys, count)
        self.value: Ints = rng.integers(-1_000_000, 1_000_000, count)

    def frame(self) -> pl.DataFrame:
        columns = {"key": self.key, "start": self.start, "end": self.end, "value": self.value}
        return pl.DataFrame(columns)

    def batch(self, first: int, end: int) -> Batch:
        """Some of them, and the stable that is true after them."""
        rows = slice(first, min(end, len(self.start)))
        columns = [to_arrow(c[rows], pa.int64()) for c in (self.key, self.value)]
        payload = pa.Table.from_arrays(columns, schema=SCHEMA.payload)
        kind = np.full(payload.num_rows + 1, INSERT, np.int8)
        kind[-1] = STABLE
        frontier = first + payload.num_rows - LATE
        return Batch(
            SCHEMA,
            kind,
            np.append(self.start[rows], frontier),
            np.append(self.end[rows], 0),
            np.zeros(len(kind), np.int64),
            with_stable(payload, SCHEMA, 1),
        )

    def batches(self, step: int = STEP) -> list[Inputs]:
        firsts = range(0, len(self.start), step)
        return [Inputs((Arrival("input", self.batch(at, at + step)),)) for at in firsts]


def operator(functions: tuple[Aggregate, ...]) -> AggregateOperator:
    return AggregateOperator(SCHEMA, ("key",), functions)


def run(inputs: list[Inputs], functions: tuple[Aggregate, ...]) -> list[Batch]:
    """The output of each step."""
    state = operator(functions).empty()
    return [state.step(one).output for one in inputs]


def results_of(outputs: list[Batch]) -> tuple[int, int]:
    """How many results there are in the end, and their sum of count times length."""
    results = weight = 0
    for one in outputs:
        count = numbers(one.payload.column("n"), np.dtype(np.int64))
        is_insert, is_adjust = one.kind == INSERT, one.kind == ADJUST
        before = np.where(is_insert, one.start, one.old_end)
        weight += int(((one.end - before) * count)[is_insert | is_adjust].sum())
        removed = is_adjust & (one.end == one.start)
        results += int(np.count_nonzero(is_insert)) - int(np.count_nonzero(removed))
    return results, weight


def by_polars(events: pl.DataFrame) -> pl.DataFrame:
    """The same results of all events at once."""
    value = pl.col("value")
    points = pl.concat(
        [
            events.select("key", time="start", n=pl.lit(1, pl.Int64), total=value),
            events.select("key", time="end", n=pl.lit(-1, pl.Int64), total=-value),
        ]
    )
    return (
        points.group_by("key", "time")
        .agg(pl.col("n").sum(), pl.col("total").sum())
        .sort("key", "time")
        .with_columns(
            pl.col("n").cum_sum().over("key"),
            pl.col("total").cum_sum().over("key"),
            end=pl.col("time").shift(-1).over("key"),
        )
        .filter(pl.col("n") > 0)
        .with_columns(mean=pl.col("total") / pl.col("n"))
    )


def against_polars(live: int, count: int) -> dict[str, Any]:
    """All events from the beginning, ours step by step and polars' at once."""
    events = Events(count, live)
    inputs, frame = events.batches(), events.frame()
    theirs = by_polars(frame)
    weight = theirs.select(((pl.col("end") - pl.col("time")) * pl.col("n")).sum()).item()
    outputs = run(inputs, SUMS)
    ours = results_of(outputs)
    assert ours == (len(theirs), weight), f"{ours}, polars has {len(theirs)}, {weight}"
    emitted = sum(map(len, outputs))
    del outputs
    seconds = race(3, ours=lambda: run(inputs, SUMS), polars=lambda: by_polars(frame))
    return {
        "live": live,
        "events": count,
        "results": ours[0],
        "emitted_per_event": round(emitted / count, 2),
        "ours_per_s": round(count / seconds["ours"]),
        "polars_per_s": round(count / seconds["polars"]),
        "ours_to_polars": round(seconds["polars"] / seconds["ours"], 2),
    }


def measured(
    live: int, functions: tuple[Aggregate, ...], *, steps: int = 10, step: int = STEP
) -> dict[str, Any]:
    """Steps beside `live` events; the least seconds of one, and what it emits on average."""
    events = Events(live + steps * step, live)
    state = operator(functions).empty()
    for first in range(0, live, 100_000):
        end = min(first + 100_000, live)
        state.step(Inputs((Arrival("input", events.batch(first, end)),)))
    seconds, emitted = [], 0
    for first in range(live, live + steps * step, step):
        one = Inputs((Arrival("input", events.batch(first, first + step)),))
        begin = time.process_time()
        emitted += len(state.step(one).output)
        seconds.append(time.process_time() - begin)
    middle = float(np.median(seconds))
    found = {"live": live, "n": step, "m": emitted // steps, "seconds": round(middle, 5)}
    return found | {"per_s": round(step / middle)}


def fitted(rows: list[dict[str, Any]], by: str) -> dict[str, Any]:
    """The rows, and the exponent of one of their columns in seconds / (n log n + m)."""
    cost = [row["seconds"] / (row["n"] * np.log2(row["n"]) + row["m"]) for row in rows]
    logs = np.log([[row[by], one] for row, one in zip(rows, cost, strict=True)])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return {"rows": rows, f"exponent_of_{by}": round(slope, 3)}


def main() -> None:
    use_one_core()
    facts = machine()
    run(Events(2 * STEP, 100).batches(), SUMS)
    run(Events(2 * STEP, 100).batches(), EXTREMES)
    few, many = (measured(live, EXTREMES) for live in (10_000, 1_000_000))
    report(
        "aggregate",
        {
            "machine": facts,
            "polars": pl.__version__,
            "against_polars": [
                against_polars(10_000, 500_000),
                against_polars(100_000, 1_000_000),
            ],
            "min_max": {
                "rows": [few, many],
                "1M_live_to_10k": round(many["per_s"] / few["per_s"], 2),
            },
            "growth_of_a_step": fitted(
                [
                    measured(100_000, SUMS, steps=5, step=step)
                    for step in (10_000, 31_623, 100_000, 316_228, 1_000_000)
                ],
                "n",
            ),
            "growth_of_live": fitted(
                [measured(live, SUMS) for live in (10_000, 100_000, 1_000_000)], "live"
            ),
        },
    )


if __name__ == "__main__":
    main()
