"""The files of a merge that is left running: `anabranch merge --watch`, then a restart.

    python benchmarks/watch_files.py          ten minutes, a file of a replica every second
    python benchmarks/watch_files.py 120      two minutes

Plain rows of two copies arrive as one small file each second; `--roll` has its default, one
minute.  Counted are the files of the output and of the checkpoint at half time and at the end,
and the seconds until the first line of a fresh run and of a restart: neither may grow with the
age of the run, but for the published files, one per `roll`.
"""

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import IO, cast

from merging.clock import machine, report


def put(inbox: Path, number: int) -> None:
    """The next file: ten orders of one of the copies."""
    folder = inbox / ("east", "west")[number % 2]
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"ts": 10 * (number // 2) + n, "order": f"o{n}"} for n in range(10)]
    hidden = folder / f"_{number:06d}.jsonl"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(folder / f"{number:06d}.jsonl")


def counted(folder: Path) -> dict[str, int]:
    """Files below each entry of a folder."""
    files = (path.relative_to(folder).parts[0] for path in folder.rglob("*") if path.is_file())
    return dict(sorted(Counter(files).items()))


class Run:
    """A merge that watches the inbox."""

    def __init__(self, place: Path) -> None:
        words = [
            sys.executable,
            "-m",
            "anabranch",
            "merge",
            place / "inbox",
            "--watch",
        ]
        words += ["--time", "ts", "--lifetime", "5", "--disorder", "20", "--json"]
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


def main() -> None:
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        place, number = Path(folder), 0
        put(place / "inbox", 0)
        put(place / "inbox", 1)
        run = Run(place)
        starts, counts = [run.seconds], {}
        for half in ("half", "end"):
            until = time.monotonic() + seconds / 2
            while time.monotonic() < until:
                number += 1
                put(place / "inbox", number + 1)
                time.sleep(1)
            counts[half] = {"out": counted(place / "out"), "ck": counted(place / "ck")}
        run.end()
        put(place / "inbox", number + 2)
        again = Run(place)
        starts.append(again.seconds)
        again.end()
        totals = {
            name: {half: sum(counts[half][name].values()) for half in counts}
            for name in ("out", "ck")
        }
    result = {"seconds": seconds, "files_put": number + 3, "files": totals, "by_folder": counts}
    report("watch_files", {"machine": facts, **result, "seconds_to_first_trigger": starts})


if __name__ == "__main__":
    main()
