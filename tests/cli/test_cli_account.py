"""The account for people: tables, sums, standings, and lines where there is no terminal."""

import io

from rich.console import Console

from anabranch.batch.schema import TimeType
from anabranch.cli.account import Watch, show_time, sum_line, table
from anabranch.spark.progress import BUCKETS, Totals


def record(rows: int, **options: object) -> dict[str, object]:
    counts = dict.fromkeys(BUCKETS, 0) | {"emitted": rows, "frontier": 7, "joined": True}
    return {
        "lane": 0,
        "replicas": {"east": counts, **options.pop("replicas", {})},  # type: ignore[dict-item]
        "output": {"elements": rows, "late": 0, "violations": 0},
        "live": 2,
        "frontier": 7,
        "leader": "east",
        "files": [{"file": "east/1", "replica": "east", "rows": rows}],
    } | options


def printed(thing: object) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(thing)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_rows_and_buckets_add_up_or_do_not() -> None:
    totals = Totals()
    totals.add([record(5)], 0)
    assert totals.adds_up
    assert "buckets add up: 5 counted = 5 rows read" in printed(sum_line(totals))
    totals.replicas["east"].rows += 1
    assert not totals.adds_up
    assert "DO NOT add up: 5 counted, 6 rows read" in printed(sum_line(totals))


def test_the_table_shows_who_leads_is_silent_joins_and_has_ended() -> None:
    quiet = dict.fromkeys(BUCKETS, 0) | {"frontier": 3, "joined": True}
    joining = dict.fromkeys(BUCKETS, 0) | {"frontier": None, "joined": False}
    ended = dict.fromkeys(BUCKETS, 0) | {"frontier": "forever", "joined": True}
    totals = Totals()
    for trigger in range(4):
        others = {"quiet": quiet, "joining": joining, "ended": ended}
        totals.add([record(5, replicas=others)], trigger)
    lines = printed(table(totals, TimeType.BIGINT, title="t")).splitlines()
    standing = {line.split()[0]: line.split()[-1] for line in lines if line.strip()}
    assert standing["east"] == "leader"
    assert standing["quiet"] == "silent"
    assert standing["joining"] == "joining"
    assert standing["ended"] == "ended"


def test_times_are_shown_as_people_read_them() -> None:
    assert show_time(None, TimeType.BIGINT) == "-"
    assert show_time("forever", TimeType.BIGINT) == "forever"
    assert show_time(1234, TimeType.BIGINT) == "1,234"
    assert show_time(0, TimeType.TIMESTAMP) == "1970-01-01T00:00:00Z"


def test_without_a_terminal_each_trigger_is_a_line() -> None:
    console = Console(file=io.StringIO(), width=120)
    totals = Totals()
    with Watch(console, TimeType.BIGINT).shown() as show:
        totals.add([record(5)], 0)
        show(totals)
    assert console.file.getvalue() == (  # type: ignore[attr-defined]
        "trigger 1: 5 rows in, 5 elements out, frontier 7, 2 live\n"
    )


def test_on_a_terminal_the_table_is_redrawn() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True)
    totals = Totals()
    with Watch(console, TimeType.BIGINT).shown() as show:
        totals.add([record(5)], 0)
        show(totals)
    assert "leader" in console.file.getvalue()  # type: ignore[attr-defined]
