"""The first trigger of a fresh session, and the whole command, beside what Spark needs itself.

    make bench FIG=spark_start                                  about twelve minutes
    python benchmarks/spark_start.py --cluster    two rounds on a standalone cluster of this
                                                  machine, two workers; about six minutes

Each turn is a process with a session of its own; the sides take turns.  Parts:

    tiny, rows300000    seconds from `start` to the end of the first trigger: merge of three
                        DataFrames, of an inbox, and union + dropDuplicatesWithinWatermark
    command             `anabranch merge INBOX --once` of a tiny inbox, beside a program that
                        starts a session, counts a row and stops

The ratio to native is that of the medians; above 1 native is faster.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from merging.clock import RESULTS, machine, report
from triggers.feed import Feed, deliver
from triggers.race import take_turn
from triggers.sides import Inbox, Merge, Native, Side

ROUNDS = 5
LOCAL = "local[*]"
FEEDS = {
    "tiny": Feed(rows=10, turns=1, live=100, payload=100),
    "rows300000": Feed(rows=100_000, turns=1, live=300_000, payload=100),
}
SIDES: dict[str, type[Side]] = {"native": Native, "merge": Merge, "inbox": Inbox}
BARE = "import anabranch as ab; s = ab.session(); s.range(1).count(); s.stop()"


def probe(size: str, name: str, folder: Path, master: str) -> None:
    """One first trigger; prints its seconds."""
    import anabranch as ab

    side = SIDES[name](name, folder, FEEDS[size], folder / "made", 100)
    side.feed.write(side.made)
    # A cluster has Spark's 200 partitions, which its own operator would open a store each for.
    partitions = {} if master == LOCAL else {"spark.sql.shuffle.partitions": "2"}
    spark = ab.session(master=master, config=partitions)
    begin = time.monotonic()
    side.start(spark)
    take_turn(side, 0)
    seconds = time.monotonic() - begin
    if isinstance(side, Merge):
        take_turn(side, 1)
    side.query.stop()
    side.check()
    spark.stop()
    print(json.dumps(seconds))


def first_trigger(size: str, name: str, master: str = LOCAL) -> float:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="spark_start_") as folder:
        command = [sys.executable, __file__, "--probe", size, name, folder, master]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def command() -> float:
    """Seconds of the command on a tiny inbox."""
    with tempfile.TemporaryDirectory(prefix="spark_start_") as name:
        folder = Path(name)
        FEEDS["tiny"].write(folder / "made")
        for turn in (0, 1):
            deliver(folder / "made", folder / "in", turn)
        places = ["--output", str(folder / "out"), "--checkpoint", str(folder / "checkpoint")]
        return _seconds(["-m", "anabranch", "merge", str(folder / "in"), "--once", *places])


def bare() -> float:
    """Seconds of a program with a session that does nearly nothing."""
    return _seconds(["-c", BARE])


def _seconds(arguments: list[str]) -> float:
    begin = time.monotonic()
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    return time.monotonic() - begin


def summary(seconds: dict[str, list[float]], over: str) -> dict[str, Any]:
    """Medians, with the least and the greatest, and ratios to one side."""
    medians = {name: statistics.median(some) for name, some in seconds.items()}
    return {
        name: {
            "seconds": round(medians[name], 2),
            "least": round(min(some), 2),
            "greatest": round(max(some), 2),
            f"ratio_to_{over}": round(medians[name] / medians[over], 2),
            f"seconds_above_{over}": round(medians[name] - medians[over], 2),
        }
        for name, some in seconds.items()
    }


def on_cluster() -> None:
    """The first triggers on a cluster that lives as long as the measurement."""
    sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "spark" / "faults"))
    from standalone import Cluster

    with tempfile.TemporaryDirectory(prefix="spark_start_") as name:
        cluster = Cluster(Path(name) / "cluster")
        try:
            for _ in range(2):
                cluster.add_worker()
            main(cluster.url, rounds=2)
        finally:
            cluster.close()


def main(master: str = LOCAL, rounds: int = ROUNDS) -> None:
    facts = machine()
    found: dict[str, dict[str, list[float]]] = {}
    for number in range(rounds):
        for size in FEEDS:
            for name in SIDES:
                taken = first_trigger(size, name, master)
                found.setdefault(size, {}).setdefault(name, []).append(taken)
        for name, run in (("bare", bare), ("command", command)) if master == LOCAL else ():
            found.setdefault("command", {}).setdefault(name, []).append(run())
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    parts = {
        size: summary(some, "bare" if size == "command" else "native")
        for size, some in found.items()
    }
    result: dict[str, Any] = {"machine": facts, "rounds": rounds, **parts}
    if master != LOCAL:
        result = {**_committed(), "cluster": result}
    elif "cluster" in _committed():
        result["cluster"] = _committed()["cluster"]
    report("spark_start", result)


def _committed() -> dict[str, Any]:
    """What other parts measured before; a run of one part keeps them."""
    found: dict[str, Any] = json.loads((RESULTS / "spark_start.json").read_text())
    return {name: value for name, value in found.items() if name != "command"}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        probe(sys.argv[2], sys.argv[3], Path(sys.argv[4]), sys.argv[5])
    elif sys.argv[1:2] == ["--cluster"]:
        on_cluster()
    else:
        main()
