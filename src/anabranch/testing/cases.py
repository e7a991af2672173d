"""Cases that are pictures: files of marble tables with inputs and expected output.

    # The second replica runs ahead and has a shorter end; the merge must emit it.
    replica 0 | insert a 3..9 | stable 5 |               |
    replica 1 |               |          | insert a 3..7 | stable 8
    out       | insert a 3..9 | stable 5 |               | adjust a 3..9->7; stable 8
    history   | a 3..7

A case is a block of rows; the comment above it is its description, and an empty line ends it.
`replica NAME` rows are inputs, at least one; `out` is what an operator must emit in each
column; `history` is what must be true in the end; `options` are those of the operator, as
`name value`.  All but the inputs may be left out.  A payload of several columns is written as
one text: `"a (0, 6)"`.

A row `reached` has the greatest start that the whole query has seen at the end of a column.
Before its elements a cell may have `attach`, `attach GUARANTEE` or `detach`: the input
comes or leaves.  `run_case` runs a case on an engine.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import FileError, NotationError, UsageError
from anabranch.model.element import Element
from anabranch.model.history import History, replay
from anabranch.model.notation import (
    Marble,
    Row,
    parse_events,
    parse_marble,
    show_element,
    split_rows,
)
from anabranch.model.time import FOREVER, Time
from anabranch.testing.payload_text import in_text

if TYPE_CHECKING:
    from anabranch.testing.engine import Engine


@dataclass(frozen=True, slots=True)
class Control:
    """An input comes, with a guarantee or without, or leaves."""

    replica: str
    word: str
    guarantee: Time | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One picture: `name` is `file:line`; `control` has the entries of each column.

    `reached` has the greatest start of the whole query at the end of a column.
    """

    name: str
    description: str
    replicas: tuple[Row, ...]
    out: Row | None
    history: History | None
    control: Mapping[int, tuple[Control, ...]] = field(default_factory=dict)
    options: Mapping[str, str | int] = field(default_factory=dict)
    reached: Mapping[int, int] = field(default_factory=dict)

    def arrivals(self) -> list[tuple[str, Element]]:
        """The inputs as (replica, element), column by column, each from the top."""
        return Marble(self.replicas).arrivals()

    def steps(self) -> list[tuple[list[tuple[str, Element]], tuple[Element, ...]]]:
        """For each column the arrivals, and the expected output."""
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
    control: dict[int, list[Control]] = {}
    options: dict[str, str | int] = {}
    reached: dict[int, int] = {}
    for row_name, cells in split_rows(text):
        kind, _, replica = row_name.partition(" ")
        if row_name == "history":
            events = (event for cell in cells for event in parse_events(cell))
            history = History.from_events(events)
        elif row_name == "options":
            options = {
                key: int(value) if value.isdigit() else value
                for key, _, value in (cell.partition(" ") for cell in cells)
            }
        elif row_name == "reached":
            reached = {at: int(cell) for at, cell in enumerate(cells) if cell}
        elif row_name == "out":
            (out,) = parse_marble(" | ".join(["out", *cells])).rows
        elif kind == "replica" and replica:
            rest = [_take_control(cell, replica, control, at) for at, cell in enumerate(cells)]
            replicas += parse_marble(" | ".join([replica, *rest])).rows
        else:
            message = (
                f"row {row_name!r}; rows are 'replica NAME', 'out', 'reached', 'history' "
                "and 'options'"
            )
            raise NotationError(message)
    if not replicas:
        message = "a case without input; add a row 'replica NAME | ...'"
        raise NotationError(message)
    entries = {column: tuple(some) for column, some in control.items()}
    return Case(name, description, tuple(replicas), out, history, entries, options, reached)


def _take_control(
    cell: str, replica: str, control: dict[int, list[Control]], column: int
) -> str:
    """The elements of a cell; its control entries go to those of the column."""
    parts = [part.strip() for part in cell.split(";")]
    while parts and parts[0].split(" ")[0] in ("attach", "detach"):
        word, _, time = parts.pop(0).partition(" ")
        guarantee = _time(time.strip()) if time else None
        control.setdefault(column, []).append(Control(replica, word, guarantee))
    return "; ".join(parts)


def _cell(row: Row, column: int) -> tuple[Element, ...]:
    return row.cells[column] if column < len(row.cells) else ()


def _time(text: str) -> Time:
    try:
        return FOREVER if text == "forever" else int(text)
    except ValueError:
        message = f"guarantee {text!r}; write 'attach', 'attach 3' or 'attach forever'"
        raise NotationError(message) from None


def run_case(case: Case, engine: "Engine") -> None:
    """Run a case, a step per column, and assert its expectations per column and at the end.

    A reference emits what the picture has, element by element.  Other engines emit the net
    change of a step, so there the history and the frontier must be those of the picture.
    """
    expected: list[Element] = []
    for column, (arrived, out) in enumerate(case.steps()):
        for entry in case.control.get(column, ()):
            if entry.word == "attach":
                engine.attach(entry.replica, guarantee=entry.guarantee)
            else:
                engine.detach(entry.replica)
        for name, element in arrived:
            engine.push(name, [element])
        engine.cut()
        if column in case.reached:
            engine.reach(case.reached[column])
        expected += out
        if case.out is not None:
            _compare(case, column, engine, expected)
    if case.history is not None:
        made = History.of(map(in_text, engine.output))
        assert made == case.history, _wrong(case, "the end", engine, expected)


def _compare(case: Case, column: int, engine: "Engine", expected: list[Element]) -> None:
    where, made = f"column {column + 1}", [in_text(element) for element in engine.output]
    if engine.name == "reference":
        assert made == expected, _wrong(case, where, engine, expected)
    else:
        assert replay(made) == replay(expected), _wrong(case, where, engine, expected)
    if engine.name == "kernel":  # a net change is never longer than what it is the net of
        assert len(made) <= len(expected), _wrong(case, where, engine, expected)


def _wrong(case: Case, where: str, engine: "Engine", expected: list[Element]) -> str:
    made, drawn = ("; ".join(map(show_element, some)) for some in (engine.output, expected))
    return (
        f"{case.name} on {engine.name}, {where}: {case.description}\n"
        f"emitted:  {made}\nexpected: {drawn}"
    )
