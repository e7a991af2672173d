"""What `align` costs: a merge whose events come in the order of their starts, beside the merge.

    python benchmarks/align.py

Two copies of one stream in steps of 50,000 rows each; a row is up to 5,000 rows out of order,
and a stable ends each step.  `merge` takes the copies, `align` takes what the merge emits, and
`sorted` sorts the same rows by start with NumPy, which is the least that an order costs.
CPU seconds of this process, the median of the steps; ratios of one run.
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from merging.clock import machine, report

from anabranch.batch.batch import INSERT, STABLE, Batch, Ints
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.properties import MergeCase
from anabranch.operators.align import AlignOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.merge.merge import MergeOperator
from anabranch.operators.merge.policy import Policy

ROWS = 50_000
DISORDER = 5_000
STEPS, WARM_UP = 30, 6
NAMES = ("east", "west")
SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema([("id", pa.string())]))


def copy_of(step: int, number: int) -> Batch:
    """The rows of a step in the order of one copy, and a stable."""
    chance = np.random.default_rng([step, number])
    row = np.arange(step * ROWS, (step + 1) * ROWS)
    row = row[np.argsort(np.arange(ROWS) + chance.integers(0, DISORDER, ROWS), kind="stable")]
    start = np.append(row, int(row.max()) - DISORDER)
    names = pa.array([*(f"event {n:012d}" for n in row), None])
    kind = np.append(np.full(ROWS, INSERT, np.int8), np.int8(STABLE))
    nothing = np.zeros(ROWS + 1, np.int64)
    return Batch(SCHEMA, kind, start, start + DISORDER, nothing, pa.table({"id": names}))


def timed(work: Callable[[], Any], seconds: list[float]) -> Any:
    begin = time.process_time()
    made = work()
    seconds.append(time.process_time() - begin)
    return made


def by_start(batch: Batch) -> Ints:
    rows = np.argsort(batch.start, kind="stable")
    batch.take(rows)
    return rows


def main() -> None:
    """Measure, check the order, print and write the ratios."""
    facts, at = machine(), -1
    merge = MergeOperator(SCHEMA, MergeCase.R4, Policy.parse("gaps=true")).empty()
    align = AlignOperator(SCHEMA, final_at_start=True).empty()
    taken: dict[str, list[float]] = {"merge": [], "align": [], "sorted": []}
    for step in range(STEPS):
        copies = [Arrival(name, copy_of(step, number)) for number, name in enumerate(NAMES)]
        given = Inputs(tuple(copies))
        merged = timed(lambda given=given: merge.step(given), taken["merge"]).output
        given = Inputs((Arrival("merge", merged),))
        found = timed(lambda given=given: align.step(given), taken["align"]).output
        timed(lambda merged=merged: by_start(merged), taken["sorted"])
        starts = found.start[found.is_data]
        assert (np.diff(np.append(at, starts)) > 0).all(), "events are not in order"
        at = int(starts[-1])
    usual = {name: median(some[WARM_UP:]) for name, some in taken.items()}
    report(
        "align",
        {
            "machine": facts,
            "rows_per_step": ROWS * len(NAMES),
            "events_per_step": ROWS,
            "million_events_per_second": round(ROWS / usual["align"] / 1e6, 2),
            "merge_and_align_to_merge": round(1 + usual["align"] / usual["merge"], 2),
            "align_to_sorted": round(usual["align"] / usual["sorted"], 1),
        },
    )


if __name__ == "__main__":
    main()
