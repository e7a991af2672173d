"""Elements and streams as text: one line, or a picture.

Text.  `insert a 3..9`, `insert a 3..forever`, `adjust a 3..9->7`, `adjust a 3..9->3`
(removal), `stable 5`, `stable forever`; events are `a 3..9`.  Several are separated by `;` or
by lines, and `#` starts a comment.  A payload is a word, a whole number, or text in double
quotes, written as in JSON.

Marble tables.  Rows are streams, columns are arrivals from left to right; a cell may be empty
or hold several elements separated by `;`:

    replica 0 | insert a 3..9 | stable 5
    replica 1 |               |          | insert a 3..7; stable 8

Parsing what was shown gives the same elements, when payloads are text or whole numbers.  Other
payloads are shown by their `repr`, for people only.

>>> parse("insert a 3..9; adjust a 3..9->7  # shorter")
[Insert(payload='a', start=3, end=9), Adjust(payload='a', start=3, old_end=9, end=7)]
"""

import json
import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from anabranch.errors import NotationError
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.time import FOREVER, Time, show

_WORD: Final = r"[^\W\d]\w*"
_QUOTED: Final = r'"(?:[^"\\]|\\.)*"'
_TIME: Final = r"-?\d+|forever"
_EVENT: Final = rf"(?P<payload>{_QUOTED}|-?\d+|{_WORD})\s+(?P<start>-?\d+)\.\.(?P<end>{_TIME})"

_FORMS: Final = (
    re.compile(rf"(?P<kind>insert)\s+{_EVENT}"),
    re.compile(rf"(?P<kind>adjust)\s+{_EVENT}\s*->\s*(?P<new_end>{_TIME})"),
    re.compile(rf"(?P<kind>stable)\s+(?P<start>{_TIME})"),
)


def parse_element(text: str) -> Element:
    """One element.

    >>> parse_element('adjust "a b" 3..forever->3').is_removal
    True
    """
    match = next(filter(None, (form.fullmatch(text.strip()) for form in _FORMS)), None)
    if match is None:
        message = (
            f"{text.strip()!r} is not an element; write 'insert PAYLOAD START..END', "
            "'adjust PAYLOAD START..OLD_END->END' or 'stable TIME', where a time is a whole "
            "number, and an end or the time of a stable may be 'forever'"
        )
        raise NotationError(message)
    start = _time(match["start"])
    if match["kind"] == "stable":
        return Stable(start)
    payload, end = _payload(match["payload"]), _time(match["end"])
    if match["kind"] == "insert":
        return Insert(payload, start, end)
    return Adjust(payload, start, end, _time(match["new_end"]))


def parse_event(text: str) -> Event:
    """One event of a history.

    >>> parse_event("a 3..forever")
    Event(payload='a', start=3, end=inf)
    """
    match = re.fullmatch(_EVENT, text.strip())
    if match is None:
        message = f"{text.strip()!r} is not an event; write 'PAYLOAD START..END'"
        raise NotationError(message)
    return Event(_payload(match["payload"]), _time(match["start"]), _time(match["end"]))


def parse(text: str) -> list[Element]:
    """The elements of a text, in order."""
    return [parse_element(item) for item in _items(text)]


def parse_events(text: str) -> list[Event]:
    """The events of a text.

    >>> parse_events("a 3..7; 12 1..2")
    [Event(payload='a', start=3, end=7), Event(payload=12, start=1, end=2)]
    """
    return [parse_event(item) for item in _items(text)]


def show_payload(payload: Hashable) -> str:
    """A payload as the notation writes it.

    >>> print(show_payload("a"), show_payload("a b"), show_payload("7"), show_payload(7))
    a "a b" "7" 7
    """
    if isinstance(payload, str):
        is_word = re.fullmatch(_WORD, payload)
        return payload if is_word else json.dumps(payload, ensure_ascii=False)
    return repr(payload)


def show_event(event: Event) -> str:
    """An event as the notation writes it: `a 3..9`."""
    return f"{show_payload(event.payload)} {show(event.start)}..{show(event.end)}"


def show_element(element: Element) -> str:
    """An element as the notation writes it.

    >>> show_element(Adjust("a", 3, FOREVER, 7))
    'adjust a 3..forever->7'
    """
    if isinstance(element, Stable):
        return f"stable {show(element.time)}"
    if isinstance(element, Insert):
        return f"insert {show_event(element.event)}"
    return f"adjust {show_event(element.old_event)}->{show(element.end)}"


def show_elements(elements: Iterable[Element]) -> str:
    """Elements on one line, in order."""
    return "; ".join(map(show_element, elements))


@dataclass(frozen=True, slots=True)
class Row:
    """One stream of a marble table: its name, and what arrives in each column."""

    name: str
    cells: tuple[tuple[Element, ...], ...]

    @property
    def elements(self) -> list[Element]:
        """The physical stream."""
        return [element for cell in self.cells for element in cell]


@dataclass(frozen=True, slots=True)
class Marble:
    """A marble table; rows keep their order."""

    rows: tuple[Row, ...]

    @classmethod
    def of(cls, arrivals: Iterable[tuple[str, Element]]) -> "Marble":
        """The picture of elements that arrived in this order, one column each.

        >>> print(show_marble(Marble.of([("x", Stable(1)), ("y", Stable(2))])))
        x | stable 1 |
        y |          | stable 2
        """
        columns = list(arrivals)
        names = dict.fromkeys(name for name, _ in columns)
        return cls(
            tuple(
                Row(name, tuple((element,) if name == own else () for own, element in columns))
                for name in names
            )
        )

    def stream(self, name: str) -> list[Element]:
        """The elements of the row with this name; `KeyError` if there is none."""
        return {row.name: row.elements for row in self.rows}[name]

    def arrivals(self) -> list[tuple[str, Element]]:
        """All elements with the names of their rows: column by column, each from the top."""
        width = max((len(row.cells) for row in self.rows), default=0)
        return [
            (row.name, element)
            for column in range(width)
            for row in self.rows
            for element in (row.cells[column] if column < len(row.cells) else ())
        ]


def parse_marble(text: str) -> Marble:
    r"""A marble table; comments and empty lines are skipped.

    >>> table = parse_marble("x | insert a 1..2 |  \n y | | stable 3; stable 4")
    >>> [name for name, element in table.arrivals()]
    ['x', 'y', 'y']
    """
    rows = [
        Row(name, tuple(tuple(parse(cell)) for cell in cells))
        for name, cells in split_rows(text)
    ]
    return Marble(tuple(rows))


def show_marble(marble: Marble) -> str:
    """The table with its columns aligned."""
    columns = max((len(row.cells) for row in marble.rows), default=0)
    table = [
        [row.name, *map(show_elements, row.cells), *[""] * (columns - len(row.cells))]
        for row in marble.rows
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    )
    return "\n".join(line.rstrip() for line in lines)


def split_rows(text: str) -> list[tuple[str, list[str]]]:
    """The rows of a table as text: name and cells; comments and empty lines are skipped.

    >>> split_rows("out | stable 1 |  # done")
    [('out', ['stable 1', ''])]
    """
    rows: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        content = _split(line, "#")[0]
        if not content.strip():
            continue
        name, *cells = (cell.strip() for cell in _split(content, "|"))
        if not name or not cells:
            message = f"{line.strip()!r} is not a row of a table; write 'NAME | CELL | CELL'"
            raise NotationError(message)
        if name in (known for known, _ in rows):
            message = f"the row {name!r} is there twice; write each stream in one row"
            raise NotationError(message)
        rows.append((name, cells))
    return rows


def _items(text: str) -> list[str]:
    lines = (_split(line, "#")[0] for line in text.split("\n"))
    return [item for line in lines for item in _split(line, ";") if item.strip()]


def _split(text: str, separator: str) -> list[str]:
    """Split where the separator is not inside quotes."""
    parts = [""]
    for token in re.findall(rf"{_QUOTED}|.", text, flags=re.DOTALL):
        if token == separator:
            parts.append("")
        else:
            parts[-1] += token
    return parts


def _time(text: str) -> Time:
    return FOREVER if text == "forever" else int(text)


def _payload(text: str) -> str | int:
    if not text.startswith('"'):
        return text if re.fullmatch(_WORD, text) else int(text)
    try:
        # Not strict: a tab between the quotes is what it looks like.
        return str(json.loads(text, strict=False))
    except json.JSONDecodeError as error:
        message = f"{text} is not text in quotes as JSON writes it: {error.msg}"
        raise NotationError(message) from error
