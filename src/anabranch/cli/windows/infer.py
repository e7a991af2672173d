"""`anabranch windows infer`: the settings of an engine, from running it or from its runs.

The engine is a command, run without a shell `--repeats` times for each probe: it reads a probe
on stdin and prints its results, in the format of `anabranch.windows.inference.answers`.
Or a recorded run is given: a file of tuples and a file of results.  Exit code 0: some setting
fits all results, or most of them if the runs disagree.  1: none does.  2: wrong usage.  3: the
command failed.
"""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import click

from anabranch.cli.windows.query import json_option
from anabranch.cli.windows.recorded import read_recording, recording_options, space_options
from anabranch.errors import UsageError

if TYPE_CHECKING:
    from anabranch.windows import Arrival, Command, Stable
    from anabranch.windows.inference.answers import Run


@click.command("infer")
@click.option("--command", "line", help="The engine; quotes as in a shell.")
@recording_options
@space_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "csv"]),
    default="json",
    show_default=True,
    help="Input and output format of the command; csv needs {size} and {slide} in the command.",
)
@click.option("--agg", default="sum", show_default=True, help="The aggregate it computes.")
@click.option(
    "--by",
    type=click.Choice(["time", "rows"]),
    default="time",
    show_default=True,
    help="What its windows count.",
)
@click.option("--batches/--no-batches", default=True, help="Whether it takes batches.")
@click.option("--late/--no-late", default=True, help="Whether it takes late tuples.")
@click.option("--stables", is_flag=True, help="The engine accepts stables.")
@click.option(
    "--probes",
    type=click.IntRange(min=1),
    default=200,
    show_default=True,
    help="Approximate maximum number of probes.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="How often each probe is run; runs that differ are reported.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=60.0,
    show_default=True,
    help="Seconds for one run.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Which probes are tried.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    /,
    *,
    line: str | None,
    form: Literal["json", "csv"],
    agg: str,
    by: Literal["time", "rows"],
    batches: bool,
    late: bool,
    stables: bool,
    probes: int,
    repeats: int,
    timeout: float,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Find the settings of an engine by running it on probes, or from a recorded run.

    With --command the engine is run; the tuples of --input are then one more probe.  With
    --input and --results nothing is run: the settings are those under which these tuples
    give these results, and a run that would narrow them down is proposed.

    Exit code 0: some setting fits.  1: none does.

    \b
    anabranch windows infer --command "python examples/window_engine.py streambase"
    anabranch windows infer --format csv --command "./mine --size {size} --slide {slide}"
    anabranch windows infer --input examples/windows_example2.csv --value price --size 5 \\
        --slide 1 --agg avg --stable 37 --results examples/windows_example2_results.csv
    """  # noqa: D301
    from anabranch.windows import Command, infer

    recording = read_recording({**options, "agg": agg, "by": by}, runs=line is not None)
    settings: dict[str, Any] = {
        "agg": agg, "by": by, "batches": batches, "late": late, "stables": stables,
        "most": probes, "repeats": repeats, "seed": seed, "space": recording.space(options),
    }  # fmt: skip
    if line is None:
        found = infer(recorded=recording.recorded(None), **settings)
    else:
        engine = Command(split(line), format=form, agg=agg, timeout=timeout)
        with _counted(engine) as run:
            found = infer(run, recorded=recording.recorded(run), **settings)
    click.echo(recording.json(found) if as_json else recording.text(found))
    ctx.exit(0 if found.fits else 1)


def split(line: str) -> tuple[str, ...]:
    """The words of a command as a shell would see them.

    >>> split("python 'my engine.py' --size {size}")
    ('python', 'my engine.py', '--size', '{size}')
    """
    try:
        words = tuple(shlex.split(line))
    except ValueError as error:
        message = f"--command {line!r}: {error}; close the quotes"
        raise UsageError(message) from error
    if not words:
        message = "--command is empty; give a program and its arguments"
        raise UsageError(message)
    return words


@contextmanager
def _counted(engine: "Command") -> Iterator["Run"]:
    """The engine, with a count of its runs on stderr if that is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    runs = 0

    def run(tuples: "Sequence[Arrival | Stable]", size: int, slide: int) -> list[Any] | None:
        nonlocal runs
        runs += 1
        status.update(f"run {runs} of {engine.words[0]}")
        return engine(tuples, size, slide)

    with console.status("asking") as status:
        yield run
