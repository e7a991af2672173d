"""`anabranch generate`: replicas of one random stream as an inbox, and its true history.

Deterministic by `--seed`.  A table (or `--json`) lists the files; the progress of the live mode
goes to stderr, and an interrupt leaves only complete files.
"""

import json
import time as clocks
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from anabranch.generator.publish import Appeared, Inbox
    from anabranch.generator.schedule import Schedule
    from anabranch.generator.workload import Workload

LIVE_FILE_SECONDS: Final = 0.5
"""Live mode: seconds of elements in one file, without --file-rows."""

TIMESTAMP_FIRST: Final = 1_767_225_600_000_000
"""2026-01-01T00:00:00Z: where generated timestamps begin."""

DEFAULT_GAP: Final = {"bigint": "20", "timestamp": "20 seconds"}

_FOLDER = click.Path(path_type=Path)


@click.command("generate")
@click.argument("out", type=_FOLDER)
@click.option(
    "--case",
    type=click.Choice(["r0", "r1", "r2", "r3", "r4"]),
    default="r3",
    show_default=True,
    help="The cheapest merge case that the replicas permit.",
)
@click.option("--replicas", default=3, show_default=True, help="Number of replicas.")
@click.option("--names", help="Names of the replicas, separated by commas. [r0,r1,...]")
@click.option("--events", default=10_000, show_default=True, help="Events in the true history.")
@click.option("--disorder", type=float, help="Share of events out of order [r3, r4: 0.2].")
@click.option(
    "--revisions", type=float, help="Share of events with revised ends [r3, r4: 0.1]."
)
@click.option("--duplicates", type=float, help="Share of repeated identities [r4: 0.1].")
@click.option(
    "--gap-rate", default=0.0, help="Share of events that a replica (not the first) lacks."
)
@click.option("--stable-freq", default=0.01, show_default=True, help="Stables per element.")
@click.option("--duration", help="Lifetime of an event [so that about 10,000 are alive].")
@click.option("--max-gap", help="Greatest time between two starts [20, or '20 seconds'].")
@click.option("--bound", help="How late an element may come [25 times the max gap].")
@click.option(
    "--payload-bytes",
    default=100,
    show_default=True,
    help="Bytes of the payload column 'data'.",
)
@click.option("--seed", default=0, show_default=True, help="Same seed, same files.")
@click.option("--open", "is_open", is_flag=True, help="Do not end with stable(FOREVER).")
@click.option(
    "--time", type=click.Choice(["bigint", "timestamp"]), default="bigint", show_default=True
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "jsonl"]),
    default="parquet",
    show_default=True,
)
@click.option("--file-rows", type=int, help="Elements per file [50,000; live: half a second].")
@click.option("--reference", type=_FOLDER, help="Write the true history to this folder.")
@click.option(
    "--rate",
    type=float,
    help="Live mode: elements per second and replica; files appear over time.",
)
@click.option(
    "--lag", type=float, help="Live mode: delay in seconds between one replica and the next."
)
@click.option(
    "--burst",
    type=float,
    help="Live mode: probability that a file is delayed, with those after it.",
)
@click.option(
    "--silence",
    multiple=True,
    metavar="NAME:FROM:TO",
    help="Live mode: the replica sends nothing between these fractions of its run.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(ctx: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Write divergent replicas of one random stream to the folder OUT, and its true history.

    Every replica is a valid stream with the same history, in another order, with other
    provisional ends and other stables.  OUT must be new or empty.

    \b
    anabranch generate inbox --reference truth --seed 7
    anabranch generate inbox --case r0 --events 1000000
    anabranch generate inbox --rate 2000 --lag 0.5 --silence r1:0.3:0.6
    """  # noqa: D301
    from anabranch.generator.publish import replica_names, summarise

    workload = _workload(options)
    inbox = _inbox(options)
    files: list[Appeared] = []
    interrupted = False
    try:
        for file in _files(workload, inbox, options):
            files.append(file)
            if options["rate"] is not None:
                click.echo(f"{file.path}: {file.elements:,} elements", err=True)
    except KeyboardInterrupt:
        interrupted = True
    report = {
        "out": str(options["out"]),
        "reference": None if options["reference"] is None else str(options["reference"]),
        "case": workload.case.value,
        "events": workload.events,
        "seed": workload.seed,
        "interrupted": interrupted,
        "replicas": summarise(replica_names(workload, inbox), files),
    }
    click.echo(json.dumps(report)) if as_json else _print(report)
    if interrupted:
        ctx.exit(130)


def _workload(options: dict[str, Any]) -> "Workload":
    from anabranch.batch.schema import TimeType
    from anabranch.batch.times import to_units
    from anabranch.generator.workload import Workload
    from anabranch.model.properties import MergeCase

    time = TimeType(options["time"])

    def units(name: str) -> int | None:
        text = options[name.replace("-", "_")]
        return None if text is None else to_units(text, time, option=f"--{name}")

    max_gap = units("max-gap")
    if max_gap is None:
        max_gap = to_units(DEFAULT_GAP[time.value], time)
    same = ("replicas", "events", "disorder", "revisions", "duplicates", "gap_rate")
    return Workload(
        case=MergeCase(options["case"]),
        **{name: options[name] for name in (*same, "stable_freq", "payload_bytes", "seed")},
        duration=units("duration"),
        max_gap=max_gap,
        bound=units("bound"),
        open=options["is_open"],
        time=time,
        first=TIMESTAMP_FIRST if time is TimeType.TIMESTAMP else 0,
    )


def _inbox(options: dict[str, Any]) -> "Inbox":
    from anabranch.generator.publish import FILE_ROWS, FileFormat, Inbox, check_rate

    rows, rate = options["file_rows"], options["rate"]
    if rate is not None:
        check_rate(rate)
    if rows is None:
        rows = FILE_ROWS if rate is None else max(1, round(rate * LIVE_FILE_SECONDS))
    return Inbox(
        path=options["out"],
        names=() if options["names"] is None else tuple(options["names"].split(",")),
        reference=options["reference"],
        file_format=FileFormat(options["file_format"]),
        file_rows=rows,
    )


def _files(
    workload: "Workload", inbox: "Inbox", options: dict[str, Any]
) -> "Iterator[Appeared]":
    from anabranch.errors import UsageError
    from anabranch.generator.publish import publish, replica_names, write_inbox

    rate = options["rate"]
    if rate is not None:
        schedules = _schedules(replica_names(workload, inbox), options)
        return publish(
            workload,
            inbox,
            rate=rate,
            sleep=clocks.sleep,
            clock=clocks.monotonic,
            schedules=schedules,
        )
    for name in ("lag", "burst", "silence"):
        if options[name]:
            message = f"--{name} is for the live mode; give --rate too, or drop --{name}"
            raise UsageError(message)
    return write_inbox(workload, inbox)


def _schedules(names: tuple[str, ...], options: dict[str, Any]) -> "dict[str, Schedule]":
    from anabranch.errors import UsageError
    from anabranch.generator.schedule import Schedule

    silences: dict[str, tuple[float, float]] = {}
    for text in options["silence"]:
        try:
            name, begin, until = text.rsplit(":", 2)
            silences[name] = (float(begin), float(until))
        except ValueError as error:
            message = f"--silence {text}: expected NAME:FROM:TO, such as r1:0.3:0.6"
            raise UsageError(message) from error
        if name not in names:
            message = f"--silence {text}: no replica {name!r}; there are {', '.join(names)}"
            raise UsageError(message)
    return {
        name: Schedule(
            lag=number * (options["lag"] or 0.0),
            silence=silences.get(name),
            burst=options["burst"] or 0.0,
        )
        for number, name in enumerate(names)
    }


def _print(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    columns = ("elements", "inserts", "adjusts", "stables", "files", "bytes")
    table = Table()
    table.add_column("replica")
    for column in columns:
        table.add_column(column, justify="right")
    for replica in report["replicas"]:
        table.add_row(replica["name"], *(f"{replica[column]:,}" for column in columns))
    console = Console()
    console.print(f"{report['events']:,} events in {report['out']}", soft_wrap=True)
    console.print(table)
    console.print(f"cheapest merge case: {report['case']}")
    if report["reference"] is not None:
        console.print(f"true history: {report['reference']}", soft_wrap=True)
    if report["interrupted"]:
        console.print("interrupted: the replicas are not complete")
