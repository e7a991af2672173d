"""The replicas of a merge: which are attached, their frontiers, and whose stables count.

One row per attachment, in the order of attaching; a name is attached at most once.  `serial`
numbers attachments of all names for ever: parts of a state name them by it.  A guarantee
of NEVER_UNITS means: complete from the beginning.  While a replica joins, its frontier is the
stable that waits for it to be joined.

If no replica is joined any more, the output cannot progress: that is an `alarm`.  `promote`
lets the one with the smallest guarantee be joined nevertheless; `promoted` is then the
guarantee that it had (else NEVER_UNITS), and `stretches` has the times at which the output may
be wrong for that.

Where replicas may have gaps, the output waits for all joined replicas (`reach`), but not for
one that was passed over: `passed_at` is where that one was (else FOREVER_UNITS).

Papers: LMerge V-B, with errata L8 (a new attachment starts from nothing), L9 (joining) and D5.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints, Mask
from anabranch.errors import StateError, UsageError
from anabranch.operators.contract import InputStatus
from anabranch.operators.reference.membership import Alarm, Stretch
from anabranch.operators.state.codec import column_of, to_table

COLUMNS: Final = (
    "attachment",
    "guarantee",
    "frontier",
    "last_seq",
    "serial",
    "promoted",
    "passed_at",
)
"""The columns of `Members`, in order."""

_COMMON: Final = tuple(name for name in COLUMNS if name != "last_seq")
"""Those that are the same in every lane."""


@dataclass(eq=False)
class Members:
    """Control columns, one row per replica."""

    names: list[str]
    attachment: Ints
    guarantee: Ints
    frontier: Ints
    last_seq: Ints
    serial: Ints
    promoted: Ints
    passed_at: Ints
    next_serial: int = 0
    had_joined: bool = False
    stretches: list[Stretch] = field(default_factory=list)

    @classmethod
    def none(cls) -> "Members":
        """Nobody is attached."""
        empty = np.empty(0, np.int64)
        return cls([], empty, empty, empty, empty, empty, empty, empty)

    def __len__(self) -> int:
        return len(self.names)

    def find(self, name: str) -> int | None:
        """The row of this replica, or None."""
        return self.names.index(name) if name in self.names else None

    def row_of(self, name: str, what: str) -> int:
        """The row of a replica; `what` names the operation in the error."""
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
        self.promoted = np.append(self.promoted, NEVER_UNITS)
        self.passed_at = np.append(self.passed_at, FOREVER_UNITS)
        self.next_serial += 1

    def set_guarantee(self, row: int, guarantee: int | None) -> None:
        """Replace the guarantee of a replica, promoted or not before."""
        self.guarantee[row] = NEVER_UNITS if guarantee is None else guarantee
        self.promoted[row] = NEVER_UNITS

    def remove(self, row: int) -> None:
        """Take one row out."""
        del self.names[row]
        for column in COLUMNS:
            setattr(self, column, np.delete(getattr(self, column), row))

    def joined(self, frontier: int) -> Mask:
        """Whose stables count, now that the output is at this frontier."""
        return self.guarantee <= frontier

    def trusted(self, frontier: int) -> Mask:
        """Who is joined and was not promoted: what waits for such a one has been decided."""
        trusted: Mask = self.joined(frontier) & (self.promoted == NEVER_UNITS)
        return trusted

    def alarm(self, frontier: int) -> Alarm | None:
        """The joining replicas, if some are attached and none is joined (D5)."""
        if not len(self) or self.joined(frontier).any():
            return None
        first = int(self.guarantee.argmin())
        return Alarm(frontier, self.names[first], int(self.guarantee[first]))

    def succeed(self, frontier: int) -> None:
        """Promote the replica with the smallest guarantee, if nobody else is left."""
        alarm = self.alarm(frontier)
        if alarm is not None and self.had_joined:
            self.promote(self.names.index(alarm.replica), frontier)
        self.had_joined = self.had_joined or bool(self.joined(frontier).any())

    def promote(self, row: int, frontier: int) -> None:
        """Let this replica be joined early; one that is joined already stays as it is."""
        if self.guarantee[row] > frontier:
            guarantee = int(self.guarantee[row])
            self.stretches.append(Stretch(frontier, guarantee, self.names[row]))
            self.promoted[row], self.guarantee[row] = guarantee, NEVER_UNITS

    def lagging(self, lag: int) -> Ints:
        """The frontiers less this lag; FOREVER and NEVER stay as they are."""
        return lagged(self.frontier, lag)

    def leader(self, frontier: int, *, lag: int = 0) -> int | None:
        """The joined replica whose frontier, less a lag, is furthest beyond this one.

        The first of equals; None if nobody is.
        """
        at = self.lagging(lag) if lag else self.frontier
        counted = np.where(self.joined(frontier), at, NEVER_UNITS)
        if len(counted) == 0 or counted.max() <= frontier:
            return None
        return int(counted.argmax())

    def pass_over(self, row: int) -> None:
        """Do not wait for this replica until it has caught up; one that has ended has."""
        self.passed_at[row] = self.frontier[row]

    def await_again(self, row: int) -> None:
        """Wait for this replica from now on, wherever it is."""
        self.passed_at[row] = FOREVER_UNITS

    def binding(self, inferred: Collection[str]) -> Ints:
        """The frontiers that elements must keep to: those that are inferred bind nobody."""
        if not inferred:
            return self.frontier
        is_free = np.array([name in inferred for name in self.names], np.bool_)
        return np.where(is_free, NEVER_UNITS, self.frontier)

    def catch_up(self, frontier: int) -> None:
        """Wait again for who has moved since it was passed over, and is not behind."""
        is_back = (self.frontier > self.passed_at) & (self.frontier >= frontier)
        self.passed_at[is_back & self.joined(frontier)] = FOREVER_UNITS

    def awaited(self, frontier: int) -> Mask:
        """The replicas that the output waits for, with gaps."""
        awaited: Mask = self.joined(frontier) & (self.passed_at == FOREVER_UNITS)
        return awaited

    def reach(self, frontier: int, *, wait: int | None) -> int:
        """How far the output may be final, if any joined replica may have what others lack.

        The reference is `reference.membership.Membership.reach`.
        """
        awaited = self.frontier[self.awaited(frontier)]
        least = int(awaited.min()) if len(awaited) else int(NEVER_UNITS)
        if wait is None:
            return least
        has_not_ended = self.joined(frontier) & (self.frontier != FOREVER_UNITS)
        furthest = int(self.frontier[has_not_ended].max(initial=NEVER_UNITS))
        return max(least, furthest - wait)

    def furthest_first(self, frontier: int) -> Ints:
        """The joined replicas, the most advanced first; of equals the one attached first."""
        rows: Ints = np.flatnonzero(self.joined(frontier))
        return rows[np.argsort(~self.frontier[rows], kind="stable")]

    @property
    def slowest(self) -> int:
        """The smallest frontier; nobody is never slow."""
        return int(self.frontier.min(initial=FOREVER_UNITS))

    def status(self, frontier: int) -> tuple[InputStatus, ...]:
        """All rows, to show."""
        joined = self.joined(frontier).tolist()
        rows = zip(
            self.names,
            self.attachment.tolist(),
            self.guarantee.tolist(),
            self.frontier.tolist(),
            joined,
            (self.passed_at != FOREVER_UNITS).tolist(),
            strict=True,
        )
        return tuple(
            InputStatus(name, number, None if t == NEVER_UNITS else t, *more)
            for name, number, t, *more in rows
        )

    def table(self, header: Mapping[str, str], **more: NDArray[Any]) -> pa.Table:
        """The first table of a state: a row each, `more` columns, and the state's header."""
        columns = {name: getattr(self, name) for name in COLUMNS} | more
        common = {
            "next_serial": str(self.next_serial),
            "had_joined": str(int(self.had_joined)),
            "stretches": json.dumps(self.stretches),
        }
        table = to_table(columns).append_column("name", pa.array(self.names, pa.string()))
        return table.replace_schema_metadata(common | dict(header))

    @classmethod
    def read(cls, control: pa.Table, header: Mapping[str, str]) -> "Members":
        """The replicas, as `table` wrote them."""
        # A step changes them in place; a view of the bytes may not be changed.
        columns = {name: column_of(control, name).copy() for name in COLUMNS}
        return cls(
            control.column("name").to_pylist(),
            **columns,
            next_serial=int(header["next_serial"]),
            had_joined=header["had_joined"] == "1",
            stretches=[Stretch(*one) for one in json.loads(header["stretches"])],
        )


def lagged(times: Ints, lag: int) -> Ints:
    """These times less a lag; FOREVER and NEVER stay as they are."""
    return np.where(times == FOREVER_UNITS, times, np.maximum(times, NEVER_UNITS + lag) - lag)


def require_agreement(lanes: Sequence[tuple[Members, int]]) -> None:
    """Refuse members, with the output's frontier, that are not those of one run's lanes."""
    known = [
        (frontier, members.names, *(getattr(members, one).tolist() for one in _COMMON))
        for members, frontier in lanes
    ]
    if any(one != known[0] for one in known):
        message = (
            f"merge: lanes that should know the same replicas and frontier differ: {known}; "
            "the checkpoint is damaged; restore it, or start with a new checkpoint and output"
        )
        raise StateError(message)
