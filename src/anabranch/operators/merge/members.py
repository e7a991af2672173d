"""The replicas of a merge: who is attached, how far each is, and whether its stables count.

One row per attachment, in the order of attaching; a name is attached at most once.  `serial`
numbers attachments of all names for ever: parts of a state name them by it.  A guarantee
of NEVER_UNITS says: complete from the beginning.  While a replica joins, its frontier is the
stable that waits for it to be joined.

Papers: LMerge V-B, with errata L8 (a new attachment starts from nothing) and L9 (joining).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.errors import UsageError

COLUMNS: Final = ("attachment", "guarantee", "frontier", "last_seq", "serial")
"""The columns of `Members`, in order."""


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """What there is to show of one replica."""

    name: str
    attachment: int
    guarantee: int | None
    frontier: int
    joined: bool


@dataclass(eq=False)
class Members:
    """Control columns, one row per replica."""

    names: list[str]
    attachment: Ints
    guarantee: Ints
    frontier: Ints
    last_seq: Ints
    serial: Ints
    next_serial: int = 0

    @classmethod
    def none(cls) -> "Members":
        """Nobody is attached."""
        empty = np.empty(0, np.int64)
        return cls([], empty, empty, empty, empty, empty)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """The row of this replica, or None."""
        return self.names.index(name) if name in self.names else None

    def row_of(self, name: str, what: str) -> int:
        """The row of a replica that is to be detached, or whatever `what` says."""
        row = self.find(name)
        if row is None:
            message = (
                f"merge: replica '{name}' cannot be {what}, attached are {self.names}; check "
                "the name"
            )
            raise UsageError(message)
        return row

    def row_of_attachment(self, name: str, attachment: int) -> int | None:
        """The row of this very attachment, None if it is new; refuses one that was replaced."""
        row = self.find(name)
        if row is None or attachment > self.attachment[row]:
            return None
        if attachment < self.attachment[row]:
            message = (
                f"merge: replica '{name}' arrives with attachment {attachment}, but "
                f"{self.attachment[row]} has replaced it; give each return of a replica a "
                "greater attachment number"
            )
            raise UsageError(message)
        return row

    def add(self, name: str, *, attachment: int, guarantee: int | None) -> None:
        """A new last row."""
        promised = NEVER_UNITS if guarantee is None else guarantee
        self.names.append(name)
        self.attachment = np.append(self.attachment, attachment)
        self.guarantee = np.append(self.guarantee, promised)
        self.frontier = np.append(self.frontier, NEVER_UNITS)
        self.last_seq = np.append(self.last_seq, NEVER_UNITS)
        self.serial = np.append(self.serial, self.next_serial)
        self.next_serial += 1

    def remove(self, row: int) -> None:
        """Take one row out."""
        del self.names[row]
        for column in COLUMNS:
            setattr(self, column, np.delete(getattr(self, column), row))

    def joined(self, frontier: int) -> Mask:
        """Whose stables count, now that the output is at this frontier."""
        return self.guarantee <= frontier

    def lagging(self, lag: int) -> Ints:
        """The frontiers less this lag; FOREVER and NEVER stay as they are."""
        at = self.frontier
        return np.where(at == FOREVER_UNITS, at, np.maximum(at, NEVER_UNITS + lag) - lag)

    def leader(self, frontier: int, *, lag: int = 0) -> int | None:
        """The joined replica whose frontier, less a lag, is furthest beyond this one.

        The first of equals; None if nobody is.
        """
        at = self.lagging(lag) if lag else self.frontier
        counted = np.where(self.joined(frontier), at, NEVER_UNITS)
        if len(counted) == 0 or counted.max() <= frontier:
            return None
        return int(counted.argmax())

    @property
    def slowest(self) -> int:
        """The smallest frontier; nobody is never slow."""
        return int(self.frontier.min(initial=FOREVER_UNITS))

    def status(self, frontier: int) -> tuple[ReplicaStatus, ...]:
        """All rows, to show."""
        joined = self.joined(frontier).tolist()
        rows = zip(
            self.names,
            self.attachment.tolist(),
            self.guarantee.tolist(),
            self.frontier.tolist(),
            joined,
            strict=True,
        )
        return tuple(
            ReplicaStatus(name, number, None if t == NEVER_UNITS else t, at, is_joined)
            for name, number, t, at, is_joined in rows
        )
