"""`anabranch merge`: the replicas of an inbox into one stream, on Spark."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from anabranch.cli.settings import Settings
    from anabranch.spark.progress import Totals
    from anabranch.spark.run.prepare import Prepared
    from anabranch.spark.run.running import RunningQuery

_ASKED = ("lanes", "gaps", "wait", "remember", "strict", "assume_complete")
_BEATS = ("disorder", "delay", "idle_after", "source", "group", "arrival", "guard")
_ENDLESS = (
    "plain rows have no stables: the output becomes final by --disorder or --delay, or when "
    "--once --complete ends the replicas"
)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("merge")
@click.argument("inbox", type=click.Path(path_type=Path))
@click.option("--output", type=_FOLDER, required=True, help="Folder of the merged stream.")
@click.option(
    "--checkpoint",
    type=_FOLDER,
    required=True,
    help="Folder of the state; a restart continues from it.",
)
@click.option(
    "--once", "mode", flag_value="once", help="Read all files that are there, then stop."
)
@click.option(
    "--watch", "mode", flag_value="watch", help="Poll for new files until interrupted (Ctrl-C)."
)
@click.option(
    "--time",
    "start",
    metavar="COLUMN",
    help="The files hold plain rows, not elements: the column in which an event starts, bigint "
    "or timestamp. All other columns are payload.",
)
@click.option(
    "--lifetime",
    metavar="DURATION",
    help="With --time: how long every event lasts, such as '10 minutes' (bigint times: a "
    "number). Without it and --end one unit of time.",
)
@click.option(
    "--end",
    metavar="COLUMN",
    help="With --time: the column in which an event ends; null: the event has no end.",
)
@click.option(
    "--disorder",
    metavar="DURATION",
    help="With --time: a row is at most this far behind the greatest time of its source; "
    "stables follow from it.",
)
@click.option(
    "--delay",
    metavar="DURATION",
    help="With --time, for timestamps: a row's file arrives at most this long after its time.",
)
@click.option(
    "--idle-after",
    metavar="DURATION",
    help="With --disorder or --delay: do not wait for a source without rows for this long.",
)
@click.option(
    "--source",
    metavar="COLUMN",
    help="With --disorder or --delay: the column that names the source of a row; each source "
    "has bounds of its own. Default: each replica is one source.",
)
@click.option(
    "--group",
    metavar="COLUMN",
    help="With --disorder or --delay: the column that names a group of sources; each group is "
    "one source.",
)
@click.option(
    "--arrival",
    metavar="COLUMN",
    help="With --disorder or --delay: the column with the time at which a row arrived; it is "
    "no payload. Without it a row arrives when its file is found.",
)
@click.option(
    "--guard",
    metavar="DURATION",
    help="With --disorder or --delay: a time more than this ahead of its arrival moves no "
    "clock; 'none': all times do. For bigint times: more than this above all before. Default: "
    "'1 hour' for timestamps, else none.",
)
@click.option(
    "--complete",
    is_flag=True,
    help="With --once: the replicas have no more rows, so that everything becomes final.",
)
@click.option(
    "--case",
    type=click.Choice(["auto", "r0", "r1", "r2", "r3", "r4"]),
    default="auto",
    show_default=True,
    help="Merge algorithm; auto: the cheapest that the declared properties permit.",
)
@click.option(
    "--policy",
    help="Merge policy, such as 'inserts=quorum(0.5),violations=detach'. A restart with "
    "another one changes it, and reports from which trigger on.",
)
@click.option(
    "--gaps/--no-gaps",
    default=None,
    help="Replicas may lack rows: the output has the rows of all of them, and waits for the "
    "slowest one. Without it the replica with the greatest frontier decides.",
)
@click.option(
    "--wait",
    metavar="DURATION",
    help="With --gaps: do not wait for a replica that is further than this behind the fastest, "
    "in application time; its later rows are late.",
)
@click.option(
    "--wait-wall",
    default="5 minutes",
    show_default=True,
    metavar="DURATION",
    help="With --gaps and --watch: stop waiting for a replica without progress after this.",
)
@click.option(
    "--remember",
    metavar="DURATION",
    help="How far behind the output's frontier, in application time, copies of a silent or "
    "slow replica are recognised; its older rows are late. 'forever': no limit. Default: "
    "'1 day' for timestamps with --gaps, else forever.",
)
@click.option(
    "--align",
    is_flag=True,
    help="Write events in the order of their starts: each is held back until a stable has "
    "passed it.",
)
@click.option(
    "--lanes",
    type=int,
    help="Parallel partitions of the state; `anabranch upgrade` changes them later.",
)
@click.option(
    "--interval", default="1 second", show_default=True, help="Polling interval of --watch."
)
@click.option(
    "--roll",
    default="1 minute",
    show_default=True,
    help="With --watch: how often a new output file is published; 0: after every trigger.",
)
@click.option(
    "--max-bytes-per-trigger",
    help="Upper bound for the rows of one trigger, such as 128m (the default); --once runs as "
    "many triggers as needed.",
)
@click.option(
    "--silent-after",
    default="1 minute",
    show_default=True,
    help="With --watch: report a replica as silent after this long without rows.",
)
@click.option("--master", help="Spark master, such as local[2] or spark://host:7077.")
@click.option(
    "--conf",
    multiple=True,
    metavar="KEY=VALUE",
    help="A Spark setting, such as spark.ui.enabled=true; may be repeated.",
)
@click.option(
    "--schema",
    type=click.Path(path_type=Path),
    help="JSON file with the column types of JSON lines.",
)
@click.option("--strict", is_flag=True, help="Stop at the first row that would be quarantined.")
@click.option(
    "--assume-complete",
    is_flag=True,
    help="Treat replicas that appear later without a guarantee as complete.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print a JSON line per trigger, and the report last.",
)
@click.pass_context
def command(ctx: click.Context, /, *, as_json: bool, **options: Any) -> None:
    """Merge the replicas of INBOX (a folder with one sub-folder of files each).

    The files hold elements, or plain rows with --time.

    OUTPUT/elements gets the merged stream, OUTPUT/late the rows that came too late,
    OUTPUT/violations invalid rows and rows that contradict a stable or a declared property,
    OUTPUT/progress the counts.  Start the command again with the same folders, also after a
    crash, and it continues without losing or duplicating a row.  Exit code 1: there are rows in
    OUTPUT/violations (late rows alone give 0); 130: interrupted by Ctrl-C.

    \b
    anabranch generate inbox --reference truth
    anabranch merge inbox --once --output out --checkpoint ck
    anabranch check out truth

    \b
    anabranch merge orders --time ts --lifetime '1 hour' --once --complete \\
        --output out --checkpoint ck
    """  # noqa: D301
    if options["mode"] is None:
        message = "give --once (read all files, then stop) or --watch (run until Ctrl-C)"
        raise click.UsageError(message, ctx)
    from anabranch.cli.settings import load

    settings = load(flags={"master": options["master"]})
    options["conf"] = _conf(options["conf"])
    prepared = _prepared(options, settings)
    query, interrupted = _run(prepared, options, settings, as_json=as_json)
    report = _report(prepared, options["output"], query.totals)
    click.echo(json.dumps(report)) if as_json else _print(
        prepared, options["output"], query.totals
    )
    if interrupted:
        ctx.exit(130)
    if report["quarantined"]:
        ctx.exit(1)


def _conf(given: Sequence[str]) -> dict[str, str]:
    """Spark settings by name; the last of two with one name counts."""
    from anabranch.errors import UsageError

    found: dict[str, str] = {}
    for one in given:
        name, is_set, value = one.partition("=")
        if not is_set or not name.startswith("spark."):
            message = (
                f"--conf {one!r}: expected KEY=VALUE, where KEY is a setting of Spark's and "
                "begins with spark., such as spark.ui.enabled=true"
            )
            raise UsageError(message)
        if name in ("spark.master", "spark.remote"):
            message = f"--conf {one!r}: name the place where Spark runs with --master {value}"
            raise UsageError(message)
        found[name] = value
    return found


def _prepared(options: dict[str, Any], settings: "Settings") -> "Prepared":
    """The validated merge; Spark is not started, and nothing is written."""
    from anabranch.batch.times import to_seconds
    from anabranch.model.properties import MergeCase
    from anabranch.operators.merge.policy import Policy
    from anabranch.sources.inbox import inbox
    from anabranch.spark.query.asked import Asked
    from anabranch.spark.query.merge import build
    from anabranch.spark.run.prepare import prepare
    from anabranch.spark.session.host import to_bytes

    asked = Asked(
        case=None if options["case"] == "auto" else MergeCase(options["case"]),
        policy=Policy.parse(options["policy"]) if options["policy"] else None,
        usual_lanes=settings.lanes,
        wait_wall=to_seconds(options["wait_wall"], option="--wait-wall"),
        **{name: options[name] for name in _ASKED},
    )
    columns = {name: options[name] for name in ("schema", "start", "end", "lifetime")}
    source = inbox(options["inbox"], **columns)
    beats = {name: options[name] for name in _BEATS if options[name] is not None}
    if beats:
        if beats.get("guard") == "none":
            beats["guard"] = None
        source = source.heartbeats(**beats)
    merged = build([source], asked)
    merged = merged.align() if options["align"] else merged
    roll = to_seconds(options["roll"], option="--roll")
    place = str(options["checkpoint"])
    asked_limit = options["max_bytes_per_trigger"] or settings.max_bytes_per_trigger
    limit = to_bytes(asked_limit, option="--max-bytes-per-trigger")
    made = prepare(merged, place, {}, output=options["output"], roll=roll, limit=limit)
    if options["complete"]:
        made.require_completable(once=options["mode"] == "once")
    return made


def _run(
    prepared: "Prepared", options: dict[str, Any], settings: "Settings", *, as_json: bool
) -> "tuple[RunningQuery, bool]":
    """Run the merge to its end, or to Ctrl-C; and whether it was the latter."""
    from anabranch.batch.times import to_seconds
    from anabranch.cli.account import Quiet, Watch, consoles
    from anabranch.cli.interrupt import interrupts_noted
    from anabranch.cli.trigger_lines import TriggerLines
    from anabranch.spark.session.about import about

    silence = to_seconds(options["silent_after"], option="--silent-after")
    spark = settings.start_session(config=options["conf"])
    click.echo(about(spark), err=True)
    watch = Watch(consoles()[1], prepared.merged.schema.time, Quiet(silence))
    once, lines = options["mode"] == "once", TriggerLines()
    with watch.shown() as show, interrupts_noted() as interrupted:

        def listen(totals: "Totals") -> None:
            show(totals)
            if as_json:
                lines.take(totals)

        query = prepared.start(
            spark,
            once=once,
            interval=options["interval"],
            on_trigger=listen,
            warn_share=settings.warn_share,
            keep_progress=settings.keep_progress,
            complete=options["complete"],
        )
        if query.changed is not None:
            click.echo(str(query.changed), err=True)
        try:
            while not interrupted.is_set() and not query.wait(1):
                lines.show(query.query)
                if not once:
                    watch.tick()
        except KeyboardInterrupt:
            interrupted.set()
        finally:
            query.stop()
            lines.show(query.query, at_end=True)
    return query, interrupted.is_set()


def _report(prepared: "Prepared", output: Path, totals: "Totals") -> dict[str, Any]:
    quarantined = totals.bucket("violation")
    return {
        "inbox": prepared.run.inboxes[0],
        "output": str(output),
        "run": prepared.run.run,
        "lanes": prepared.run.lanes,
        "case": prepared.run.case,
        "policy": prepared.run.policy,
        "quarantined": quarantined,
        **totals.to_dict(),
    }


def _print(prepared: "Prepared", output: Path, totals: "Totals") -> None:
    from anabranch.cli.account import (
        consoles,
        duplicate_line,
        gap_lines,
        sum_line,
        table,
        trouble_lines,
    )
    from anabranch.spark.progress import show

    console = consoles()[0]
    time = prepared.merged.schema.time
    console.print(table(totals, time, title=f"{prepared.run.inboxes[0]} → {output}"))
    console.print(sum_line(totals))
    for line in gap_lines(totals):
        console.print(line, soft_wrap=True)
    for line in trouble_lines(totals, time):
        console.print(line, soft_wrap=True)
    at = show(totals.frontier, time)
    made = totals.output.get("elements", 0)
    console.print(
        f"{made:,} elements in {output}/elements; final below {at}; "
        f"{totals.live:,} events open",
        highlight=False,
        soft_wrap=True,
    )
    if prepared.run.starts[0] and not prepared.run.clocks and totals.frontier != "forever":
        console.print(_ENDLESS, soft_wrap=True)
    if totals.duplicates:
        console.print(duplicate_line(totals, prepared.run.case), soft_wrap=True)
    for bucket, folder in (("late", "late"), ("violation", "violations")):
        if totals.bucket(bucket):
            console.print(
                f"{totals.bucket(bucket):,} rows kept in {output}/{folder}, each with file, "
                "row and reason",
                style="yellow",
                highlight=False,
                soft_wrap=True,
            )
