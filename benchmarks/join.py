"""The interval join beside a one-shot join of duckdb, and how its cost grows with what is live.

    make bench FIG=join

Both sides insert one event per unit of time, 20 % of them late, with a stable in every step;
each has about one partner.  The join keeps `live` events per side and emits every pair as it
comes, with duckdb's answer to the same question, of all rows at once, beside it: elements per
second of both, on one core.  `visits` are the nodes of trees that an element looks at, free of
noise; `growth` is the fitted exponent of live events in them, and in one key.
"""

import time
from collections.abc import Iterator
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from merging.clock import machine, race, report, use_one_core

from anabranch.batch.batch import INSERT, STABLE, Batch, Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.join.operator import JoinOperator

STEP = 10_000
LEFT = ElementSchema(TimeType.BIGINT, pa.schema({"key": pa.int64(), "a": pa.int64()}))
RIGHT = ElementSchema(TimeType.BIGINT, pa.schema({"key": pa.int64(), "b": pa.int64()}))
JOIN = JoinOperator(LEFT, RIGHT, (("key", "key"),))
QUERY = """
    select l.key, l.a, r.b, greatest(l.start, r.start) s, least(l.end, r.end) e
    from l join r on l.key = r.key and l.start < r.end and r.start < l.end
"""


class Side:
    """The events of one side in their order of arrival."""

    def __init__(self, seed: int, count: int, live: int, keys: int, size: int) -> None:
        rng = np.random.default_rng(seed)
        late = np.where(rng.random(count) < 0.2, rng.integers(0, 100, count), 0)
        order = np.argsort(np.arange(count) + late, kind="stable")
        self.start: Ints = np.arange(count)[order]
        self.end: Ints = self.start + size
        self.key: Ints = rng.integers(0, keys, count)
        self.id: Ints = rng.permutation(count)
        self.behind = max(100, live - size)

    def table(self, name: str) -> pa.Table:
        columns = {"start": self.start, "end": self.end, "key": self.key, name: self.id}
        return pa.table({n: to_arrow(c, pa.int64()) for n, c in columns.items()})

    def batches(self, schema: ElementSchema) -> Iterator[Batch]:
        for first in range(0, len(self.start), STEP):
            rows = slice(first, first + STEP)
            start, end = self.start[rows], self.end[rows]
            columns = [to_arrow(c[rows], pa.int64()) for c in (self.key, self.id)]
            payload = pa.Table.from_arrays(columns, schema=schema.payload)
            kind = np.full(len(start) + 1, INSERT, np.int8)
            kind[-1] = STABLE
            frontier = first + len(start) - self.behind
            yield Batch(
                schema,
                kind,
                np.append(start, frontier),
                np.append(end, 0),
                np.zeros(len(kind), np.int64),
                with_stable(payload, schema, 1),
            )


def steps(left: Side, right: Side) -> list[Inputs]:
    pairs = zip(left.batches(LEFT), right.batches(RIGHT), strict=True)
    return [Inputs((Arrival("left", one), Arrival("right", two))) for one, two in pairs]


def run(inputs: list[Inputs], warm: int = 0) -> dict[str, float]:
    """CPU seconds and visits of the steps after the first `warm` ones."""
    state, pairs, visits, seconds = JOIN.empty(), 0, 0, 0.0
    for number, one in enumerate(inputs):
        begin = time.process_time()
        result = state.step(one)
        if number >= warm:
            seconds += time.process_time() - begin
            pairs += result.added_inserts
            visits += result.counts["visits"]
    elements = 2 * STEP * (len(inputs) - warm)
    found = {"elements": elements, "pairs": pairs, "live": state.live, "seconds": seconds}
    return found | {"visits": visits / elements}


def against_duckdb(live: int, count: int) -> dict[str, Any]:
    """All events from the beginning, ours step by step and duckdb's at once."""
    left, right = (Side(seed, count, live, 2 * live, live) for seed in (1, 2))
    inputs, connection = steps(left, right), duckdb.connect()
    connection.execute("set threads to 1")
    connection.register("l", left.table("a"))
    connection.register("r", right.table("b"))
    pairs = connection.execute(QUERY).to_arrow_table().num_rows
    ours = run(inputs)
    assert ours["pairs"] == pairs, f"{ours['pairs']} pairs, duckdb has {pairs}"
    seconds = race(
        3,
        ours=lambda: run(inputs),
        duckdb=lambda: connection.execute(QUERY).to_arrow_table(),
    )
    elements = 2 * count
    return {
        "live": live,
        "elements": elements,
        "pairs": pairs,
        "ours_per_s": round(elements / seconds["ours"]),
        "duckdb_per_s": round(elements / seconds["duckdb"]),
        "ours_to_duckdb": round(seconds["duckdb"] / seconds["ours"], 2),
    }


def growth(*, one_key: bool) -> dict[str, Any]:
    """The cost per element at several numbers of live events, and the fitted exponent.

    In one key lifetimes are short and the frontier is far behind, so that pairs stay few.
    """
    rows = []
    for live in (1_000, 10_000, 100_000, 1_000_000):
        warm = 1 + live // STEP
        count = (warm + 20) * STEP
        size, keys = (2, 1) if one_key else (live, 2 * live)
        sides = [Side(seed, count, live, keys, size) for seed in (1, 2)]
        found = run(steps(*sides), warm)
        rows.append(
            {
                "live": int(found["live"] / 2),
                "per_s": round(found["elements"] / found["seconds"]),
                "pairs_per_element": round(found["pairs"] / found["elements"], 2),
                "visits": round(found["visits"], 2),
            }
        )
    logs = np.log([[row["live"], row["visits"]] for row in rows])
    slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return {"rows": rows, "exponent_of_visits": round(slope, 3)}


def main() -> None:
    use_one_core()
    facts = machine()
    run(steps(*(Side(seed, 2 * STEP, 100, 200, 100) for seed in (1, 2))))
    report(
        "join",
        {
            "machine": facts,
            "duckdb": duckdb.__version__,
            "against_duckdb": [
                against_duckdb(10_000, 400_000),
                against_duckdb(1_000_000, 2_000_000),
            ],
            "growth": growth(one_key=False),
            "growth_in_one_key": growth(one_key=True),
        },
    )


if __name__ == "__main__":
    main()
