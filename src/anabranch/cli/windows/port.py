"""`anabranch windows translate` and `choose`: a query on another engine, an engine for needs.

Neither reads a file: all small streams with the given properties are tried, and each "no" comes
with the smallest counter-example.  Exit code 0: there is one.  1: none.  2: wrong usage.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from anabranch.cli.windows.query import json_option, read_engine

if TYPE_CHECKING:
    from anabranch.windows import Engine

_F = TypeVar("_F", bound=Callable[..., Any])
_LENGTH = click.IntRange(min=1)


def _lengths(size: int | None, slide: int | None) -> Callable[[_F], _F]:
    """`--size` and `--slide`, in units; required without a default."""

    def add(function: _F) -> _F:
        kept: dict[str, Any] = {"default": slide, "show_default": slide is not None}
        slided = click.option("--slide", type=_LENGTH, help="Distance of windows.", **kept)
        kept = {"default": size, "show_default": True} if size else {"required": True}
        sized = click.option("--size", type=_LENGTH, help="Length of a window.", **kept)
        return sized(slided(function))

    return add


@click.command("translate")
@click.option("--from", "source", required=True, help="The engine it runs on now.")
@click.option(
    "--to", "targets", multiple=True, required=True, help="Target engine; may be repeated."
)
@_lengths(None, None)
@click.option("--agg", default="sum", show_default=True, help="The aggregate.")
@click.option("--gaps/--no-gaps", default=True, help="Whether instants may be empty.")
@click.option(
    "--simultaneous/--no-simultaneous", default=True, help="Whether tuples may share a time."
)
@click.option(
    "--late",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How far behind a tuple may come.",
)
@click.option(
    "--batches",
    type=click.Choice(["tuple", "time", "any"]),
    default="tuple",
    show_default=True,
    help="A batch is one tuple, all of one time, or any run.",
)
@click.option(
    "--compared",
    type=click.Choice(["values", "windows"]),
    default="values",
    show_default=True,
    help="What must be the same; windows includes the values.",
)
@json_option
@click.pass_context
def translate_command(
    ctx: click.Context,
    /,
    *,
    source: str,
    targets: tuple[str, ...],
    size: int,
    slide: int | None,
    agg: str,
    gaps: bool,
    simultaneous: bool,
    late: int,
    batches: Literal["tuple", "time", "any"],
    compared: Literal["values", "windows"],
    as_json: bool,
) -> None:
    """Find settings of another engine under which a query returns the same.

    Exit code 0: there are some.  1: none of the candidates.

    \b
    anabranch windows translate --from streambase --to flink --size 3
    anabranch windows translate --from streambase --to spark-append --size 5 --slide 1 --no-gaps
    """  # noqa: D301
    from anabranch.windows import Inputs, Query, translate

    found = translate(
        Query(size, slide or size, agg),
        _engine(source),
        [_engine(name) for name in targets],
        inputs=Inputs(gaps=gaps, simultaneous=simultaneous, late=late, batches=batches),
        compared=compared,
    )
    click.echo(json.dumps(found.to_dict()) if as_json else str(found))
    ctx.exit(0 if found.same else 1)


@click.command("choose")
@click.option("--need", "needs", multiple=True, help="What is needed; may be repeated.")
@click.option(
    "--engine",
    "engines",
    multiple=True,
    help="Candidate engine; may be repeated.  [default: all]",
)
@_lengths(3, 2)
@click.option(
    "--late",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="How late tuples are, for needs about them.",
)
@json_option
@click.pass_context
def choose_command(
    ctx: click.Context,
    /,
    *,
    needs: tuple[str, ...],
    engines: tuple[str, ...],
    size: int,
    slide: int,
    late: int,
    as_json: bool,
) -> None:
    """List the engines that fit the needs of an application; without --need, the needs.

    Exit code 0: some engine fits.  1: none does.

    \b
    anabranch windows choose
    anabranch windows choose --need no-repeats --need soon
    """  # noqa: D301
    from anabranch.windows import NEEDS, choose

    if not needs:
        meanings = {need.name: need.meaning for need in NEEDS.values()}
        lines = "\n".join(f"{name}: {meaning}" for name, meaning in meanings.items())
        click.echo(json.dumps({"needs": meanings}) if as_json else lines)
        return
    found = choose(
        needs,
        engines=[_engine(name) for name in engines] or None,
        size=size,
        slide=slide,
        late=late,
    )
    click.echo(json.dumps(found.to_dict()) if as_json else str(found))
    ctx.exit(0 if found.fits else 1)


def _engine(text: str) -> "Engine":
    from anabranch.batch.schema import TimeType

    return read_engine(text, TimeType.BIGINT)
