"""The account for people: tables, sums, standings, and lines where there is no terminal."""

import io
from collections.abc import Mapping

import pytest
from rich.console import Console

from anabranch.batch.schema import TimeType
from anabranch.cli.account import (
    Quiet,
    Watch,
    duplicate_line,
    show_lag,
    sum_line,
    table,
    trouble_lines,
)
from anabranch.spark.progress import (
    BUCKETS,
    LaneRecord,
    ReplicaCounts,
    Totals,
    show,
)
from anabranch.spark.step_record import OperatorRecord
from anabranch.spark.warner import Warner


def record(
    rows: int,
    *,
    replicas: Mapping[str, ReplicaCounts] | None = None,
    frontier: int | None = 7,
    east: int = 7,
    **facts: object,
) -> LaneRecord:
    counts = ReplicaCounts(rows=rows, emitted=rows, frontier=east, joined=True, attached=True)
    merge = OperatorRecord(operator="merge", frontier=frontier, live=2, facts=facts)
    return LaneRecord(
        lane=0,
        steps=1,
        replicas={"east": counts, **(replicas or {})},
        output={"elements": rows, "late": 0, "violations": 0},
        operators={"merge": merge},
        live=2,
        frontier=frontier,
        leader="east",
    )


def printed(thing: object, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
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


class Clock:
    """A clock that stands until it is put forward."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_table_shows_who_leads_is_silent_joins_has_ended_and_has_left() -> None:
    others = {
        "behind": ReplicaCounts(frontier=3, joined=True, attached=True),
        "joining": ReplicaCounts(attached=True),
        "ended": ReplicaCounts(frontier="forever", joined=True, attached=True),
        "gone": ReplicaCounts(),
    }
    totals, clock = Totals(), Clock()
    totals.add([record(5, replicas=others)], 0, at=clock())

    def standings() -> dict[str, list[str]]:
        quiet = Quiet(30, clock)
        lines = printed(table(totals, TimeType.BIGINT, title="t", quiet=quiet)).splitlines()
        return {line.split()[0]: line.split()[8:] for line in lines if len(line.split()) > 8}

    assert standings()["behind"] == ["3", "4"]  # frontier, and how far behind the leader's 7
    assert standings()["all"] == ["7", "0", "output"]
    clock.now += 29
    totals.add([record(1, replicas=others)], 1, at=clock())
    clock.now += 1
    assert standings()["east"] == ["7", "0", "leader"]
    assert standings()["behind"] == ["3", "4", "silent", "30", "s"]
    assert standings()["joining"] == ["-", "-", "joining,", "silent", "30", "s"]
    assert standings()["ended"] == ["forever", "0", "ended"]
    assert standings()["gone"] == ["-", "-", "detached"]
    clock.now += 29
    assert standings()["east"] == ["7", "0", "leader,", "silent", "30", "s"]


def test_without_a_trigger_the_clock_alone_shows_who_is_silent() -> None:
    console, clock, totals = Console(file=io.StringIO(), width=120), Clock(), Totals()
    watch = Watch(console, TimeType.BIGINT, Quiet(30, clock))
    watch.tick()
    with watch.shown() as show_totals:
        totals.add([record(5)], 0, at=clock())
        show_totals(totals)
        for _ in range(3):
            clock.now += 20
            watch.tick()
        totals.add([record(5)], 1, at=clock())
        show_totals(totals)
    logged = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert logged[1] == "east is silent: no row for 30 seconds"
    assert logged[2].startswith("trigger 2: 10 rows in")
    assert logged[3:] == ["east is no longer silent"]


def test_an_alarm_and_a_stretch_are_shown_in_words() -> None:
    totals = Totals()
    totals.add([record(5, alarm=["west", 9], stretches=[[2, 9, "north"]])], 0)
    alarm, stretch = map(str, trouble_lines(totals, TimeType.BIGINT))
    assert "only joining replicas remain, so the output stands at 7" in alarm
    assert "the smallest guarantee is 9, of 'west'" in alarm
    assert "may be wrong at times from 2 to before 9: 'north' was promoted" in stretch
    totals.add([record(5, alarm=["west", "forever"])], 1)
    assert "'west' has declared no guarantee" in str(trouble_lines(totals, TimeType.BIGINT)[0])


def test_the_log_reports_once_what_begins_and_again_that_no_stable_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    totals, warner = Totals(), Warner(TimeType.BIGINT)
    for trigger in range(12):
        alarm = ["west", 9] if 2 <= trigger < 5 or trigger == 7 else None
        totals.add([record(5, alarm=alarm, frontier=None)], trigger)
        warner.warn(totals)
    logged = [one.getMessage() for one in caplog.records]
    assert sum("only joining replicas remain" in one for one in logged) == 2
    assert [one for one in logged if one.startswith("no stable in 10 triggers: 2 events")]
    assert len(logged) == 3


def test_times_are_shown_as_people_read_them() -> None:
    assert show(None, TimeType.BIGINT) == "-"
    assert show("forever", TimeType.BIGINT) == "forever"
    assert show(1234, TimeType.BIGINT) == "1,234"
    assert show(0, TimeType.TIMESTAMP) == "1970-01-01T00:00:00Z"
    assert show_lag("forever", TimeType.TIMESTAMP) == "forever"


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


def long_account(rows: int) -> Totals:
    """Long times, a long standing, a name that looks like markup, and no small numbers."""
    totals, micros = Totals(), 1_790_000_000_123_456
    counts = {bucket: rows + at for at, bucket in enumerate(BUCKETS)}
    behind = micros - 7_300_000_000
    north = ReplicaCounts(**counts, frontier=behind, joined=True, attached=True)
    one = record(rows, replicas={"north [eu]": north}, frontier=micros, east=micros)
    totals.add([one], 0, at=100.0)
    return totals


FORMS = {160: 1, 120: 2, 80: 2, 79: 2, 40: 0, 12: 0}
"""How often a heading is there: in one table, in two, or, in paragraphs, not at all."""


@pytest.mark.parametrize(("width", "tables"), FORMS.items())
@pytest.mark.parametrize("rows", [3_456_789_012_345, 1_234_567, 7])
def test_nothing_is_cut_at_any_width(width: int, tables: int, rows: int) -> None:
    totals, clock = long_account(rows), Clock()
    clock.now = 100_000.0
    sheet = table(totals, TimeType.TIMESTAMP, title="in/box → out", quiet=Quiet(1, clock))
    text = printed(sheet, width)
    assert max(map(len, text.splitlines())) <= width
    whole = "".join(text.split())  # as if nothing had been wrapped
    for cell in (
        "in/box→out",
        "north[eu]",
        "2026-09-21T14:13:20.123456Z",
        "2026-09-21T12:11:40.123456Z",
        "2.0h",
        "leader,silent99,900s",
        "2liveevents,0bytesofstate",
        *(f"{rows + at:,}" for at in range(len(BUCKETS))),
    ):
        assert cell in whole, cell
    if rows == 7:
        assert text.count("replica ") == tables


def test_a_terminal_that_is_too_low_shows_what_one_should_know() -> None:
    console = Console(file=io.StringIO(), width=80, height=5, force_terminal=True)
    totals = Totals()
    with Watch(console, TimeType.BIGINT).shown() as show:
        totals.add([record(5, alarm=["west", 9])], 0)
        show(totals)
    assert "only joining replicas remain" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("case", "fate"), [("r4", "each is an event of its own; if"), ("r3", "apart as violations")]
)
def test_duplicates_are_named_by_replica_with_what_becomes_of_them(
    case: str, fate: str
) -> None:
    east, west = ReplicaCounts(rows=9, emitted=9, duplicates=4), ReplicaCounts()
    totals = Totals()
    totals.add([record(9, replicas={"east": east, "west": west})], 0)
    found = duplicate_line(totals, case).plain
    assert found.startswith("4 rows repeat an event that their replica has already (4 in east)")
    assert fate in found
    assert totals.to_dict()["replicas"]["east"]["duplicates"] == 4
    assert Totals.from_json(totals.to_json()).duplicates_by_replica == {"east": 4}
