"""This checkout against another one on Spark: the first trigger, and triggers of a warm query.

    python benchmarks/before_after_spark.py OTHER_CHECKOUT        about ten minutes

Each round starts a process for either checkout, with a session of its own, and lets both take
turns trigger by trigger: `ab.merge` of three DataFrames with rows of 100 bytes.  The
figure of warm triggers is the median of the ratios before / after over all pairs that count,
with quartiles; that of the first trigger is over the rounds.  Above 1 this checkout is faster.
"""

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from merging.checkouts import Checkout
from merging.clock import machine, report

ROUNDS = 5
WARM = 12
MEASURED = 9


def probe(folder: Path) -> None:
    """One line of JSON for each turn, when standard input asks for it."""
    from spark_native import _SETTINGS
    from triggers.feed import Feed
    from triggers.race import take_turn, times
    from triggers.sides import Merge

    import anabranch as ab

    feed = Feed(rows=50_000, turns=WARM + MEASURED, live=150_000, payload=100)
    side = Merge("merge", folder, feed, folder / "made", 701)
    feed.write(side.made)
    spark = ab.session(config=_SETTINGS)
    spark.range(1).collect()
    print("ready", flush=True)
    for line in sys.stdin:
        begin = time.monotonic()
        if int(line) == 0:
            side.start(spark)
        found = times([take_turn(side, int(line))])[0] / 1000
        print(found if int(line) else time.monotonic() - begin, flush=True)
    side.query.stop()
    side.check()


def run_round(other: Path) -> list[tuple[float, float]]:
    """Seconds of (before, after) for every turn; who begins changes."""
    with tempfile.TemporaryDirectory(prefix="before_after_") as name:
        places = (other, Path(__file__).parents[1])
        folders = [Path(name) / str(at) for at, _ in enumerate(places)]
        for folder in folders:
            folder.mkdir()
        sides = [
            Checkout(place, Path(__file__).resolve(), str(folder))
            for place, folder in zip(places, folders, strict=True)
        ]
        turns = []
        for turn in range(WARM + MEASURED):
            order = sides if turn % 2 else sides[::-1]
            taken = {id(side): side.take(str(turn)) for side in order}
            turns.append((taken[id(sides[0])], taken[id(sides[1])]))
        for side in sides:
            side.end()
    return turns


def main(other: Path) -> None:
    from triggers.race import spread

    facts: dict[str, Any] = {"machine": machine(), "rounds": ROUNDS}
    rounds = []
    for number in range(ROUNDS):
        rounds.append(run_round(other))
        print(f"round {number + 1} of {ROUNDS}", file=sys.stderr)
    first = [turns[0] for turns in rounds]
    warm = [pair for turns in rounds for pair in turns[WARM:]]
    for name, pairs in (("first_trigger", first), ("warm_trigger", warm)):
        facts[name] = {
            "before_to_after": spread([before / after for before, after in pairs]),
            "before_s": spread([before for before, _ in pairs]),
            "after_s": spread([after for _, after in pairs]),
        }
    report("before_after_spark", facts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--probe"]:
        probe(Path(sys.argv[2]))
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]).resolve())
    else:
        raise SystemExit(__doc__)
