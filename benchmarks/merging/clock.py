"""Times as ratios within one run: CPU seconds of this process, the best of several turns.

CPU time, because the machines are shared; the best, because what disturbs only adds.  Peers run
with one thread.  A result names the machine, the load when it began, and the command.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"


def machine() -> dict[str, object]:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 1),
    }


def best(turn: Callable[[], object], *, turns: int = 3) -> float:
    """The least CPU seconds that a turn took."""
    seconds = []
    for _ in range(turns):
        begin = time.process_time()
        turn()
        seconds.append(time.process_time() - begin)
    return min(seconds)


def race(turns: int = 5, **runners: Callable[[], object]) -> dict[str, float]:
    """The least CPU seconds of each; they take turns, so that a busy machine is fair."""
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(turns):
        for name, run in runners.items():
            seconds[name].append(best(run, turns=1))
    return {name: min(taken) for name, taken in seconds.items()}


def use_one_core() -> None:
    """This process, with all threads of its peers, runs on one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def report(name: str, result: dict[str, Any]) -> None:
    """Write a result, and show it."""
    command = f"python benchmarks/{name}.py {' '.join(sys.argv[1:])}".strip()
    text = json.dumps({"command": command, **result}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)
