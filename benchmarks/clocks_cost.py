"""The cost of a clock per row: many sources against few, learned bounds against fixed ones.

All ratios are of one run, by CPU time.  Rows of a step are summarised and stepped, as a packer
and a lane would do; the sources of a group are named by their group.

    python benchmarks/clocks_cost.py
"""

import json
import time
from pathlib import Path
from statistics import median

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
STEPS = 9
RESULT = Path(__file__).parent / "results" / "clocks_cost.json"


def seconds_per_step(clock: Clock, names: list[str], *, histogram: bool = False) -> float:
    """The median CPU time of a step of `ROWS` rows, its summary included."""
    state = clock.empty()
    chance = np.random.default_rng(1)
    sources = [names[at] for at in chance.integers(0, len(names), ROWS)]
    taken = []
    for step in range(1, STEPS + 1):
        times = step * 1_000_000 + chance.integers(0, 2_000_000, ROWS)
        begin = time.process_time()
        lines = summarise_trigger(
            sources, times, after=step - 1, upto=step, histogram=histogram
        )
        state.step(lines, step)
        taken.append(time.process_time() - begin)
    return median(taken[2:])


def main() -> None:
    """Measure, print and write the ratios."""
    ten = [f"s{n}" for n in range(10)]
    many = [f"s{n}" for n in range(100_000)]
    # What a packer does for a group: the name of the group is the source of the line.
    groups = [f"g{n}" for n in range(10)]
    group_of = {name: groups[n % 10] for n, name in enumerate(many)}
    alike = Alike(own=(Pair(0, 10),), others=(Pair(0, 50),))
    base = seconds_per_step(Clock(disorder(10)), ten)
    found = {
        "rows": ROWS,
        "ten_sources_ms": round(base * 1000, 1),
        "grouped_100000_to_ten": seconds_per_step(
            Clock(group_alike(alike)), [group_of[name] for name in many]
        )
        / base,
        "single_100000_to_ten": seconds_per_step(Clock(disorder(10)), many) / base,
        "learned_to_fixed": seconds_per_step(Clock(Learning()), ten) / base,
        "quantile_to_fixed": seconds_per_step(
            Clock(Learning(target_loss=0.001)), ten, histogram=True
        )
        / base,
    }
    found = {name: round(value, 2) for name, value in found.items()}
    RESULT.write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
