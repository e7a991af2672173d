"""`anabranch demo`: the whole product in a minute, from nothing, checked against the truth.

Three replicas of one random stream appear file by file in an inbox.  They differ in order, in
provisional ends and in stables; one falls silent half way and returns.  A merge on local Spark
reads along.  At the end the merged stream is compared with the true history; the exit code is 0
only if they are equal, no promise was broken and every row is accounted for.
"""

import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from anabranch.checker.verdict import Verdict
    from anabranch.generator.workload import Workload
    from anabranch.spark.progress import Totals
    from anabranch.spark.run.running import RunningQuery

NAMES = ("east", "west", "north")
SILENT = "north"


@dataclass
class Publisher:
    """Writes the replicas' files over time, in a thread of its own."""

    workload: "Workload"
    inbox: Path
    reference: Path
    seconds: float
    rows: int = 0
    failed: BaseException | None = None
    paused: float = 0.0
    stopping: threading.Event = field(default_factory=threading.Event)
    first: threading.Event = field(default_factory=threading.Event)
    proceed: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Begin; `first` is set when each replica has a file, `done` when all is written.

        In between it waits for `proceed`: Spark's first trigger loads and compiles, and the
        replicas would be complete before the merge has started.
        """
        threading.Thread(target=self._run, name="publisher", daemon=True).start()

    def _run(self) -> None:
        try:
            self._publish()
        except BaseException as error:
            self.failed = error
        finally:
            self.first.set()
            self.done.set()

    def _publish(self) -> None:
        from anabranch.generator.publish import Inbox, publish
        from anabranch.generator.schedule import Schedule

        longest = max(len(self.workload.present(number)) for number in range(len(NAMES)))
        rate = longest / self.seconds
        inbox = Inbox(
            path=self.inbox,
            names=NAMES,
            reference=self.reference,
            file_rows=max(1, int(rate / 2)),
        )
        schedules = {
            "west": Schedule(lag=0.7, burst=0.1, hold=1.0),
            SILENT: Schedule(silence=(0.3, 0.75)),
        }
        seen = set()
        for file in publish(
            self.workload,
            inbox,
            rate=rate,
            sleep=self._sleep,
            clock=self._clock,
            schedules=schedules,
        ):
            self.rows += file.elements
            seen.add(file.replica)
            if len(seen) == len(NAMES) and not self.first.is_set():
                self._pause()

    def _pause(self) -> None:
        begin = time.monotonic()
        self.first.set()
        self.proceed.wait()
        self.paused = time.monotonic() - begin

    def _clock(self) -> float:
        return time.monotonic() - self.paused

    def _sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            message = "stopped"
            raise InterruptedError(message)


@click.command("demo")
@click.option(
    "--events",
    type=click.IntRange(min=100),
    default=30_000,
    show_default=True,
    help="Number of events in the stream.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=1),
    default=20.0,
    show_default=True,
    help="Time in which the replicas write their files.",
)
@click.option(
    "--seed", type=int, default=7, show_default=True, help="Seed of the random stream."
)
@click.option("--quick", is_flag=True, help="Use 2,000 events in 3 seconds.")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="Keep all files in this new folder."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    events: int,
    seconds: float,
    seed: int,
    quick: bool,
    keep: Path | None,
    as_json: bool,
) -> None:
    """Generate three replicas of a stream and merge them live on local Spark.

    One replica becomes silent and returns.  The result is compared with the true history: exit
    code 0 if it is equal, 1 if not.
    """
    from anabranch.cli.account import consoles
    from anabranch.generator.workload import Workload

    if quick:
        events, seconds = 2_000, 3.0
    out, err = consoles()
    with _folder(keep) as folder:
        workload = Workload(events=events, replicas=3, revisions=0.2, seed=seed)
        totals = _merge(workload, folder, seconds, err)
        err.print(
            "checking the merged stream against the true history ...",
            highlight=False,
            soft_wrap=True,
        )
        from anabranch.checker.compare import check

        verdict = check(folder / "out", folder / "truth")
        good = verdict.ok and totals.adds_up and not totals.bucket("violation")
        if as_json:
            report = {"ok": good, **totals.to_dict(), "check": verdict.to_dict()}
            click.echo(json.dumps(report, default=str))
        else:
            _print(out, totals, verdict, good=good, kept=keep)
    ctx.exit(0 if good else 1)


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder of the demo: a new one that stays, or one that goes."""
    from anabranch.errors import UsageError

    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            message = (
                f"--keep {keep} is there already and is not an empty folder; name a new one"
            )
            raise UsageError(message)
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix=f"anabranch-demo-{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _merge(workload: "Workload", folder: Path, seconds: float, err: "Console") -> "Totals":
    import anabranch as ab
    from anabranch.cli.account import Watch
    from anabranch.cli.interrupt import interrupts_noted
    from anabranch.cli.settings import load

    publisher = Publisher(workload, folder / "inbox", folder / "truth", seconds)
    err.print("starting Spark on this machine ...", highlight=False, soft_wrap=True)
    load().start_session()
    err.print(
        f"{workload.events:,} events from {', '.join(NAMES)} within about {seconds:g} seconds; "
        f"{SILENT} will fall silent for a while and return",
        highlight=False,
        soft_wrap=True,
    )
    publisher.start()
    publisher.first.wait()
    _require(publisher)
    merged = ab.merge(ab.inbox(folder / "inbox"), lanes=2)
    watch = Watch(err, workload.time)
    with watch.shown() as show, interrupts_noted() as interrupted:

        def listen(totals: "Totals") -> None:
            publisher.proceed.set()
            show(totals)

        query = merged.start(
            folder / "checkpoint",
            output=folder / "out",
            interval="500 milliseconds",
            on_trigger=listen,
        )
        try:
            _wait(query, publisher, interrupted)
        finally:
            publisher.stopping.set()
            publisher.proceed.set()
            query.stop()
    return query.totals


def _wait(query: "RunningQuery", publisher: Publisher, interrupted: threading.Event) -> None:
    """Wait until all that was published is merged."""
    while not (publisher.done.is_set() and query.totals.rows >= publisher.rows):
        if interrupted.is_set():
            raise KeyboardInterrupt
        if query.wait(1):
            break
        _require(publisher)


def _require(publisher: Publisher) -> None:
    if publisher.failed is not None:
        raise publisher.failed


def _print(
    out: "Console", totals: "Totals", verdict: "Verdict", *, good: bool, kept: Path | None
) -> None:
    from anabranch.batch.schema import TimeType
    from anabranch.cli.account import sum_line, table
    from anabranch.cli.check import verdict_line

    out.print(table(totals, TimeType.BIGINT, title="what became of every row"))
    out.print(sum_line(totals))
    made, added = totals.output["elements"], totals.output["added_adjusts"]
    out.print(
        f"{totals.rows:,} rows in, {made:,} elements out ({added:,} of them corrections before "
        f"a stable), {totals.triggers} triggers",
        highlight=False,
        soft_wrap=True,
    )
    if totals.bucket("late"):
        out.print(
            f"{totals.bucket('late'):,} late rows: provisional events that one replica emitted"
            " and took back after the others had moved on; kept apart, never dropped silently",
            highlight=False,
            soft_wrap=True,
        )
    out.print(
        f"check: {verdict_line(verdict)}",
        highlight=False,
        soft_wrap=True,
        style="green" if good else "bold red",
    )
    if kept is not None:
        out.print(
            f"kept: {kept}/inbox, {kept}/out, {kept}/truth", highlight=False, soft_wrap=True
        )
