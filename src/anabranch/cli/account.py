"""The table of a merge: a line per replica, a column per bucket, with sums.

`table` is printed while a merge runs and when it ends; `Watch` redraws it in place on a
terminal and prints one line per trigger elsewhere, so that a log file stays readable.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import time as wall_clock

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from anabranch.batch.schema import TimeType
from anabranch.cli.sheet import Line, Sheet
from anabranch.spark.progress import BUCKETS, ReplicaTotals, Totals, show, troubles
from anabranch.spark.step_record import Shown

FILE_WIDTH = 120
"""Characters in a line where there is no terminal to ask."""


@dataclass(frozen=True)
class Quiet:
    """Reports a replica as silent after `after` seconds without a row."""

    after: float = 60.0
    clock: Callable[[], float] = wall_clock

    def is_silent(self, replica: ReplicaTotals) -> bool:
        """Whether the replica is attached, has not ended, and sends no rows."""
        return replica.is_silent(self.clock(), self.after)

    def standing(self, replica: ReplicaTotals) -> str:
        """The replica's standing, with the seconds of silence, if it is silent."""
        word = "" if replica.standing == "joined" else replica.standing
        if not self.is_silent(replica):
            return word
        seconds = int(self.clock() - (replica.last_seen or 0))
        return f"{word}, silent {seconds:,} s".removeprefix(", ")


QUIET = Quiet()


def table(totals: Totals, time: TimeType, *, title: str, quiet: Quiet = QUIET) -> Sheet:
    """One line per replica, then the sum and the output."""
    lines = [
        Line(
            name,
            (replica.rows, *(replica.buckets[bucket] for bucket in BUCKETS)),
            (show(replica.frontier, time), show_lag(replica.lag, time)),
            quiet.standing(replica),
        )
        for name, replica in sorted(totals.replicas.items())
    ]
    counts = totals.rows, *(totals.bucket(bucket) for bucket in BUCKETS)
    at = show(totals.frontier, time), show_lag(totals.lag, time)
    below = f"{totals.live:,} live events, {totals.state_bytes:,} bytes of state"
    return Sheet(title, (*lines, Line("all", counts, at, "output")), below)


_LENGTHS = (("d", 86_400), ("h", 3_600), ("min", 60))


def show_lag(lag: Shown, time: TimeType) -> str:
    """A distance in time as people read it.

    >>> show_lag(1500, TimeType.BIGINT), show_lag(1_500_000, TimeType.TIMESTAMP)
    ('1,500', '1.5 s')
    >>> show_lag(7_300_000_000, TimeType.TIMESTAMP)
    '2.0 h'
    """
    if not isinstance(lag, int) or time is TimeType.BIGINT:
        return show(lag, TimeType.BIGINT)
    seconds = lag / 1_000_000
    for word, length in _LENGTHS:
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {word}"
    return f"{seconds:.3g} s"


def trouble_lines(totals: Totals, time: TimeType) -> list[Text]:
    """Warnings for those who rely on the output."""
    return [Text(f"warning: {one}", "bold yellow") for one in troubles(totals, time)]


def gap_lines(totals: Totals) -> list[Text]:
    """Which events each copy lacks, or alone has; nothing where copies have no gaps."""
    return [
        Text(
            f"{name} lacks {one.lacks:,} events that other copies have, and alone has "
            f"{one.alone:,}"
        )
        for name, one in sorted(totals.replicas.items())
        if one.lacks or one.alone
    ]


def sum_line(totals: Totals) -> Text:
    """Whether every row is in exactly one bucket, in words."""
    counted = sum(totals.bucket(bucket) for bucket in BUCKETS)
    if totals.adds_up:
        return Text(f"buckets add up: {counted:,} counted = {totals.rows:,} rows read", "green")
    return Text(
        f"buckets DO NOT add up: {counted:,} counted, {totals.rows:,} rows read", "bold red"
    )


def duplicate_line(totals: Totals, case: str) -> Text:
    """How many rows repeat an event of their replica, and what to declare if none should."""
    counts = totals.duplicates_by_replica
    listed = ", ".join(f"{count:,} in {name}" for name, count in sorted(counts.items()))
    fate = (
        "each is an event of its own; if an event comes once, --case r3 (in _replica.json: "
        '"keyed": true) keeps them apart as violations'
        if case == "r4"
        else "they are kept apart as violations"
    )
    return Text(
        f"{totals.duplicates:,} rows repeat an event that their replica has already "
        f"({listed}): {fate}",
        "yellow",
    )


class Watch:
    """The table of a running merge, on stderr; `tick` reports replicas that became silent."""

    def __init__(self, console: Console, time: TimeType, quiet: Quiet = QUIET) -> None:
        self._console = console
        self._time = time
        self._quiet = quiet
        self._live: Live | None = None
        self._lock = threading.Lock()
        self._last: Totals | None = None
        self._silent: set[str] = set()
        self.note = ""

    @contextlib.contextmanager
    def shown(self) -> Iterator[Callable[[Totals], None]]:
        """Show the account until the block ends; call what is yielded after every trigger."""
        if not self._console.is_terminal:
            yield self._line
            return
        with Live(console=self._console, refresh_per_second=8, transient=True) as live:
            self._live = live
            yield self._draw
        self._live = None

    def tick(self) -> None:
        """Check for silent replicas, also while no trigger runs."""
        if self._last is None:
            return
        if self._live is not None:
            self._draw(self._last)
        else:
            self._report_silent(self._last)

    def _draw(self, totals: Totals) -> None:
        with self._lock:
            self._last = totals
            if self._live is not None:
                title = f"trigger {totals.triggers}  {self.note}"
                drawn = table(totals, self._time, title=title, quiet=self._quiet)
                # Above the table: a terminal that is too low cuts what is below.
                self._live.update(Group(*trouble_lines(totals, self._time), drawn))

    def _line(self, totals: Totals) -> None:
        self._last = totals
        made = totals.output.get("elements", 0)
        at = show(totals.frontier, self._time)
        self._print(
            f"trigger {totals.triggers}: {totals.rows:,} rows in, {made:,} elements out, "
            f"frontier {at}, {totals.live:,} live {self.note}".rstrip()
        )
        self._report_silent(totals)

    def _report_silent(self, totals: Totals) -> None:
        """Print a line for each replica that becomes silent, or sends rows again."""
        with self._lock:
            silent = set(totals.silent(self._quiet.clock(), self._quiet.after))
            for name in sorted(silent - self._silent):
                self._print(f"{name} is silent: no row for {self._quiet.after:g} seconds")
            for name in sorted(self._silent - silent):
                self._print(f"{name} is no longer silent")
            self._silent = silent

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def consoles() -> tuple[Console, Console]:
    """Where results go (stdout) and where progress goes (stderr); files get wide lines."""
    out, err = Console(file=sys.stdout), Console(file=sys.stderr)
    for console in (out, err):
        if not console.is_terminal:
            console.width = FILE_WIDTH
    return out, err
