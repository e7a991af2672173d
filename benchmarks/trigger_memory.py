"""Peak memory of `anabranch merge --once` on a backlog, in bounded triggers and in one.

    python benchmarks/trigger_memory.py [MILLIONS ...]      without: 3 and 9 million rows

Three replicas with rows of 100 bytes, 200,000 live events.  Memory is what the processes of the
command have together (Pss: pages that several of them share count once), looked at five times a
second; `at_peak_mb` has them by process: Java, the driver's Python, Spark's workers.  The first
size is also merged in one trigger: rows per second are compared with that.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from merging.clock import machine, report
from triggers.feed import NAMES, Feed, deliver

ROWS = 100_000
"""Rows of a file."""


def feed_of(millions: int) -> Feed:
    turns = millions * 1_000_000 // (ROWS * len(NAMES))
    return Feed(rows=ROWS, turns=turns, live=200_000, payload=100)


def merge(inbox: Path, *options: str) -> dict[str, Any]:
    """Seconds and peak megabytes of one run."""
    with tempfile.TemporaryDirectory(prefix="trigger_memory_") as name:
        places = ["--output", f"{name}/out", "--checkpoint", f"{name}/ck", *options]
        command = [sys.executable, "-m", "anabranch", "merge", str(inbox), "--once", *places]
        begin, peak = time.monotonic(), dict[str, int]()
        process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while process.poll() is None:
            peak = max(peak, memory_of(process.pid), key=lambda by: sum(by.values()))
            time.sleep(0.2)
        if process.returncode:
            message = f"{' '.join(command)} ended with {process.returncode}"
            raise SystemExit(message)
        by_process = {who: round(size / 2**20) for who, size in peak.items()}
        seconds, total = time.monotonic() - begin, sum(peak.values()) / 2**20
        return {"seconds": seconds, "peak_mb": total, "at_peak_mb": by_process}


def memory_of(session: int) -> dict[str, int]:
    """Bytes of all processes of a session, by what they are."""
    found = {"java": 0, "driver": 0, "workers": 0}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == session:
                lines = (entry / "smaps_rollup").read_text().splitlines()
                is_java = (entry / "comm").read_text().strip() == "java"
                is_driver = int(entry.name) == session
                who = "java" if is_java else "driver" if is_driver else "workers"
                found[who] += sum(_bytes(li) for li in lines if li.startswith("Pss:"))
        except OSError:  # it ended while we looked
            continue
    return found


def _bytes(line: str) -> int:
    return int(line.split()[1]) << 10


def measure(millions: int, *, in_one: bool) -> dict[str, Any]:
    """One size, in bounded triggers; also in one trigger, if asked for."""
    with tempfile.TemporaryDirectory(prefix="trigger_memory_") as name:
        feed, folder = feed_of(millions), Path(name)
        feed.write(folder / "made")
        for turn in range(feed.turns + 1):
            deliver(folder / "made", folder / "in", turn)
        rows = feed.rows_until(feed.turns)
        found: dict[str, Any] = {"rows": rows, **merge(folder / "in")}
        found["rows_per_second"] = round(rows / found["seconds"])
        if in_one:
            one = merge(folder / "in", "--max-bytes-per-trigger", "1000g")
            found["in_one_trigger"] = {**one, "rows_per_second": round(rows / one["seconds"])}
            found["speed_to_one_trigger"] = round(one["seconds"] / found["seconds"], 2)
    return found


def warm_up() -> None:
    """One small merge, so that no measured run compiles kernels for all that follow."""
    with tempfile.TemporaryDirectory(prefix="trigger_memory_") as name:
        feed, folder = Feed(rows=1_000, turns=1, live=1_000, payload=100), Path(name)
        feed.write(folder / "made")
        for turn in range(feed.turns + 1):
            deliver(folder / "made", folder / "in", turn)
        merge(folder / "in")


def main(sizes: list[int]) -> None:
    """All sizes; the result is written after each of them, for the last ones take long."""
    facts, found = machine(), dict[str, Any]()
    warm_up()
    for millions in sizes:
        found[f"{millions} million"] = measure(millions, in_one=millions == sizes[0])
        peaks = [one["peak_mb"] for one in found.values()]
        growth = round(max(peaks) / min(peaks), 3)
        report("trigger_memory", {"machine": facts, **found, "growth": growth})


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]] or [3, 9])
