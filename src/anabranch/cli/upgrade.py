"""`anabranch upgrade`: another number of lanes for a merge that has been stopped."""

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command("upgrade")
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--lanes", type=int, required=True, help="New number of parallel partitions of the state."
)
@click.option("--master", help="Spark master, such as local[2] or spark://host:7077.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(*, checkpoint: Path, lanes: int, master: str | None, as_json: bool) -> None:
    """Change the number of lanes of the run in CHECKPOINT.

    Stop the merge first, and start it as before afterwards.  The state is redistributed; seq,
    totals and output continue.  The upgrade is atomic: if it is killed, the run is unchanged or
    fully upgraded; call it again, or start the merge.  Readers of Kafka continue at
    ab.starting_offsets(CHECKPOINT, TOPIC).

    \b
    anabranch upgrade ck --lanes 4
    anabranch merge inbox --once --output out --checkpoint ck
    """  # noqa: D301
    from anabranch.cli.settings import load
    from anabranch.spark.query.upgrade import upgrade_in

    settings = load(flags={"master": master})
    done = upgrade_in(settings.start_session, checkpoint, lanes)
    if as_json:
        click.echo(json.dumps(asdict(done)))
    elif done.was == done.lanes:
        click.echo(f"{done.checkpoint}: has {lanes} lanes; nothing to do")
    else:
        click.echo(
            f"{done.checkpoint}: {done.was} lanes became {done.lanes}; triggers so far: "
            f"{done.triggers:,}, events that may still change: {done.events:,}; start the "
            "merge as before"
        )
