"""The cost of a clock per row: many sources against few, learned bounds against fixed ones.

All ratios are of one run, by CPU time.  Rows of a step are summarised and stepped, as a packer
and a lane would do; the sources of a group are named by their group.

    python benchmarks/clocks_cost.py
"""

import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from anabranch.clocks import (
    Alike,
    Clock,
    Learning,
    Pair,
    disorder,
    group_alike,
    summarise_trigger,
)

ROWS = 100_000
STEPS = 40
WARM_UP = 5
RESULT = Path(__file__).parent / "results" / "clocks_cost.json"


class Measured:
    """A clock with its sources, and the CPU time of each of its steps."""

    def __init__(self, clock: Clock, names: list[str]) -> None:
        self.state = clock.empty()
        self.histogram = clock.needs_histogram
        chance = np.random.default_rng(1)
        self.sources = [names[at] for at in chance.integers(0, len(names), ROWS)]
        self.seconds: list[float] = []

    def step(self, number: int, times: Any) -> None:
        """Summarise `ROWS` rows and take a step."""
        begin = time.process_time()
        lines = summarise_trigger(
            self.sources, times, after=number - 1, upto=number, histogram=self.histogram
        )
        self.state.step(lines, number)
        self.seconds.append(time.process_time() - begin)


def main() -> None:
    """Measure, print and write the ratios: clocks take their steps in turn."""
    ten = [f"s{n}" for n in range(10)]
    many = [f"s{n}" for n in range(100_000)]
    # What a packer does for a group: the name of the group is the source of the line.
    ten_groups = [f"g{n}" for n in range(10)]
    groups = [ten_groups[n % 10] for n in range(100_000)]
    alike = Alike(own=(Pair(0, 10),), others=(Pair(0, 50),))
    base = Measured(Clock(disorder(10)), ten)
    others = {
        "grouped_100000_to_ten": Measured(Clock(group_alike(alike)), groups),
        "single_100000_to_ten": Measured(Clock(disorder(10)), many),
        "learned_to_fixed": Measured(Clock(Learning()), ten),
        "quantile_to_fixed": Measured(Clock(Learning(target_loss=0.001)), ten),
    }
    chance = np.random.default_rng(2)
    for number in range(1, STEPS + 1):
        times = number * 1_000_000 + chance.integers(0, 2_000_000, ROWS)
        for one in (base, *others.values()):
            one.step(number, times)
    usual = median(base.seconds[WARM_UP:])
    found = {"rows": ROWS, "ten_sources_ms": round(usual * 1000, 1)}
    found |= {n: round(median(o.seconds[WARM_UP:]) / usual, 2) for n, o in others.items()}
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
