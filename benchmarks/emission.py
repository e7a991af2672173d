"""When aggregates emit: what each way emits, how far behind it is, and what it costs.

    make bench FIG=emission

`sizes` measures Theorem 9 (CEDR *theory* 2.4: a faster operator emits no less) for a count in
the three ways, on streams in order, late and corrected: elements out per element in, in steps
of 1 and of 100 elements, and how far the last result that has ended is behind the greatest
start.  The theorem is false for any two operators, so nothing is asserted.

`cost` fits CPU seconds of the kernel to a n log2 n + b m, for n elements in and m out, over
several n and lifetimes; and, free of noise, the visits of the paper's algorithms.  `exponent`
is the slope of log(cost) over log(n log2 n + m): 1 if the cost is what is claimed.
"""

import random
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from merging.clock import best, machine, report, use_one_core

from anabranch.batch.batch import INSERT, STABLE, Batch
from anabranch.batch.buffers import to_arrow
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.events import with_stable
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Element, Insert, Stable
from anabranch.model.emission import Emit
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.reference.snapshots import Snapshots

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"x": pa.int64()}))
COUNT = (Aggregate("count", None, "n"),)
STEP = 1_000
FORMS = {"in order": (0.0, 0.0), "20 % late": (0.2, 0.0), "late, 10 % corrected": (0.2, 0.1)}
WAYS: list[tuple[str, Emit, int | None]] = [
    *((emit.value, emit, None) for emit in Emit),
    *((f"{emit.value}, on a grid", emit, 64) for emit in Emit),
]


def stream(count: int, late: float, corrected: float, *, lifetime: int) -> list[Element]:
    """One insert per two units of time; a stable behind what may still be late."""
    chance, made, live = random.Random(7), [], []
    for at in range(0, 2 * count, 2):
        start = at - (chance.randint(1, 40) if chance.random() < late else 0)
        made.append(Insert(1, start, start + chance.randint(1, 2 * lifetime)))
        live = [*live[-20:], made[-1].event]
        if chance.random() < corrected:
            event = live.pop(chance.randrange(len(live)))
            if event.end > at - 40:
                end = max(at - 40, event.start + 1, event.end - 5)
                made.append(Adjust(*event, end))
        if at % 200 == 198:
            made.append(Stable(at - 40))
    return made


def sizes(count: int) -> dict[str, Any]:
    """Elements out per element in, and units behind, by stream and way."""
    found: dict[str, Any] = {}
    for name, form in FORMS.items():
        elements = stream(count, *form, lifetime=40)
        found[name] = {
            label: size(elements, emit, every) for label, emit, every in WAYS if not every
        }
    return found


def size(elements: Sequence[Element], emit: Emit, every: int | None) -> dict[str, float]:
    """What one way makes of a stream."""
    emitted, behind = {}, []
    for step in (1, 100):
        operator = AggregateOperator(SCHEMA, (), COUNT, emit=emit, cut_every=every)
        state, out, ended, greatest = operator.empty(), 0, 0.0, 0.0
        for first in range(0, len(elements), step):
            some = elements[first : first + step]
            result = state.step(Inputs((Arrival("input", from_elements(some, SCHEMA)),)))
            found = to_elements(result.output)
            out += len(found)
            ends = [one.end for one in found if isinstance(one, Insert | Adjust)]
            ended = max([ended, *(end for end in ends if end < float("inf"))])
            greatest = max([greatest, *(e.start for e in some if isinstance(e, Insert))])
            if step == 1:
                behind.append(greatest - ended)
        emitted[f"out_per_in_by_{step}"] = round(out / len(elements), 2)
    return emitted | {"units_behind": round(sum(behind) / len(behind), 1)}


def batches(count: int, lifetime: int) -> list[Batch]:
    """The same kind of stream as columns, in one group, in steps of STEP elements."""
    rng = np.random.default_rng(7)
    late = np.where(rng.random(count) < 0.2, rng.integers(1, 40, count), 0)
    start = np.arange(0, 2 * count, 2) - late
    end = start + rng.integers(1, 2 * lifetime, count)
    found = []
    for first in range(0, count, STEP):
        rows = slice(first, first + STEP)
        payload = pa.table({"x": to_arrow(np.ones(STEP, np.int64), pa.int64())})
        times = np.append(start[rows], 2 * (first + STEP) - 80)
        kind = np.repeat(np.array([INSERT, STABLE], np.int8), (STEP, 1))
        ends, none = np.append(end[rows], 0), np.zeros(STEP + 1, np.int64)
        columns = with_stable(payload, SCHEMA, 1)
        found.append(Batch(SCHEMA, kind, times, ends, none, columns))
    return found


def run(emit: Emit, every: int | None, some: Sequence[Batch]) -> int:
    """All batches through the kernel; the number of elements that come out."""
    state = AggregateOperator(SCHEMA, (), COUNT, emit=emit, cut_every=every).empty()
    return sum(len(state.step(Inputs((Arrival("input", b),))).output) for b in some)


def cost(emit: Emit, every: int | None) -> dict[str, Any]:
    """The fit of CPU seconds over numbers of elements and lifetimes."""
    rows = []
    for lifetime in (8, 128):
        for count in (16_000, 32_000, 64_000, 128_000, 256_000):
            some = batches(count, lifetime)
            emitted = run(emit, every, some)
            seconds = best(lambda given=some: run(emit, every, given), turns=3)
            rows.append((count, emitted, seconds))
    return fitted(rows, unit=1e9)


def visits(emit: Emit) -> dict[str, Any]:
    """The fit of the visits of the paper's algorithms, element by element."""
    rows = []
    for lifetime in (8, 64):
        for count in (500, 1_000, 2_000, 4_000):
            elements = stream(count, 0.2, 0.1, lifetime=lifetime)
            state = Snapshots(len, emit)
            state.check = lambda: None  # type: ignore[method-assign]
            emitted = sum(len(state.push(element)) for element in elements)
            rows.append((len(elements), emitted, state.visits))
    return fitted(rows, unit=1)


def fitted(rows: Sequence[tuple[int, int, float]], *, unit: float) -> dict[str, Any]:
    """The least relative squares of a n log2 n + b m, and the exponent."""
    n, m, y = np.array(rows, np.float64).T
    terms = np.stack([n * np.log2(n), m], axis=1)
    factors, *_ = np.linalg.lstsq(terms / y[:, None], np.ones(len(y)), rcond=None)
    error = np.abs(terms @ factors / y - 1).max()
    slope = np.polyfit(np.log(terms.sum(axis=1)), np.log(y), 1)[0]
    return {
        "a": round(float(factors[0]) * unit, 2),
        "b": round(float(factors[1]) * unit, 2),
        "greatest_error": round(float(error), 2),
        "exponent": round(float(slope), 2),
        "rows": [{"n": int(a), "m": int(b), "cost": float(f"{c:.4g}")} for a, b, c in rows],
    }


def main() -> None:
    use_one_core()
    facts, begin = machine(), time.perf_counter()
    run(Emit.PASSED, 64, batches(2 * STEP, 8))
    found = {
        "machine": facts,
        "sizes": sizes(2_000),
        "cost_ns": {label: cost(emit, every) for label, emit, every in WAYS},
        "visits": {emit.value: visits(emit) for emit in Emit},
    }
    report("emission", found)
    print(f"{time.perf_counter() - begin:.0f} s")


if __name__ == "__main__":
    main()
