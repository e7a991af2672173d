"""The account of a merge for people: a line per replica, a column per bucket, sums that add up.

`table` is shown while a merge works and when it ends; `Watch` redraws it in place on a
terminal, and prints one line per trigger elsewhere, so that a log file stays readable.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from anabranch.batch.schema import TimeType
from anabranch.sources.verdict import show_time as show_units
from anabranch.spark.progress import BUCKETS, Totals

FILE_WIDTH = 120
"""Characters in a line where there is no terminal to ask."""


def show_time(value: str | int | None, time: TimeType) -> str:
    """A frontier as people read it."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if time is TimeType.BIGINT else str(show_units(value, time))


def table(totals: Totals, time: TimeType, *, title: str) -> Table:
    """One line per replica, then the sum and the output."""
    drawn = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    drawn.add_column("replica", no_wrap=True)
    for name in ("rows", *BUCKETS, "frontier"):
        drawn.add_column(name, justify="right", no_wrap=True)
    drawn.add_column("", no_wrap=True)
    for name, replica in sorted(totals.replicas.items()):
        counts = [f"{replica.buckets[bucket]:,}" for bucket in BUCKETS]
        at = show_time(replica.frontier, time)
        drawn.add_row(name, f"{replica.rows:,}", *counts, at, _standing(name, totals))
    drawn.add_section()
    sums = [f"{totals.bucket(bucket):,}" for bucket in BUCKETS]
    drawn.add_row("all", f"{totals.rows:,}", *sums, show_time(totals.frontier, time), "output")
    return drawn


def _standing(name: str, totals: Totals) -> str:
    replica = totals.replicas[name]
    if not replica.joined:
        return "joining"
    quiet = totals.triggers - 1 - replica.heard
    if replica.frontier == "forever":
        return "ended"
    if quiet >= 3:
        return "silent"
    return "leader" if name == totals.leader else ""


def sum_line(totals: Totals) -> Text:
    """Whether every row is in exactly one bucket, in words."""
    counted = sum(totals.bucket(bucket) for bucket in BUCKETS)
    if totals.adds_up:
        return Text(f"buckets add up: {counted:,} counted = {totals.rows:,} rows read", "green")
    return Text(
        f"buckets DO NOT add up: {counted:,} counted, {totals.rows:,} rows read", "bold red"
    )


class Watch:
    """The account of a merge that runs, on stderr."""

    def __init__(self, console: Console, time: TimeType) -> None:
        self._console = console
        self._time = time
        self._live: Live | None = None
        self._lock = threading.Lock()
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

    def _draw(self, totals: Totals) -> None:
        with self._lock:
            if self._live is not None:
                title = f"trigger {totals.triggers}  {self.note}"
                self._live.update(table(totals, self._time, title=title))

    def _line(self, totals: Totals) -> None:
        made = totals.output.get("elements", 0)
        at = show_time(totals.frontier, self._time)
        self._console.print(
            f"trigger {totals.triggers}: {totals.rows:,} rows in, {made:,} elements out, "
            f"frontier {at}, {totals.live:,} live {self.note}".rstrip(),
            highlight=False,
            soft_wrap=True,
        )


def consoles() -> tuple[Console, Console]:
    """Where results go (stdout) and where progress goes (stderr); files get wide lines."""
    out, err = Console(file=sys.stdout), Console(file=sys.stderr)
    for console in (out, err):
        if not console.is_terminal:
            console.width = FILE_WIDTH
    return out, err
