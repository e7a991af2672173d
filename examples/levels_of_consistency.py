"""Three queries, each right at its own level of consistency, and what the other levels cost.

    python examples/levels_of_consistency.py

* machines that did not come up after a patch: an alarm is expensive, so no false one ("strong")
* visits of web pages: very many rows, late ones do not matter ("weak")
* trades at prices that may be corrected for 72 hours: answer now, compensate later ("middle",
  which remembers 72 hours)

Each runs in triggers of one file.  Printed per level: answers, how many were corrected, how
many are wrong in the end, how far time had passed an answer when it came first (latency), late
rows, and the bytes of the state.
"""

import random
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anabranch as ab

TIMES = "kind string, start bigint, end bigint, old_end bigint"
Row = tuple[Any, ...]
Build = Callable[[Mapping[str, ab.Stream]], ab.Query]


@dataclass
class Scenario:
    """Files of elements by stream, the times that they reach, and the query over them."""

    title: str
    columns: dict[str, str]
    files: dict[str, list[list[Row]]]
    build: Build
    levels: dict[str, dict[str, Any]]
    every: int


@dataclass
class Seen:
    """What a query answered: each answer with the trigger of its first insert, and of now."""

    first: dict[Row, int] = field(default_factory=dict)
    now: Counter[Row] = field(default_factory=Counter)
    late: int = 0

    def changes(self, df: Any, trigger: int) -> None:
        """Take the change rows of a trigger."""
        for row in df.orderBy("seq").collect():
            values = row.asDict()
            kind = values.pop("_change_type")
            key = tuple(v for n, v in values.items() if n not in ("_commit_version", "seq"))
            is_new = kind in ("insert", "update_postimage")
            self.now[key] += 1 if is_new else -1
            if is_new:
                self.first.setdefault(key, trigger)

    def late_rows(self, df: Any, _trigger: int) -> None:
        """Count the late rows of a trigger."""
        self.late += df.count()


def insert(start: int, *payload: Any, length: int = 1) -> Row:
    """An event of this length, as an element."""
    return ("insert", start, start + length, None, *payload)


def machines() -> Scenario:
    """Forty machines are patched; two never come up, some reports are twenty minutes late."""
    chance, every, count = random.Random(1), 10, 8
    patched: list[list[Row]] = [[] for _ in range(count)]
    up: list[list[Row]] = [[] for _ in range(count)]
    for number in range(40):
        at, name = chance.randrange(40), f"m{number}"
        patched[at // every].append(insert(at, name))
        back = at + chance.randint(1, 9)
        delay = chance.choice([0, 0, 0, 20])
        if number not in (7, 21):
            up[(back + delay) // every].append(insert(back, name))
    for stream in (patched, up):
        for number, rows in enumerate(stream):
            rows.append(("stable", (number + 1) * every - 20, None, None, None))
        stream[-1].append(("stable", None, None, None, None))
    return Scenario(
        "machines that did not come up within 10 minutes",
        {"patched": "machine string", "up": "machine string"},
        {"patched": patched, "up": up},
        lambda s: (
            s["patched"]
            .alter_lifetime(shift=10)
            .join(s["up"].window(10), on="machine", how="anti")
        ),
        {"strong": {"name": "strong"}, "middle": {"name": "middle"}, "weak": {"name": "weak"}},
        every,
    )


def visits() -> Scenario:
    """A thousand visits of five pages, one in twenty of them late; nothing promises an end."""
    chance, every, count = random.Random(2), 50, 10
    files: list[list[Row]] = [[] for _ in range(count)]
    for number in range(1_000):
        at = number * every * count // 1_000
        delay = chance.randrange(60, 300) if chance.random() < 0.05 else 0
        place = min((at + delay) // every, count - 1)
        files[place].append(insert(at, f"page {chance.randrange(5)}"))
    return Scenario(
        "visits per page and 50 seconds",
        {"visits": "page string"},
        {"visits": files},
        lambda s: s["visits"].window(50, 50).group_by("page").aggregate(n=ab.count()),
        {"middle": {"name": "middle"}, "weak": {"name": "weak"}},
        every,
    )


def trades() -> Scenario:
    """Prices of each hour, some of them corrected within 72 hours; trades at these prices."""
    chance, every, count = random.Random(3), 24, 8
    prices: list[list[Row]] = [[] for _ in range(count)]
    traded: list[list[Row]] = [[] for _ in range(count)]
    for hour in range(count * every - 96):
        wrong = chance.random() < 0.1
        prices[hour // every].append(insert(hour, "tea", 90 if wrong else 4))
        if wrong:
            place = (hour + chance.randrange(24, 72)) // every
            prices[place].append(("adjust", hour, hour, hour + 1, "tea", 90))
            prices[place].append(insert(hour, "tea", 4))
        if hour % 3 == 0:
            traded[hour // every].append(insert(hour, "tea", hour))
    for number, rows in enumerate(prices):
        rows.append(("stable", max(0, (number + 1) * every - 71), *[None] * 4))
    for number, rows in enumerate(traded):
        rows.append(("stable", (number + 1) * every, *[None] * 4))
    for stream in (prices, traded):
        stream[-1].append(("stable", *[None] * 5))
    return Scenario(
        "trades at the price of their hour",
        {"prices": "symbol string, price bigint", "trades": "symbol string, trade bigint"},
        {"prices": prices, "trades": traded},
        lambda s: s["trades"].join(s["prices"], on="symbol"),
        {
            "middle-72h": {"remember": 72},
            "strong": {"name": "strong"},
            "weak": {"name": "weak"},
        },
        every,
    )


def run(spark: Any, one: Scenario, name: str, place: Path) -> tuple[Seen, int]:
    """A scenario at a level, in triggers of one file; what was seen, and the state's bytes."""
    streams, seen = {}, Seen()
    for source, columns in one.columns.items():
        rows = spark.readStream.schema(f"{TIMES}, {columns}, seq bigint")
        rows = rows.option("maxFilesPerTrigger", 1).parquet(str(place / source))
        streams[source] = ab.elements(rows, name=source)
    query = (
        one.build(streams)
        .consistency(**one.levels[name])
        .start(place / f"ck-{name}", changes=seen.changes, late=seen.late_rows, once=True)
    )
    query.wait()
    return seen, query.totals.state_bytes


def write(spark: Any, one: Scenario, place: Path) -> None:
    """The files of a scenario, in the order in which they arrive."""
    for name, files in one.files.items():
        seq = 0
        for rows in files:
            numbered = [(*row, seq + at) for at, row in enumerate(rows)]
            seq += len(rows)
            some = spark.createDataFrame(numbered, f"{TIMES}, {one.columns[name]}, seq bigint")
            some.coalesce(1).write.mode("append").parquet(str(place / name))


def whole(spark: Any, one: Scenario) -> set[Row]:
    """The right answers: those over all rows at once."""
    streams = {}
    for name, files in one.files.items():
        rows: Sequence[Row] = [row for file in files for row in file]
        numbered = [(*row, at) for at, row in enumerate(rows)]
        columns = f"{TIMES}, {one.columns[name]}, seq bigint"
        streams[name] = ab.elements(spark.createDataFrame(numbered, columns), name=name)
    seen = Seen()
    seen.changes(one.build(streams).changes(), 0)
    return {key for key, number in seen.now.items() if number}


def main() -> None:
    """Run each scenario at its level and at the others, and print what that costs."""
    spark = ab.session()
    print(
        f"{'':16}{'answers':>9}{'corrected':>11}{'wrong':>7}{'latency':>9}{'late':>6}{'state':>9}"
    )
    for one in (machines(), visits(), trades()):
        print(one.title)
        with tempfile.TemporaryDirectory() as folder:
            write(spark, one, Path(folder))
            truth = whole(spark, one)
            for name in one.levels:
                seen, size = run(spark, one, name, Path(folder))
                now = {key for key, number in seen.now.items() if number}
                waits = [(at + 1) * one.every - key[0] for key, at in seen.first.items()]
                corrected = len(set(seen.first) - now)
                print(
                    f"  {name:14}{len(seen.first):9}{corrected:11}{len(now ^ truth):7}"
                    f"{sum(waits) / len(waits):9.0f}{seen.late:6}{size:9,}"
                )


if __name__ == "__main__":
    main()
