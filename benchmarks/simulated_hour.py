"""A simulated hour: 3,600 triggers of a second each; state and time of a trigger stay flat.

    python benchmarks/simulated_hour.py [--seconds N]

Each operator takes the same rows: 200 a second by 500 keys, lives of up to a minute, a tenth of
them corrected or removed, and a stable that follows by 10 seconds.  The state is counted and
saved every minute.  Printed for each operator: events in the state, saved bytes, and seconds of
steps, in the last quarter of the hour to those in the second one.
"""

import argparse
import json
import time
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from merging.clock import RESULTS, machine

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.panes import PaneAggregateOperator
from anabranch.operators.by_key.top_k import TopKOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.join.operator import JoinOperator
from anabranch.operators.runs.distinct import DistinctOperator
from anabranch.plan.aggregates import avg, count

RESULT = RESULTS / "simulated_hour.json"
LEFT = ElementSchema(TimeType.BIGINT, pa.schema([("k", pa.int64()), ("v", pa.float64())]))
RIGHT = ElementSchema(TimeType.BIGINT, pa.schema([("k", pa.int64()), ("w", pa.float64())]))
SECOND, ROWS, KEYS, BEHIND = 1_000, 200, 500, 10
FUNCTIONS = tuple(
    type(one)(**{**vars(one), "name": name})
    for name, one in {"n": count(), "mean": avg("v")}.items()
)


def operators() -> dict[str, Any]:
    grid = GridWindows(60 * SECOND, 10 * SECOND)
    return {
        "aggregate": AggregateOperator(LEFT, ("k",), FUNCTIONS),
        "panes": PaneAggregateOperator(LEFT, ("k", "window"), FUNCTIONS, windows=grid),
        "join": JoinOperator(LEFT, RIGHT, (("k", "k"),), "inner"),
        "distinct": DistinctOperator(LEFT),
        "top_k": TopKOperator(LEFT, ("k",), 3, (("v", False),)),
    }


class Rows:
    """The elements of one side, second by second."""

    def __init__(self, schema: ElementSchema, seed: int) -> None:
        self.schema, self.chance = schema, np.random.default_rng(seed)
        self.live = np.empty((0, 4))

    def take(self, second: int) -> Batch:
        """The rows of a second, corrections of earlier ones, and a stable."""
        now, frontier = second * SECOND, max(0, second - BEHIND) * SECOND
        start = now - self.chance.integers(0, BEHIND * SECOND, ROWS) % max(now - frontier, 1)
        end = start + self.chance.integers(1, 60 * SECOND, ROWS)
        keys = self.chance.integers(0, KEYS, ROWS)
        fresh = np.column_stack([start, end, keys, self.chance.normal(size=ROWS)])
        self.live = self.live[self.live[:, 1] > frontier]
        chosen = self.chance.random(len(self.live)) < ROWS / 10 / max(len(self.live), 1)
        old = self.live[chosen]
        changed = old.copy()
        removed = (old[:, 0] >= frontier) & (self.chance.random(len(old)) < 0.5)
        longer = np.maximum(old[:, 1], frontier) + self.chance.integers(1, SECOND, len(old))
        changed[:, 1] = np.where(removed, old[:, 0], longer)
        self.live = np.concatenate([self.live[~chosen], changed[~removed], fresh])
        return self._batch(fresh, old, changed, frontier)

    def _batch(self, fresh: Any, old: Any, changed: Any, frontier: int) -> Batch:
        rows = np.concatenate([fresh, changed, [[frontier, frontier, 0, 0.0]]])
        sizes = [len(fresh), len(changed), 1]
        kind = np.repeat([INSERT, ADJUST, STABLE], sizes).astype(np.int8)
        old_end = np.concatenate([fresh[:, 1], old[:, 1], [frontier]]).astype(np.int64)
        stable = np.repeat([False, False, True], sizes)
        names = self.schema.payload.names
        payload = pa.table(
            {
                names[0]: pa.array(rows[:, 2].astype(np.int64), mask=stable),
                names[1]: pa.array(rows[:, 3], mask=stable),
            }
        )
        times = rows[:, 0].astype(np.int64), rows[:, 1].astype(np.int64)
        return Batch(self.schema, kind, *times, old_end, payload)


def hour(name: str, operator: Any, seconds: int) -> dict[str, Any]:
    """One operator through the hour."""
    sides = {"left": Rows(LEFT, 1), "right": Rows(RIGHT, 2)}
    if name != "join":
        sides = {"input": Rows(LEFT, 1)}
    state, times, live, saved = operator.empty(), list[float](), list[int](), list[int]()
    for second in range(1, seconds + 1):
        inputs = Inputs(tuple(Arrival(port, rows.take(second)) for port, rows in sides.items()))
        began = time.perf_counter()
        state.step(inputs)
        times.append(time.perf_counter() - began)
        if second % 60 == 0:
            live.append(state.live)
            saved.append(sum(map(len, state.parts().written.values())))
    quarter, minutes = seconds // 4, len(live) // 4
    return {
        "live": _change(live, minutes),
        "saved_bytes": _change(saved, minutes),
        "ms": _change([1000 * one for one in times], quarter),
    }


def _change(values: list[Any], quarter: int) -> dict[str, float]:
    second, last = median(values[quarter : 2 * quarter]), median(values[-quarter:])
    return {
        "second": round(second, 3),
        "last": round(last, 3),
        "ratio": round(last / second, 3),
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--seconds", type=int, default=3600)
    asked = reader.parse_args()
    found = {name: hour(name, one, asked.seconds) for name, one in operators().items()}
    print(json.dumps(found, indent=2))
    for name, one in found.items():
        for what in ("live", "saved_bytes"):
            assert one[what]["ratio"] < 1.1, f"{name}: {what} grows: {one[what]}"
    RESULT.write_text(json.dumps({"machine": machine(), **found}, indent=2) + "\n")


if __name__ == "__main__":
    main()
