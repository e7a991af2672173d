"""The account of a merge for any terminal width, without cutting text.

The widest form that fits is drawn: one table; two tables below each other, of the counts and of
the times; or a paragraph per replica, which wraps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from anabranch.spark.progress import BUCKETS

COUNTS: Final = ("rows", *BUCKETS)
TIMES: Final = ("frontier", "lag")
_BOUNDLESS: Final = 1_000_000
"""Characters in a line when a table is asked how wide it would like to be."""


@dataclass(frozen=True)
class Line:
    """The counts and times of one replica, or of all."""

    name: str
    counts: tuple[int, ...]
    times: tuple[str, ...]
    standing: str


@dataclass(frozen=True)
class Sheet:
    """Lines for replicas, and one for all of them; Rich prints it."""

    title: str
    lines: tuple[Line, ...]
    below: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The widest form that fits."""
        yield Text(self.title, "italic", overflow="fold")
        for tables in (self._one(), self._two()):
            if all(_fits(table, console, options) for table in tables):
                yield from tables
                break
        else:
            yield from self._paragraphs()
        yield Text(self.below, "dim italic", overflow="fold")

    def _one(self) -> list[Table]:
        rows = [
            [line.name, *map(_number, line.counts), *line.times, line.standing]
            for line in self.lines
        ]
        return [_table((*COUNTS, *TIMES, ""), rows)]

    def _two(self) -> list[Table]:
        counts = [[line.name, *map(_number, line.counts)] for line in self.lines]
        times = [[line.name, *line.times, line.standing] for line in self.lines]
        return [_table(COUNTS, counts), _table((*TIMES, ""), times)]

    def _paragraphs(self) -> list[Text]:
        made = []
        for line in self.lines:
            counts = zip(BUCKETS, map(_number, line.counts[1:]), strict=True)
            parts = [
                f"{line.name}: {line.standing}".removesuffix(": "),
                f"{_number(line.counts[0])} rows",
                *(f"{name} {count}" for name, count in counts),
                *(f"{name} {time}" for name, time in zip(TIMES, line.times, strict=True)),
            ]
            made.append(Text("; ".join(parts), overflow="fold"))
        return made


def _number(count: int) -> str:
    return f"{count:,}"


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table with the name of a replica first; a column without a name holds words."""
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    drawn.add_column("replica", no_wrap=True)
    for name in names:
        drawn.add_column(name, justify="right" if name else "left", no_wrap=True)
    for at, cells in enumerate(rows):
        if at == len(rows) - 1:
            drawn.add_section()
        drawn.add_row(*map(Text, cells))  # a name may look like markup
    return drawn


def _fits(table: Table, console: Console, options: ConsoleOptions) -> bool:
    wanted = console.measure(table, options=options.update(max_width=_BOUNDLESS))
    return wanted.maximum <= options.max_width
