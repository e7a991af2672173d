"""What clocks gain: learned bounds against fixed ones, delayed bounds against bounds at once.

Three comparisons, each with the share of rows that are late and how long rows wait, on the wall
clock, until the stable has passed them.  All streams are simulated from a seed.

    spikes     a network whose latency rises now and then: fixed and learned bounds, a quantile
    counter    the global counter of 4.1: bounds with waits, and the best without (t = 0)
    silent     one of two sources falls silent: a watermark by the rules that Spark documents
               (each source's greatest time less its delay; the global one is their least, or
               with `multipleWatermarkPolicy=max` their greatest), computed here, and a clock
               with `idle_after`

    python benchmarks/clocks_compared.py

Papers: Heartbeats 3.4, 4.1, 6.2.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import TypeAlias

import numpy as np

from anabranch.clocks import Clock, Learning, Token, disorder, global_counter, summarise
from anabranch.testing.clocks import SentRow, instants, simulate_counter

RESULT = Path(__file__).parent / "results" / "clocks_compared.json"
Step: TypeAlias = Callable[[list[SentRow], int], int | None]
"""Takes the rows of an instant; the stable from then on."""
Found: TypeAlias = dict[str, float | int | None]


def stepped(clock: Clock, names: Sequence[str] = ()) -> Step:
    """The steps of a clock of these sources."""
    state = clock.empty()

    def step(rows: list[SentRow], now: int) -> int | None:
        columns = [
            [getattr(row, name) for row in rows] for name in ("source", "time", "arrived")
        ]
        lines = summarise(*columns, histogram=clock.needs_histogram)
        return state.step(lines, now, present=names).stable

    return step


def measured(step: Step, rows: Sequence[SentRow], until: int = 0) -> Found:
    """The share of late rows, and how long the others wait; -1: rows that are never passed."""
    instant, stables, late = [], [], 0
    stable: int | None = None
    arrivals = dict(instants(rows))
    for now in range(max(arrivals) + until + 1):
        some = arrivals.get(now, [])
        late += sum(stable is not None and row.time < stable for row in some)
        stable = step(some, now)
        instant.append(now)
        stables.append(-(2**62) if stable is None else stable)
    passed = np.searchsorted(np.array(stables), [row.time for row in rows], side="right")
    known = passed < len(instant)
    waits = np.array([now - rows[at].arrived for at, now in enumerate(passed.tolist())])
    waits = np.maximum(waits[known], 0)
    return {
        "late_share": round(late / len(rows), 5),
        "mean_wait": round(float(waits.mean()), 1) if len(waits) else None,
        "p99_wait": round(float(np.quantile(waits, 0.99)), 1) if len(waits) else None,
        "never_passed": int((~known).sum()),
    }


def spiking(seed: int = 1, rows: int = 12_000) -> list[SentRow]:
    """A source whose rows arrive 0 to 20 late, in spikes of 200 ticks up to 400 late."""
    chance = Random(seed)
    made = []
    for now in range(rows):
        slow = now % 4000 >= 3800
        latency = chance.randrange(400) if slow else min(int(chance.expovariate(0.2)), 20)
        made.append(SentRow("a", now, now, now + latency, now))
    return sorted(made, key=lambda row: (row.arrived, row.number))


def spikes() -> dict[str, Found]:
    """Fixed bounds against learned ones."""
    rows = spiking()
    clocks = {
        "fixed, none late (400)": Clock(disorder(400)),
        "fixed, the usual (20)": Clock(disorder(20)),
        "learned, window 500": Clock(Learning(window=500, alpha=0.5, warm_up=50)),
        "learned, window adapts": Clock(Learning(window=500, adapts=True, warm_up=50)),
        "quantile, 1 % late": Clock(Learning(window=2000, target_loss=0.01, warm_up=50)),
    }
    return {name: measured(stepped(clock), rows, 500) for name, clock in clocks.items()}


def counter() -> dict[str, Found]:
    """Bounds with waits against the best bounds that wait for nothing (4.1)."""
    sources = {"s1": Token(1, 2), "s2": Token(1, 100)}
    rows = simulate_counter(sources, Random(1), rows=2000)
    return {
        name: measured(stepped(Clock(global_counter(sources, delayed=delayed))), rows, 300)
        for name, delayed in (("delayed", True), ("t = 0", False))
    }


def watermark(pick: Callable[[Sequence[int]], int], delay: int, names: Sequence[str]) -> Step:
    """Spark's rule for several sources; a source without rows has a watermark of 0."""
    greatest = dict.fromkeys(names, 0)

    def step(rows: list[SentRow], now: int) -> int | None:  # noqa: ARG001
        for row in rows:
            greatest[row.source] = max(greatest[row.source], row.time)
        return max(pick([one - delay for one in greatest.values()]), 0)

    return step


def silent() -> dict[str, Found]:
    """Source b is 300 behind, falls silent from 2000 to 5000, and returns with current rows."""
    chance = Random(3)
    made = []
    for now in range(6000):
        made.append(SentRow("a", now, now, now + chance.randrange(10)))
        if not 2000 <= now < 5000:
            time = max(0, now - 300) if now < 5000 else now
            made.append(SentRow("b", time, now, now + chance.randrange(10)))
    rows = sorted(made, key=lambda row: row.arrived)
    names = ("a", "b")
    ours = Clock(disorder(10), idle_after=100)
    return {
        "watermark, least": measured(watermark(min, 10, names), rows),
        "watermark, greatest": measured(watermark(max, 10, names), rows),
        "clock, idle_after 100": measured(stepped(ours, names), rows),
    }


def main() -> None:
    """Run all comparisons, print and write them."""
    found = {"spikes": spikes(), "counter": counter(), "silent": silent()}
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    for title, table in found.items():
        print(title)
        for name, row in table.items():
            print(f"  {name:24}", ", ".join(f"{key} {value}" for key, value in row.items()))


if __name__ == "__main__":
    main()
