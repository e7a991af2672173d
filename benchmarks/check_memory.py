"""`anabranch check` on ten million elements: CPU time, wall time and peak memory.

    make bench FIG=check_memory            10 million elements of 100 bytes
    python benchmarks/check_memory.py 1    1 million

Writes benchmarks/results/check_memory.json with the machine named.  One run, one process; the
generator's own time is not counted.
"""

import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def machine() -> dict[str, object]:
    pages = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30, 1),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": os.getloadavg()[0],
    }


def main() -> None:
    millions = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as folder:
        inbox, truth = Path(folder, "inbox"), Path(folder, "truth")
        events = int(millions * 815_000)
        words = ["generate", inbox, "--replicas", 1, "--events", events, "--reference", truth]
        anabranch = [sys.executable, "-m", "anabranch"]
        subprocess.run([*anabranch, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
        begin = time.monotonic()
        ran = subprocess.run(
            [*anabranch, "check", str(inbox), str(truth), "--json"],
            check=True,
            capture_output=True,
        )
        wall = time.monotonic() - begin
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    verdict = json.loads(ran.stdout)
    result = {
        "ok": verdict["ok"],
        "elements": sum(stream["elements"] for stream in verdict["a"]["streams"]),
        "reference_events": events,
        "wall_seconds": round(wall, 1),
        "cpu_seconds_generate_and_check": round(used.ru_utime + used.ru_stime, 1),
        "peak_gib_of_the_larger": round(used.ru_maxrss / 2**20, 2),
        "machine": facts,
    }
    (HERE / "results" / "check_memory.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
