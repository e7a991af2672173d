"""`anabranch check`: validate a stream, and compare its history with another.

Exit code 0: valid and equal.  1: not, or rows were refused.  2: the input cannot be read.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from anabranch.checker.verdict import Comparison, Side, Verdict

_PATH = click.Path(path_type=Path)
_WIDTH: Final = 120
"""Columns of the output where there is no terminal to ask."""
_PAYLOAD_WIDTH: Final = 48


@click.command("check")
@click.argument("a", type=_PATH)
@click.argument("b", type=_PATH, required=False)
@click.option("--until-frontier", is_flag=True, help="Compare below the smaller frontier only.")
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="How many violations, refused rows and differences to show; all are counted.",
)
@click.option("--schema", type=_PATH, help="Types of JSON lines: a JSON file of column: type.")
@click.option("--strict", is_flag=True, help="Stop at the first row that is not an element.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.pass_context
def command(
    ctx: click.Context,
    a: Path,
    b: Path | None,
    *,
    until_frontier: bool,
    limit: int,
    schema: Path | None,
    strict: bool,
    as_json: bool,
) -> None:
    """Validate the stream A, and compare its history with that of B.

    A and B are folders (or files) of elements in Parquet or JSON lines, or the output of a
    merge; A may be an inbox, B a reference history.

    \b
    anabranch check out truth
    anabranch check inbox
    anabranch check out truth --until-frontier
    """  # noqa: D301
    from anabranch.checker.compare import check

    with _progress() as on_progress:
        verdict = check(
            a,
            b,
            until_frontier=until_frontier,
            limit=limit,
            schema=schema,
            strict=strict,
            on_progress=on_progress,
        )
    if as_json:
        click.echo(json.dumps(verdict.to_dict()))
    else:
        _print(verdict)
    ctx.exit(0 if verdict.ok else 1)


@contextmanager
def _progress() -> "Iterator[Callable[[int], None]]":
    """Counts rows on stderr while the check runs; silent without a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda _: None
        return
    text = TextColumn("{task.completed:,.0f} rows read")
    with Progress(
        SpinnerColumn(), text, TimeElapsedColumn(), console=console, transient=True
    ) as bar:
        task = bar.add_task("read", total=None)
        yield lambda rows: bar.advance(task, rows)


def _print(verdict: "Verdict") -> None:
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    for name, side in (("A", verdict.a), ("B", verdict.b)):
        if side is not None:
            _print_side(console, name, side)
    for comparison in verdict.comparisons:
        _print_comparison(console, comparison)
    _line(console, verdict_line(verdict), style="bold green" if verdict.ok else "bold red")


def _print_side(console: "Console", name: str, side: "Side") -> None:
    from rich.table import Table

    title = f"{name}: {side.path} ({side.layout}, {side.format})"
    table = Table(title=title, title_justify="left")
    table.add_column("replica")
    columns = ("elements", "inserts", "adjusts", "stables", "redelivered", "events", "open")
    for column in (*columns, "frontier", "violations"):
        table.add_column(column, justify="right", no_wrap=True)
    for one in side.streams:
        kinds = (one.elements, one.inserts, one.adjusts, one.stables, one.redelivered)
        numbers = [f"{n:,}" for n in (*kinds, one.events, one.open_events)]
        table.add_row(
            _plain(one.replica or "-"), *numbers, str(one.frontier), f"{one.violations:,}"
        )
    console.print(table)
    for stream in side.streams:
        _print_violations(console, stream.violations, stream.first_violations)
    if side.refused:
        _line(console, f"{side.refused:,} rows are not elements:", style="red")
        for row in side.first_refused:
            _line(console, f"  {row.file}, row {row.row}: {row.reason}")
        _rest(console, side.refused, len(side.first_refused))


def _print_violations(console: "Console", count: int, first: tuple[Any, ...]) -> None:
    if not count:
        return
    whose = "" if not first or first[0].replica is None else f" by {first[0].replica}"
    _line(console, f"{count:,} broken promises{whose}:", style="red")
    for one in first:
        change = "" if one.old_end is None else f"{one.old_end}->"
        times = f"{one.start}" if one.end is None else f"{one.start}..{change}{one.end}"
        element = " ".join(filter(None, [one.kind, _payload(one.payload), times]))
        _line(console, f"  {one.file}, row {one.row}: {element}: {one.reason}")
    _rest(console, count, len(first))


def _print_comparison(console: "Console", found: "Comparison") -> None:
    from rich.table import Table

    if found.equal:
        return
    whose = "A" if found.replica is None else f"A, {found.replica},"
    below = "" if found.below is None else f" below {found.below}"
    total = found.only_in_a + found.only_in_b + found.different_end
    counts = (
        f"{found.only_in_a:,} only in A, {found.only_in_b:,} only in B, "
        f"{found.different_end:,} with different ends"
    )
    _line(console, f"{whose} and B differ{below}: {counts}", style="red")
    table = Table()
    for column in ("difference", "payload"):
        table.add_column(column)
    for column in ("start", "end in A", "end in B", "times in A", "times in B"):
        table.add_column(column, justify="right", no_wrap=True)
    for line in found.first_lines:
        ends = ["-" if end is None else str(end) for end in (line.end_a, line.end_b)]
        times = [str(line.times_a), str(line.times_b)]
        payload = _plain(_payload(line.payload))
        table.add_row(line.what, payload, str(line.start), *ends, *times)
    console.print(table)
    shown = sum(abs(n.times_a - n.times_b) or n.times_a for n in found.first_lines)
    _rest(console, total, shown)


def verdict_line(verdict: "Verdict") -> str:
    """The answer in one line, with every reason for a no."""
    reasons = []
    for name, side in (("A", verdict.a), ("B", verdict.b)):
        if side is not None and side.refused:
            reasons.append(f"{name} has rows that are not elements")
        if side is not None and any(stream.violations for stream in side.streams):
            reasons.append(f"{name} breaks promises")
    differ = [one.replica for one in verdict.comparisons if not one.equal]
    if differ:
        names = ", ".join(name for name in differ if name is not None)
        reasons.append("the histories differ" + (f" ({names})" if names else ""))
    if reasons:
        return f"No: {'; '.join(reasons)}."
    if not verdict.comparisons:
        return "Yes: every promise is kept."
    belows = {str(one.below) for one in verdict.comparisons if one.below is not None}
    if not belows:
        return "Yes: every promise is kept, and the histories are the same."
    if belows == {"never"}:
        return "Yes: every promise is kept; no stable came yet, so nothing was compared."
    text = f"Yes: every promise is kept, and below {', '.join(sorted(belows))} the histories "
    return text + "are the same."


def _payload(payload: dict[str, Any]) -> str:
    """A payload on one line; control characters are escaped, long values cut."""
    text = " ".join(f"{name}={value!r}" for name, value in payload.items())
    return text if len(text) <= _PAYLOAD_WIDTH else text[: _PAYLOAD_WIDTH - 3] + "..."


def _plain(text: str) -> Any:
    """Text that is shown as it is: data must not be taken for markup."""
    from rich.text import Text

    return Text(text)


def _line(console: "Console", text: str, *, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, emoji=False, soft_wrap=True)


def _rest(console: "Console", total: int, shown: int) -> None:
    if total > shown:
        _line(console, f"  ... and {total - shown:,} more (--limit shows more)")
