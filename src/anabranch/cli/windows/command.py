"""`anabranch windows`: what a window query returns on an engine, why, and where others differ.

Exit code 0: answered; for `compare`, all engines return the same; for `infer`, `translate`
and `choose`, something fits.  1: the answer is no.  2: the file, the query or an engine cannot
be meant.
"""

import json
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.windows.infer import command as infer_command
from anabranch.cli.windows.port import choose_command, translate_command
from anabranch.cli.windows.query import ask, engine_option, json_option, query_options
from anabranch.cli.windows.show import (
    as_json,
    picture_options,
    prediction_lines,
    print_timeline,
    require_pictures,
    timeline_of,
    write_pictures,
)

if TYPE_CHECKING:
    from anabranch.windows import Comparison, Engine

_LIMIT = click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="How many results to show for an engine; all are counted.",
)


@click.group("windows")
def command() -> None:
    """Predict and explain the results of a window query on Spark, Flink and others.

    The tuples come from a CSV file, one arrival a line.  Each command has --help with an
    example, and --json.
    """


@command.command("predict")
@query_options
@engine_option("Engine: NAME or NAME,delay=5; may be repeated.")
@picture_options
@_LIMIT
@json_option
def predict_command(
    *,
    engines: tuple[str, ...],
    pictures: tuple[Any, ...],
    drawn: bool | None,
    limit: int,
    **options: Any,
) -> None:
    """Predict the results of the query on an engine.

    \b
    anabranch windows predict --input examples/windows_example2.csv --value price \\
        --size 5 --slide 1 --agg avg --engine coral8 --stable 37
    anabranch windows predict --input trades.csv --time ts --value price \\
        --size "5 minutes" --agg max --engine "spark-append,delay=1 minute"
    """  # noqa: D301
    from anabranch.windows.predict import run_query

    wants_json = options.pop("as_json")
    require_pictures(pictures)
    asked = ask(options, engines)
    with asked.named():
        found = [run_query(one, asked.query, asked.tuples) for one in asked.engines]
    seen = timeline_of(asked, found)
    write_pictures(pictures, seen)
    if wants_json:
        click.echo(as_json(asked, {"predictions": [one.to_dict() for one in found]}))
        return
    click.echo(prediction_lines(found, limit))
    print_timeline(seen, drawn=drawn)


@command.command("compare")
@query_options
@engine_option("Engine to compare; give at least two.")
@picture_options
@_LIMIT
@json_option
@click.pass_context
def compare_command(
    ctx: click.Context,
    /,
    *,
    engines: tuple[str, ...],
    pictures: tuple[Any, ...],
    drawn: bool | None,
    limit: int,
    **options: Any,
) -> None:
    """Compare the results of engines, and name the dimension by which they differ.

    Exit code 0: they are the same.  1: they differ.

    \b
    anabranch windows compare --input examples/windows_example2.csv --value price \\
        --size 5 --slide 1 --agg avg --stable 37 \\
        --engine stream --engine coral8 --engine streambase --picture example2.svg
    """  # noqa: D301
    from anabranch.windows import compare

    wants_json = options.pop("as_json")
    _require_several(engines)
    require_pictures(pictures)
    asked = ask(options, engines)
    query = asked.query
    with asked.named():
        found = compare(
            asked.engines, query.size, query.slide, asked.tuples, query.agg, by=query.by
        )
    seen = timeline_of(asked, found.predictions)
    write_pictures(pictures, seen)
    if wants_json:
        click.echo(as_json(asked, {"equal": found.equal, **found.to_dict()}))
    else:
        click.echo(prediction_lines(found.predictions, limit))
        for difference in found.differences:
            click.echo(str(difference))
        click.echo(verdict_line(found))
        print_timeline(seen, drawn=drawn)
    ctx.exit(0 if found.equal else 1)


def _require_several(engines: tuple[str, ...]) -> None:
    from anabranch.errors import UsageError

    twice = sorted({one for one in engines if engines.count(one) > 1})
    if len(engines) < 2 or twice:
        what = f"{', '.join(twice)} twice" if twice else f"only {engines[0]}"
        message = (
            f"compare got {what}; give two or more engines that differ, also in settings: "
            "--engine flink --engine flink,lateness=5"
        )
        raise UsageError(message)


def verdict_line(found: "Comparison") -> str:
    """The answer in one line."""
    count = len(found.predictions)
    if found.equal:
        return f"Yes: all {count} return the same."
    groups = " | ".join(", ".join(names) for names in found.classes)
    return f"No: {len(found.classes)} different answers: {groups}."


@command.command("explain")
@query_options
@engine_option("The engine; may be repeated.")
@json_option
def explain_command(*, engines: tuple[str, ...], **options: Any) -> None:
    """Explain why each result is reported, or is not.

    \b
    anabranch windows explain --input examples/windows_example2.csv --value price \\
        --size 5 --slide 1 --agg avg --engine stream --stable 37
    """  # noqa: D301
    from anabranch.pictures.axis import show_duration
    from anabranch.windows import explain

    wants_json = options.pop("as_json")
    asked = ask(options, engines)
    query = asked.query
    with asked.named():
        found = [
            explain(one, query.size, query.slide, asked.tuples, query.agg, by=query.by)
            for one in asked.engines
        ]
    size, slide = (show_duration(u, clock=asked.clock) for u in (query.size, query.slide))
    lengths = f"size {size}, slide {slide},"
    if wants_json:
        click.echo(as_json(asked, {"explanations": [one.to_dict() for one in found]}))
        return
    text = "\n\n".join(map(str, found))
    click.echo(asked.show(text.replace(f"size {query.size}, slide {query.slide},", lengths)))


for _one in (infer_command, translate_command, choose_command):
    command.add_command(_one)


@command.command("engines")
@click.argument("names", nargs=-1)
@json_option
def engines_command(*, names: tuple[str, ...], as_json: bool) -> None:
    """List the engines; for named ones, also the source of each setting.

    \b
    anabranch windows engines
    anabranch windows engines flink
    """  # noqa: D301
    from anabranch.windows import ENGINES, engine

    found = [engine(name) for name in names] or list(ENGINES.values())
    if as_json:
        click.echo(json.dumps({"engines": [_engine_dict(one) for one in found]}))
        return
    for one in found:
        shown = _engine_dict(one)
        click.echo(f"{one.name}: {shown['windows']}")
        click.echo(f"  report: {shown['report']}; tick: {one.tick}; windows {shown['start']}")
        if names:
            for source in one.sources:
                click.echo(f"  {source.parameter}: {source.where} ({source.kind})")


def _engine_dict(engine: "Engine") -> dict[str, Any]:
    kinds = {"active": "one window at a time", "every": "every window that holds a tuple"}
    start = engine.start
    where = {
        "first": f"{start.direction} from the first tuple",
        "grid": f"{start.direction} on a grid of slides from {start.offset}",
        "fixed": f"from {start.offset}",
    }
    return {
        "name": engine.name,
        "windows": kinds[engine.windows],
        "start": where[start.anchor],
        "report": str(engine.report),
        "tick": engine.tick,
        "slide_above_size": engine.gaps,
        "sources": [
            {"parameter": one.parameter, "where": one.where, "kind": one.kind}
            for one in engine.sources
        ],
    }
