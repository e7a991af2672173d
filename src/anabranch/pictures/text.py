"""A timeline in a terminal: characters in a grid, as wide as the terminal is.

Each line is a list of pieces, a role and a text; who prints gives roles a colour, or none.
Where the terminal knows only ASCII, so does the drawing.

>>> from anabranch.windows import predict
>>> from anabranch.pictures.timeline import timeline
>>> tuples = [(1, 10), (2, 20), (4, 30)]
>>> seen = timeline([predict("flink", 2, 2, tuples, "sum")], tuples)
>>> for line in draw_text(seen, width=40):
...     print("".join(text for _, text in line))
sum over windows of size 2, slide 2
3 tuples
      ●10   ●20         ●30
0     1     2     3     4     5
<BLANKLINE>
flink: (10), (20)
┣━━━━━━━━━━┫◆10         ├╌╌╌╌╌╌╌╌╌╌┤
            ┣━━━━━━━━━━┫◆20
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, TypeAlias

from anabranch.pictures.axis import marks, show_mark, show_time
from anabranch.pictures.timeline import MOST_LABELS, Bar, Mark, Timeline, Track, pack

Role: TypeAlias = Literal["plain", "title", "muted", "bar", "silent", "mark", "late", "stable"]
Piece: TypeAlias = tuple[Role, str]
LEAST_WIDTH: Final = 40


@dataclass(frozen=True, slots=True)
class Letters:
    """The characters of a drawing."""

    bar: str = "┣━┫"
    silent: str = "├╌┤"
    delay: str = "─"
    mark: str = "◆"
    late: str = "◇"
    point: str = "●"
    dropped: str = "✗"
    stable: str = "┊"
    cut: str = "…"


ASCII: Final = Letters("[=)", "[-)", ".", "*", "!", "o", "x", "|", "~")


@dataclass(slots=True)
class _Grid:
    """One line of characters, each with its role."""

    width: int
    letters: list[str] = field(default_factory=list)
    roles: list[Role] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.letters = [" "] * self.width
        self.roles = ["plain"] * self.width

    def put(self, at: int, text: str, role: Role) -> None:
        for place, letter in enumerate(text, start=at):
            if 0 <= place < self.width:
                self.letters[place] = letter
                self.roles[place] = role

    def free(self, at: int, length: int) -> bool:
        return all(letter == " " for letter in self.letters[max(0, at) : at + length])

    def pieces(self) -> list[Piece]:
        whole = "".join(self.letters).rstrip()
        paired = zip(self.roles, whole, strict=False)
        return [
            (role, "".join(letter for _, letter in run))
            for role, run in groupby(paired, key=lambda pair: pair[0])
        ]


@dataclass(frozen=True, slots=True)
class _Scale:
    low: int
    high: int
    width: int
    """Characters in a line."""
    usable: int
    """Those of them that instants get; labels may go beyond."""

    def x(self, at: int) -> int:
        """The first character of an instant."""
        return (at - self.low) * self.usable // (self.high - self.low + 1)

    @classmethod
    def of(cls, seen: Timeline, width: int) -> "_Scale":
        """As wide as labels permit; whole characters for an instant where there is room."""
        cells = seen.high - seen.low + 1
        labels = [
            (mark.at, mark.label) for t in seen.tracks for bar in t.bars for mark in bar.marks
        ]
        labels += [(point.at, point.label) for point in seen.points]
        ends = [(at - seen.low, len(label) + 2) for at, label in labels]
        for cell in range(width // cells, 0, -1):
            if all(at * cell + length <= width for at, length in ends):
                return cls(seen.low, seen.high, width, cell * cells)
        longest = max((length for _, length in ends), default=0)
        return cls(seen.low, seen.high, width, width - min(longest, width // 4))


def draw_text(
    seen: Timeline, width: int = 100, letters: Letters | None = None
) -> list[list[Piece]]:
    """The lines of the drawing."""
    letters = letters or Letters()
    width = max(width, LEAST_WIDTH)
    scale = _Scale.of(seen, width)
    lines: list[list[Piece]] = [
        [("title", seen.title)],
        [("muted", seen.about)],
        *(grid.pieces() for grid in _tuples(seen, scale, letters)),
        _axis(seen, scale).pieces(),
    ]
    for track in seen.tracks:
        lines.append([])
        lines.append(_head(track, width, letters))
        lines += [grid.pieces() for grid in _windows(track, scale, letters)]
    return lines


def _head(track: Track, width: int, letters: Letters) -> list[Piece]:
    name = f"{track.name}: "
    values = ", ".join(f"({value})" for value in track.values) or "no result"
    note = f"  same as {track.same_as}" if track.same_as else ""
    note = f"  {track.left_out:,} more windows not drawn" if track.left_out else note
    room = max(12, width - len(name) - len(note))
    if len(values) > room:
        values = values[: room - 1] + letters.cut
    return [("title", name), ("plain", values), ("muted", note)]


def _tuples(seen: Timeline, scale: _Scale, letters: Letters) -> list[_Grid]:
    """The tuples, in as many lines as their labels need; stables in the last."""
    texts = [f"{letters.point}{_ascii(point.label, letters)}" for point in seen.points]
    if len(texts) > MOST_LABELS:
        texts = [letters.point for _ in texts]
    extents = [
        (scale.x(point.at), scale.x(point.at) + len(text) + (len(text) > 1))
        for point, text in zip(seen.points, texts, strict=True)
    ]
    order = sorted(range(len(texts)), key=lambda n: (extents[n][0], n))
    levels = dict(zip(order, pack([extents[n] for n in order]), strict=True))
    grids = [_Grid(scale.width) for _ in range(max(levels.values(), default=0) + 1)]
    for number, text in enumerate(texts):
        grids[-1 - levels[number]].put(int(extents[number][0]), text, "plain")
    for at in seen.stables:
        label = f"{letters.stable}stable {show_time(at, clock=seen.clock, short=True)}"
        begin = min(scale.x(at), scale.width - len(label))
        grid = next((one for one in reversed(grids) if one.free(begin, len(label))), None)
        if grid is None:
            grid = _Grid(scale.width)
            grids.insert(0, grid)
        grid.put(begin, label, "stable")
    return grids


def _axis(seen: Timeline, scale: _Scale) -> _Grid:
    widest = max(len(show_mark(t, seen.low, seen.high, clock=seen.clock)) for t in _ends(seen))
    most = max(1, scale.usable // (widest + 2))
    grid = _Grid(scale.width)
    for at in marks(seen.low, seen.high, most, clock=seen.clock):
        label = show_mark(at, seen.low, seen.high, clock=seen.clock)
        if grid.free(scale.x(at) - 1, len(label) + 1):
            grid.put(scale.x(at), label, "muted")
    return grid


def _ends(seen: Timeline) -> tuple[int, int]:
    return seen.low, seen.high


def _windows(track: Track, scale: _Scale, letters: Letters) -> list[_Grid]:
    levels = pack([_extent(bar, scale) for bar in track.bars])
    grids = [_Grid(scale.width) for _ in range(max(levels, default=-1) + 1)]
    for bar, level in zip(track.bars, levels, strict=True):
        _put_bar(grids[level], bar, scale, letters)
    if track.dropped:
        first = _Grid(scale.width)
        for point in track.dropped:
            label = f"{letters.dropped}{_ascii(point.label, letters)}"
            first.put(scale.x(point.at), label, "late")
        grids.insert(0, first)
    return grids


def _label(mark: Mark, letters: Letters) -> str:
    sign = letters.late if mark.late else letters.mark
    return f"{sign}{_ascii(mark.label, letters)}"


def _ascii(text: str, letters: Letters) -> str:
    return text.replace("…", letters.cut)


def _extent(bar: Bar, scale: _Scale) -> tuple[float, float]:
    ends = [scale.x(mark.at) + len(mark.label) + 1 for mark in bar.marks]
    begins = [scale.x(mark.at) for mark in bar.marks]
    return min([scale.x(bar.start), *begins]), max([scale.x(bar.end), *ends])


def _put_bar(grid: _Grid, bar: Bar, scale: _Scale, letters: Letters) -> None:
    left, right = scale.x(bar.start), max(scale.x(bar.end), scale.x(bar.start) + 1)
    signs = letters.bar if bar.marks else letters.silent
    length = right - left
    drawn = signs[0] + signs[1] * (length - 2) + signs[2] if length > 1 else signs[1]
    places: Sequence[int] = [scale.x(mark.at) for mark in bar.marks]
    if places and max(places) > right:
        grid.put(right, letters.delay * (max(places) - right), "muted")
    grid.put(left, drawn, "bar" if bar.marks else "silent")
    following = scale.width
    for mark, at in reversed(list(zip(bar.marks, places, strict=True))):
        label = _label(mark, letters)
        # No room for the value: the mark alone; all values are beside the engine's name.
        label = label if at + len(label) <= following else label[:1]
        if at < following:
            grid.put(at, label, "late" if mark.late else "mark")
        following = at
