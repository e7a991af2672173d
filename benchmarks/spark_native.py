"""Merge on Spark beside Spark's own operator: the same files, trigger by trigger, in turns.

    make bench FIG=spark_native                        every part that has no result yet
    python benchmarks/spark_native.py --part narrow    one part, again

    narrow, bytes100, bytes1000   union + dropDuplicatesWithinWatermark, on both state stores
    revisions                     30 % adjusts beside inserts alone, merge with itself
    small                         triggers of 1,000 rows beside Spark's own
    state                         ten times the live events, the same rows per trigger

A part runs in a session of its own.  All its sides take turns, trigger by trigger; the first
turns warm up and are not counted.  What was written is read and compared with the truth.
Ratios are of pairs of triggers that ran one after the other: median and quartiles.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from merging.clock import RESULTS, machine
from triggers.feed import Feed
from triggers.race import Turn, compiling, race, ratios, summary, take_turn
from triggers.sides import PROVIDERS, TICKS, Inbox, Merge, Native, Side

import anabranch as ab

RESULT = RESULTS / "spark_native.json"
WARM = 60
"""Turns that do not count; how much Java still compiles after them is in `compiled_ms`."""

MEASURED = 41

_SETTINGS = {
    # Queries that wait for their turn report nothing; keys are evicted in triggers with rows.
    "spark.sql.streaming.noDataProgressEventInterval": "3600000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}

Part = dict[str, Any]


@dataclass(frozen=True)
class Raced:
    """The turns that count, by side; and how much Java compiled, in every ten turns."""

    turns: dict[str, list[Turn]]
    compiled_ms: list[int]


def run(make: Callable[[Path], list[Side]]) -> Raced:
    """Let sides race."""
    with tempfile.TemporaryDirectory(prefix="spark_native_") as name:
        spark = ab.session(config=_SETTINGS)
        sides = make(Path(name))
        for side in sides:
            if not side.made.exists():
                side.feed.write(side.made)
            side.start(spark)
        turns = sides[0].feed.turns
        found = race(sides, turns=turns)
        for side in sides:
            if isinstance(side, Merge):
                take_turn(side, turns)
            side.query.stop()
            side.check()
        spark.stop()
    counted = {name: turns[WARM:] for name, turns in found.items()}
    return Raced(counted, compiling(found, every=10))


def against_native(feed: Feed) -> Part:
    """Merge of DataFrames, of the folders as an inbox, and Spark's own on either store."""

    def make(folder: Path) -> list[Side]:
        def place(name: str, at: int) -> tuple[str, Path, Feed, Path, int]:
            return name, folder / name, feed, folder / "made", TICKS[at]

        sides: list[Side] = [Merge(*place("merge", 0)), Inbox(*place("inbox", 1))]
        for at, provider in enumerate(PROVIDERS, start=2):
            sides.append(Native(*place(provider, at), provider=provider))
        return sides

    raced = run(make)
    part, turns = _part(feed, raced), raced.turns
    for mine in ("merge", "inbox"):
        others = {name: ratios(turns[name], turns[mine]) for name in PROVIDERS}
        part[f"native_to_{mine}"] = others
    return part


def against_itself(feeds: dict[str, Feed]) -> Part:
    """Merge of several feeds; ratios to the first."""

    def make(folder: Path) -> list[Side]:
        return [
            Merge(name, folder / name, feed, folder / f"made-{name}", TICKS[at])
            for at, (name, feed) in enumerate(feeds.items())
        ]

    raced = run(make)
    first, *rest = feeds
    turns = raced.turns
    compared = {f"{name}_to_{first}": ratios(turns[name], turns[first]) for name in rest}
    return _part(feeds[first], raced) | compared


def _part(feed: Feed, raced: Raced) -> Part:
    return {
        "rows_per_trigger": feed.rows_per_trigger,
        "payload_bytes": feed.payload,
        "compiled_ms": raced.compiled_ms,
        "sides": {name: summary(turns) for name, turns in raced.turns.items()},
    }


def narrow() -> Part:
    return against_native(Feed(rows=100_000, turns=WARM + MEASURED, live=300_000))


def bytes100() -> Part:
    return against_native(Feed(rows=50_000, turns=WARM + MEASURED, live=150_000, payload=100))


def bytes1000() -> Part:
    return against_native(Feed(rows=20_000, turns=WARM + MEASURED, live=60_000, payload=1000))


def revisions() -> Part:
    plain = Feed(rows=50_000, turns=WARM + MEASURED, live=150_000, payload=100)
    feeds = {"inserts": plain, "revisions": replace(plain, revisions=0.3)}
    return against_itself(feeds)


def small() -> Part:
    feed = Feed(rows=334, turns=WARM + MEASURED, live=3_340, payload=100)
    return against_native(feed)


def state() -> Part:
    """The larger state is filled, which takes fifty turns, before a turn counts."""
    few = Feed(rows=20_000, turns=WARM + MEASURED, live=100_000, payload=100)
    return against_itself({"live_1": few, "live_10": replace(few, live=1_000_000)})


PARTS: dict[str, Callable[[], Part]] = {
    "narrow": narrow,
    "bytes100": bytes100,
    "bytes1000": bytes1000,
    "revisions": revisions,
    "small": small,
    "state": state,
}


def read() -> dict[str, Any]:
    return json.loads(RESULT.read_text()) if RESULT.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--part", choices=PARTS, help="run this one, also if it has a result")
    parser.add_argument("--label", default="parts", help="the name to keep the result under")
    asked = parser.parse_args()
    if asked.part is None:
        for name in PARTS:
            if name not in read().get(asked.label, {}):
                again = [sys.executable, __file__, "--part", name, "--label", asked.label]
                subprocess.run(again, check=True)
        return
    facts = machine()
    part = {"machine": facts, **PARTS[asked.part]()}
    result = read() or {"command": "python benchmarks/spark_native.py"}
    result.setdefault(asked.label, {})[asked.part] = part
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({asked.part: part}, indent=1))


if __name__ == "__main__":
    main()
