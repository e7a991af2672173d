"""Cases that are pictures: files of marble tables that say what goes in and what comes out.

    # The second replica runs ahead and knows a shorter end; merge must say so.
    replica 0 | insert a 3..9 | stable 5 |               |
    replica 1 |               |          | insert a 3..7 | stable 8
    out       | insert a 3..9 | stable 5 |               | adjust a 3..9->7; stable 8
    history   | a 3..7

A case is a block of rows; the comment above it is its description, and an empty line ends it.
`replica NAME` rows are inputs, at least one; `out` is what an operator must say in each column;
`history` is what must be true in the end.  `out` and `history` may be left out.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.errors import FileError, NotationError, UsageError
from anabranch.model.element import Element
from anabranch.model.history import History
from anabranch.model.notation import Marble, Row, parse_events, parse_marble, split_rows


@dataclass(frozen=True, slots=True)
class Case:
    """One picture: `name` is `file:line`."""

    name: str
    description: str
    replicas: tuple[Row, ...]
    out: Row | None
    history: History | None

    def arrivals(self) -> list[tuple[str, Element]]:
        """The inputs as (replica, element), column by column, each from the top."""
        return Marble(self.replicas).arrivals()

    def steps(self) -> list[tuple[list[tuple[str, Element]], tuple[Element, ...]]]:
        """For each column what arrives, and what `out` says there."""
        rows = [*self.replicas, *([self.out] if self.out else [])]
        width = max(len(row.cells) for row in rows)
        return [
            (
                [
                    (row.name, element)
                    for row in self.replicas
                    for element in _cell(row, column)
                ],
                _cell(self.out, column) if self.out else (),
            )
            for column in range(width)
        ]


def load_cases(path: str | Path) -> list[Case]:
    """The cases of a file; a file without any is an error, for it would test nothing."""
    file = Path(path)
    if not file.is_file():
        message = f"{file}: no such file of cases; give the path of a .case file"
        raise FileError(message)
    cases = [
        _case(f"{file.name}:{line}", block)
        for line, block in _blocks(file.read_text(encoding="utf-8"))
    ]
    if not cases:
        message = f"{file}: no case in it; write at least one 'replica NAME | ...' row"
        raise NotationError(message)
    return cases


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line, and the lines, of every block that has rows."""
    block: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], start=1):
        if line.strip():
            block.append(line.strip())
            continue
        if not all(known.startswith("#") for known in block):
            yield number - len(block), block
        block = []


def _case(name: str, block: list[str]) -> Case:
    comments = (line.lstrip("# ") for line in block if line.startswith("#"))
    try:
        return _read(name, " ".join(comments), "\n".join(block))
    except (NotationError, UsageError) as error:
        message = f"{name}: {error}"
        raise NotationError(message) from error


def _read(name: str, description: str, text: str) -> Case:
    replicas: list[Row] = []
    out: Row | None = None
    history: History | None = None
    for row_name, cells in split_rows(text):
        kind, _, replica = row_name.partition(" ")
        if row_name == "history":
            events = (event for cell in cells for event in parse_events(cell))
            history = History.from_events(events)
            continue
        (row,) = parse_marble(" | ".join([replica or row_name, *cells])).rows
        if row_name == "out":
            out = row
        elif kind == "replica" and replica:
            replicas.append(row)
        else:
            message = f"row {row_name!r}; rows are 'replica NAME', 'out' and 'history'"
            raise NotationError(message)
    if not replicas:
        message = "a case without input; add a row 'replica NAME | ...'"
        raise NotationError(message)
    return Case(name, description, tuple(replicas), out, history)


def _cell(row: Row, column: int) -> tuple[Element, ...]:
    return row.cells[column] if column < len(row.cells) else ()
