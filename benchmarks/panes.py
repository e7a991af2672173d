"""Grouped windows by panes beside the plan that copies each row into its windows.

    make bench FIG=panes

Count and mean of a double by 10,000 keys and windows of 6 slides; 20 % of the rows are up to
one slide late, 1 % of the elements are stables.  Both plans take the same batches and emit the
same elements, which is checked; rows per second of CPU time on one core, and their ratio.
"""

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from merging.clock import machine, race, report, use_one_core

from anabranch.batch.batch import INSERT, STABLE, Batch
from anabranch.batch.buffers import to_arrow
from anabranch.batch.codec import to_elements
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.grid_windows import GridWindowOperator

KEYS, SLIDE, SLIDES = 10_000, 100_000, 6
STEP, STEPS = 50_000, 20
SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"key": pa.int64(), "value": pa.float64()}))
WINDOWS = GridWindows(SLIDES * SLIDE, SLIDE)
FUNCTIONS = (Aggregate("count", None, "n"), Aggregate("avg", "value", "mean"))
BY = ("key", "window")
COPY = GridWindowOperator(SCHEMA, WINDOWS)
AGGREGATE = AggregateOperator(COPY.output, BY, FUNCTIONS, final_at_start=True)
PANES = PaneAggregateOperator(SCHEMA, BY, FUNCTIONS, windows=WINDOWS)


def batches() -> list[Batch]:
    """One row per unit of time; a stable behind every 100 elements, true for what is late."""
    rng = np.random.default_rng(7)
    count = STEP * STEPS
    late = np.where(rng.random(count) < 0.2, rng.integers(0, SLIDE, count), 0)
    start = np.arange(count) + SLIDE - late
    keys, values = rng.integers(0, KEYS, count), rng.normal(100, 15, count)
    found = []
    for first in range(0, count, STEP):
        rows, many = slice(first, first + STEP), STEP // 100
        columns = [to_arrow(keys[rows], pa.int64()), to_arrow(values[rows], pa.float64())]
        payload = pa.Table.from_arrays(columns, schema=SCHEMA.payload)
        # What is in a step has no order but that stables are true: they come last.
        stables = np.arange(first, first + STEP, 100)
        times = np.concatenate([start[rows], stables])
        kind = np.repeat(np.array([INSERT, STABLE], np.int8), (STEP, many))
        end = np.where(kind == INSERT, times + 1, 0)
        none = np.zeros(len(times), np.int64)
        found.append(Batch(SCHEMA, kind, times, end, none, with_stable(payload, SCHEMA, many)))
    return found


def copying() -> Callable[[Batch], Batch]:
    """Windows, then the aggregate by key and window."""
    first, second = COPY.empty(), AGGREGATE.empty()

    def step(batch: Batch) -> Batch:
        middle = first.step(Inputs((Arrival("input", batch),))).output
        return second.step(Inputs((Arrival("input", middle),))).output

    return step


def by_panes() -> Callable[[Batch], Batch]:
    """The aggregate by panes."""
    state = PANES.empty()
    return lambda batch: state.step(Inputs((Arrival("input", batch),))).output


def run(plan: Callable[[], Callable[[Batch], Batch]], some: list[Batch]) -> int:
    """All batches through one plan; the number of elements that come out."""
    step = plan()
    return sum(len(step(batch)) for batch in some)


def check(some: list[Batch]) -> None:
    """Both plans emit the same in every step."""
    one, other = copying(), by_panes()
    for batch in some:
        outputs = [Counter(map(repr, to_elements(step(batch)))) for step in (one, other)]
        assert outputs[0] == outputs[1], "the two plans emit different elements"


def main() -> None:
    use_one_core()
    begin = time.perf_counter()
    some = batches()
    check(some[:3])
    emitted = run(by_panes, some)
    seconds = race(3, copying=lambda: run(copying, some), panes=lambda: run(by_panes, some))
    rows = STEP * STEPS
    found = {
        "machine": machine(),
        "rows": rows,
        "rows_per_step": STEP,
        "keys": KEYS,
        "slides_per_window": SLIDES,
        "emitted": emitted,
        "panes_per_s": round(rows / seconds["panes"]),
        "copying_per_s": round(rows / seconds["copying"]),
        "panes_to_copying": round(seconds["copying"] / seconds["panes"], 2),
    }
    print(found, f"{time.perf_counter() - begin:.0f} s")
    report("panes", found)


if __name__ == "__main__":
    main()
