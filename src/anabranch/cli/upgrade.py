"""`anabranch upgrade`: another number of lanes for a merge that has been stopped."""

import json
from dataclasses import asdict
from pathlib import Path

import click


@click.command("upgrade")
@click.argument("checkpoint", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--lanes", type=int, required=True, help="Parallel parts of the state from now on."
)
@click.option("--master", help="Where Spark runs, such as local[2] or spark://host:7077.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(*, checkpoint: Path, lanes: int, master: str | None, as_json: bool) -> None:
    """Give the run of CHECKPOINT another number of lanes; then start its merge as before.

    Stop the merge first.  What the lanes remember is laid out anew; seq, totals and output go
    on where they are.  Killed at any moment, the run is as it was or upgraded as a whole: call
    it again, or start the merge.

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
