"""The files of an output folder: published ones, and the tail of rows that wait.

    FOLDER/part-RUN-FIRST-LAST-PIECE-of-PIECES.parquet     published: never changed or removed
    .FOLDER.tail/committed-000000000007/*.parquet          committed by Spark, not yet published
    .FOLDER.tail/trigger-000000000008/*.parquet            written; Spark may repeat the trigger
    .FOLDER.tail/staged/                                   files that no trigger has gathered
    .FOLDER.tail/_run.json                                 the run that the folder belongs to

FOLDER holds Parquet files and nothing else, so that any reader gives each published row once,
at any moment, also while a query writes.  Each file has the rows of a range of triggers, and
the ranges follow one another without a gap: a file that is missing is noticed by its
neighbours, or by the ledger of the run (`Ledger`).
"""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from anabranch.sinks.json_file import read_json, write_json

STAGED: Final = "staged"
FORMAT: Final = 1

_PUBLISHED: Final = re.compile(r"part-(\w+)-(\d{12})-(\d{12})-(\d{3})-of-(\d{3})\.parquet")
_WAITING: Final = re.compile(r"committed-(\d{12})")
_WRITTEN: Final = re.compile(r"trigger-(\d{12})")


@dataclass(frozen=True, order=True)
class Piece:
    """A published file: the rows of triggers `first` to `last`, or a piece of them."""

    first: int
    last: int
    piece: int
    pieces: int
    run: str

    @property
    def name(self) -> str:
        """The name of the file; names sort like triggers."""
        triggers = f"{self.first:012d}-{self.last:012d}"
        return f"part-{self.run}-{triggers}-{self.piece:03d}-of-{self.pieces:03d}.parquet"

    @classmethod
    def parse(cls, name: str) -> "Piece | None":
        """The piece that a file name stands for; None if it is not one of ours."""
        found = _PUBLISHED.fullmatch(name)
        if found is None:
            return None
        first, last, piece, pieces = map(int, found.groups()[1:])
        return cls(first, last, piece, pieces, found[1])


def tail_of(folder: Path) -> Path:
    """The folder beside an output folder with all that is not published."""
    return folder.parent / f".{folder.name}.tail"


def pieces_in(folder: Path) -> list[Piece]:
    """The published files of a folder, in the order of their triggers."""
    names = [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
    return sorted(piece for name in names if (piece := Piece.parse(name)) is not None)


def waiting_in(folder: Path) -> dict[int, Path]:
    """Triggers that Spark has committed and that are in the tail, with their folders."""
    return _numbered(tail_of(folder), _WAITING)


def written_in(folder: Path) -> dict[int, Path]:
    """Triggers that were written, and that Spark may still repeat."""
    return _numbered(tail_of(folder), _WRITTEN)


def _numbered(tail: Path, pattern: re.Pattern[str]) -> dict[int, Path]:
    names = os.listdir(tail) if tail.is_dir() else []
    found = (match for name in names if (match := pattern.fullmatch(name)))
    return {int(match[1]): tail / match[0] for match in sorted(found, key=lambda one: one[0])}


def published_through(pieces: Sequence[Piece]) -> int:
    """The last trigger whose rows are all published; -1 if none is."""
    last = -1
    for first, some in _ranges(pieces):
        if len(some) == some[0].pieces:
            last = max(last, some[0].last)
        elif first > last:
            break
    return last


def _ranges(pieces: Sequence[Piece]) -> Iterator[tuple[int, list[Piece]]]:
    together: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        together.setdefault((piece.first, piece.last), []).append(piece)
    for (first, _), some in sorted(together.items()):
        yield first, some


def committed_files(folder: Path) -> list[Path]:
    """The files of all committed rows: what is published, then the tail.

    The tail is listed first: what is published in the meantime is not given twice.
    """
    waiting = waiting_in(folder)
    pieces = pieces_in(folder)
    through = published_through(pieces)
    files = [folder / piece.name for piece in pieces if piece.last <= through]
    for trigger, tail in waiting.items():
        if trigger > through:
            files += sorted(tail.glob("*.parquet"))
    return files


@dataclass(frozen=True)
class Ledger:
    """What a run has written into one folder; it is kept apart from that folder.

    `since` is the first trigger whose files must be there: later than 0 if the sink was added
    later, or if files were removed by command.  `through` is the last one that is published,
    `waiting` are triggers after it that have rows.
    """

    since: int = 0
    through: int = -1
    waiting: tuple[int, ...] = ()
    format: int = FORMAT

    @classmethod
    def read(cls, file: Path) -> "Ledger | None":
        """The ledger in a file, if there is one."""
        fields = read_json(file, FORMAT)
        if fields is None:
            return None
        return cls(**{**fields, "waiting": tuple(fields["waiting"])})

    def write(self, file: Path) -> None:
        """Replace what the file has, at once."""
        write_json(file, asdict(self))

    def with_trigger(self, trigger: int, *, has_rows: bool) -> "Ledger":
        """A trigger was written; an earlier attempt may have had rows, and this one none."""
        others = {one for one in self.waiting if one != trigger}
        return replace(self, waiting=tuple(sorted(others | ({trigger} if has_rows else set()))))

    def with_published(self, through: int) -> "Ledger":
        """All triggers up to this one are in published files."""
        later = tuple(one for one in self.waiting if one > through)
        return replace(self, through=max(self.through, through), waiting=later)


def missing(folder: Path, ledger: Ledger, committed: int) -> list[str]:
    """What the run has written and is not there, as words for an error message.

    `committed` is the last trigger that Spark has committed: it repeats those after it.
    """
    pieces = [piece for piece in pieces_in(folder) if piece.last >= ledger.since]
    found: list[str] = []
    following = ledger.since
    for first, some in _ranges(pieces):
        if first > following:
            found.append(_triggers(folder, following, first - 1))
        numbers = {piece.piece for piece in some}
        lost = (replace(some[0], piece=at) for at in range(1, some[0].pieces + 1))
        found += [str(folder / one.name) for one in lost if one.piece not in numbers]
        following = max(following, some[0].last + 1)
    if ledger.through >= following:
        found.append(_triggers(folder, following, ledger.through))
    there = waiting_in(folder) | written_in(folder)
    late = max(ledger.through, following - 1)
    expected = [one for one in ledger.waiting if late < one <= committed]
    found += [str(_tail_folder(folder, one)) for one in expected if one not in there]
    return found


def _triggers(folder: Path, first: int, last: int) -> str:
    return f"{folder}/part-*-{first:012d}-*: the rows of triggers {first} to {last}"


def _tail_folder(folder: Path, trigger: int) -> Path:
    return tail_of(folder) / f"committed-{trigger:012d}"
