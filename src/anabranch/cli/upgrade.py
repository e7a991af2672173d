"""`anabranch upgrade`: other lanes or columns for a merge that has been stopped."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anabranch.spark.run.upgrade import Upgraded


@click.command("upgrade")
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
@click.option("--lanes", type=int, help="New number of parallel partitions of the state.")
@click.option(
    "--add-column",
    "add",
    multiple=True,
    metavar="NAME:TYPE",
    help="A payload column, such as price:double; null in existing events. May be repeated.",
)
@click.option(
    "--drop-column",
    "drop",
    multiple=True,
    metavar="NAME",
    help="A payload column to leave out; files may still have it. May be repeated.",
)
@click.option("--master", help="Spark master, such as local[2] or spark://host:7077.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(
    *,
    checkpoint: Path,
    lanes: int | None,
    add: tuple[str, ...],
    drop: tuple[str, ...],
    master: str | None,
    as_json: bool,
) -> None:
    """Change the number of lanes or the payload columns of the run in CHECKPOINT.

    Stop the merge first, and start it as before afterwards.  The state is redistributed; seq,
    totals and output continue.  The upgrade is atomic: if it is killed, the run is unchanged or
    fully upgraded; call it again, or start the merge.  Readers of Kafka continue at
    ab.starting_offsets(CHECKPOINT, TOPIC).

    \b
    anabranch upgrade ck --lanes 4
    anabranch upgrade ck --add-column price:double --drop-column note
    anabranch merge inbox --once --output out --checkpoint ck
    """  # noqa: D301
    from anabranch.cli.settings import load
    from anabranch.spark.run.upgrade import Asked, upgrade_in

    settings = load(flags={"master": master})
    asked = Asked(lanes, dict(map(_column, add)), drop)
    done = upgrade_in(settings.start_session, checkpoint, asked)
    click.echo(json.dumps(asdict(done)) if as_json else _text(done))


def _column(text: str) -> tuple[str, str]:
    """A column by its name and type."""
    name, separator, kind = text.rpartition(":") if "<" not in text else text.partition(":")
    if not separator or not name or not kind:
        message = f"--add-column {text!r}: expected NAME:TYPE, such as price:double"
        raise click.UsageError(message)
    return name, kind


def _text(done: "Upgraded") -> str:
    changes = [] if done.was == done.lanes else [f"{done.was} lanes became {done.lanes}"]
    changes += [f"column '{name}' is added" for name in done.added]
    changes += [f"column '{name}' is dropped" for name in done.dropped]
    if not changes:
        return f"{done.checkpoint}: the run is like that already; nothing to do"
    return (
        f"{done.checkpoint}: {', '.join(changes)}; triggers so far: {done.triggers:,}, events "
        f"that may still change: {done.events:,}; start the merge as before"
    )
