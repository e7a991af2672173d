"""The files of a merge that is left running: `anabranch merge --watch`, then a restart.

    python benchmarks/watch_files.py          ten minutes, a file of a replica every second
    python benchmarks/watch_files.py 120      two minutes
    python benchmarks/watch_files.py --day    a day in 24 minutes: a second stands for a minute

Plain rows of two copies arrive as one small file each second; `--roll` has its default, one
minute (`--day`: a second, for it is one too).  Counted are the files of the output and of the
checkpoint at every quarter, and the seconds until the first line of a fresh run and of a
restart.  It fails if more files are there than `most` allows: what the guide states under
"What piles up, and what does not".
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO, Any, cast

from merging.clock import RESULTS, machine, report

from anabranch.spark.write.records import record_files

LANES = 2
RESULT = RESULTS / "watch_files.json"


def put(inbox: Path, number: int) -> None:
    """The next file: ten orders of one of the copies."""
    folder = inbox / ("east", "west")[number % 2]
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"ts": 10 * (number // 2) + n, "order": f"o{n}"} for n in range(10)]
    hidden = folder / f"_{number:06d}.jsonl"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:06d}.jsonl")


def counted(folder: Path) -> dict[str, int]:
    """Files below each entry of a folder; sub-folders may go while they are counted."""
    found: Counter[str] = Counter()
    for place, _, names in os.walk(folder):
        below = Path(place).relative_to(folder).parts
        found.update(below[0] if below else name for name in names)
    return dict(sorted(found.items()))


def most(
    quarters: list[dict[str, dict[str, int]]], *, seconds: float, roll: float
) -> list[str]:
    """What is more than the guide allows, at the last quarter; nothing if all is well.

    A trigger has a file per lane and a record; there is no more than one trigger per file.
    """
    first, last = quarters[0], quarters[-1]
    out, ck = last["out"], last["ck"]
    kept = ck.get("control", 0) + ck.get("consumed", 0)
    rest, rest_at_first = (
        sum(found["ck"].values())
        - found["ck"].get("control", 0)
        - found["ck"].get("consumed", 0)
        for found in (last, first)
    )
    in_two_rolls = 2 * roll + 2
    rules = {
        "published files": (out.get("elements", 0), seconds / roll + 1),
        "files of the tail": (out.get(".elements.tail", 0), (LANES + 1) * in_two_rolls + 4),
        "records of progress": (out.get("progress", 0), 1_100 + 2),
        "entries of the control log": (kept, 1_000 + in_two_rolls),
        "files of Spark, against the first quarter": (rest, 1.2 * rest_at_first + 10),
    }
    return [
        f"{name}: {count} > {limit:.0f}"
        for name, (count, limit) in rules.items()
        if count > limit
    ]


class Run:
    """A merge that watches the inbox."""

    def __init__(self, place: Path, roll: int) -> None:
        words = [
            sys.executable,
            "-m",
            "anabranch",
            "merge",
            place / "inbox",
            "--watch",
        ]
        words += ["--time", "ts", "--lifetime", "5", "--disorder", "20", "--json"]
        words += ["--roll", f"{roll} seconds", "--lanes", str(LANES)]
        words += ["--output", place / "out", "--checkpoint", place / "ck"]
        began = time.monotonic()
        self.process = subprocess.Popen(
            [str(word) for word in words], stdout=subprocess.PIPE, text=True
        )
        cast("IO[str]", self.process.stdout).readline()
        self.seconds = round(time.monotonic() - began, 1)

    def end(self) -> None:
        """Interrupt it, as Ctrl-C does, and read what it prints."""
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()


def watch(place: Path, seconds: int, roll: int) -> dict[str, Any]:
    """A new file each second, then a restart: the files of every quarter."""
    number = 0
    put(place / "inbox", 0)
    put(place / "inbox", 1)
    run = Run(place, roll)
    starts, quarters = [run.seconds], []
    began = time.monotonic()
    for quarter in range(1, 5):
        while time.monotonic() < began + seconds * quarter / 4:
            number += 1
            put(place / "inbox", number + 1)
            time.sleep(max(0.0, began + number - time.monotonic()))
        quarters.append({"out": counted(place / "out"), "ck": counted(place / "ck")})
        print(quarters[-1], file=sys.stderr, flush=True)
    run.end()
    excess = most(quarters, seconds=time.monotonic() - began, roll=roll)
    put(place / "inbox", number + 2)
    again = Run(place, roll)
    again.end()
    return {
        "files_put": number + 3,
        "triggers": max(record_files(place / "out" / "progress")) + 1,
        "files": {
            name: [sum(quarter[name].values()) for quarter in quarters]
            for name in ("out", "ck")
        },
        "by_folder_at_the_end": quarters[-1],
        "more_than_the_guide_allows": excess,
        "seconds_to_first_trigger": [*starts, again.seconds],
    }


def main(seconds: int, roll: int) -> None:
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        seen = watch(Path(folder), seconds, roll)
    result = {"machine": facts, "seconds": seconds, "roll_seconds": roll, **seen}
    found = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    runs = {**found.get("runs", {}), "day" if roll == 1 else "ten minutes": result}
    report("watch_files", {"runs": {name: runs[name] for name in sorted(runs)}})
    if excess := seen["more_than_the_guide_allows"]:
        raise SystemExit("; ".join(excess))


if __name__ == "__main__":
    if sys.argv[1:] == ["--day"]:
        main(24 * 60, 1)
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 600, 60)
