"""Sessions over batches: per key, the maximal runs of `[start, start + gap)` of its rows.

Each row is one event.  Its session is its lifetime, and its last column `window`, a struct of
start and end, as for windows of a grid.  A row joins the session of its key that ends where it
starts, or later; where rows are more than `gap` apart, a session ends.  Ends of the input do
not matter.  At the end of every step the history is `model.operators.session` of the input's.

A row that changes a session (makes it longer, joins two, or is removed and splits it) changes
the payload of all its rows: they are removed and inserted again.  So events are only removed,
never adjusted, and the stable is held at the start of the oldest session that is open
(`model.operators.session_stable`): once the input has `stable(t)`, a session that ends before t
is closed.

`final` of a step are the rows of the sessions that it closes.  It does not wait for older
sessions of other keys, as the frontier of the output does.

Remembered: the rows of open sessions.  Costs: the rows of the keys that a step touches, and of
the sessions that it closes.

Papers: none; these are the sessions of Spark's `session_window`.  The reference is
`anabranch.operators.reference.session`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, Batch, Ints, Mask
from anabranch.batch.buffers import to_arrow
from anabranch.batch.events import inserts, nothing
from anabranch.batch.index import HIGH, LOW
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import grown
from anabranch.errors import SchemaError, StateError, UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.by_key.rows_by_key import Listed, RowsByKeyState, Touched
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.grid_windows import WINDOW, window_type
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.groups import COUNT, distinct, is_frozen
from anabranch.operators.stateless import require_room
from anabranch.operators.trusting import written
from anabranch.operators.unary import Changed

_NONE_OPEN: Final = int(FOREVER_UNITS)


@dataclass(frozen=True)
class SessionOperator:
    """Put every row into its session: of equal `by`, rows at most `gap` apart."""

    schema: ElementSchema
    gap: int
    by: tuple[str, ...]
    name: str = "session"
    reports_final: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by", tuple(self.by))
        names = self.schema.payload.names
        if self.gap < 1:
            message = f"{self.name}: gap is {self.gap}; it must be greater than 0"
            raise UsageError(message)
        if not self.by:
            message = (
                f"{self.name}: by names no column, and sessions are those of a key; name one "
                "or several columns, such as by='user'"
            )
            raise UsageError(message)
        for key in self.by:
            if key not in names:
                message = (
                    f"{self.name}: there is no column '{key}' for by; the input has {names}"
                )
                raise SchemaError(message)
        if WINDOW in (name.lower() for name in names):
            message = (
                f"{self.name}: the input has a column '{WINDOW}' already, and sessions need "
                "that name; rename it with select"
            )
            raise SchemaError(message)

    @property
    def route(self) -> Route:
        """All rows of a key are in one lane."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The key."""
        return self.by

    @property
    def output(self) -> ElementSchema:
        """Elements with one more column."""
        column = pa.field(WINDOW, window_type(self.schema.time))
        payload = self.schema.payload.append(column)
        return replace(self.schema, payload=payload, has_seq=False, has_replica=False)

    @property
    def holds_stables(self) -> bool:
        """The frontier depends on which sessions a lane has open: lanes differ."""
        return True

    @property
    def output_final_at_start(self) -> bool:
        """A session is lifetime and part of the payload of a row, so ends do not change."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """None: two equal rows of a session are one identity."""
        del inputs
        return StreamProperties()

    def reporting_final(self) -> "SessionOperator":
        """The same operator with the rows of closed sessions in its results."""
        return replace(self, reports_final=True)

    def empty(self) -> "SessionState":
        """Nothing has happened."""
        return SessionState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "SessionState":
        """The state that was saved; StateError if of another kind, version, schema or gap."""
        return self.empty().restore(parts)


class InSessions(NamedTuple):
    """Rows by key and start, the number of equal ones, and the session of each."""

    listed: Listed
    copies: Ints
    start: Ints
    end: Ints

    def take(self, rows: Ints | Mask) -> "InSessions":
        """Some of them."""
        return InSessions(
            self.listed.take(rows), self.copies[rows], self.start[rows], self.end[rows]
        )


class SessionState(RowsByKeyState):
    """The rows of open sessions, by key."""

    KIND = StateKind("anabranch session", version=1)

    def __init__(self, operator: SessionOperator) -> None:
        super().__init__(operator, operator.by)
        self.spec = operator
        self._first: Ints = np.empty(0, np.int64)
        self._oldest = _NONE_OPEN
        self._visits = 0

    def passed(self, received: int) -> int:
        """The start of the oldest open session, or the frontier of the input."""
        return min(received, self._oldest)

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change of all sessions, and those that are closed now."""
        batch, frontier = batches[INPUT], self.received[INPUT]
        require_room(self.spec.name, self.spec.gap, batch.start)
        self._visits = 0
        output = self.apply(batch)
        final = self._close(frontier) if frontier > before else nothing(self.output)
        shown = final if self.spec.reports_final else None
        return Changed(output, shown, {"visits": self._visits})

    def differs(self, had: Ints, has: Ints) -> Mask:
        """Equal rows count as often as they are there."""
        differs: Mask = had != has
        return differs

    def compare(self, touched: Touched) -> Batch:
        """Update the lists of the keys of these rows; what changes on the output."""
        changed = touched.listed
        keys = distinct(changed.key)
        held = self.read(keys)
        stays = ~np.isin(held.row, changed.row[touched.has == 0])
        after = held.take(stays).with_more(changed.take(touched.had == 0))
        old, new = self._sessions(held), self._sessions(after)
        at = np.minimum(np.searchsorted(changed.row, after.row), max(len(changed.row) - 1, 0))
        is_changed = changed.row[at] == after.row
        new.copies[is_changed] = touched.has[at[is_changed]]
        self._visits += len(held.row) + len(after.row)
        output = self._difference(old, new)
        self.write(keys, after)
        return output

    def _sessions(self, listed: Listed) -> InSessions:
        """The sessions of these rows: all rows of some keys."""
        key, start, row = listed
        begins = np.ones(len(key), np.bool_)
        begins[1:] = (key[1:] != key[:-1]) | (start[1:] > start[:-1] + self.spec.gap)
        first = np.flatnonzero(begins)
        number = np.cumsum(begins) - 1
        last = np.append(first[1:], len(key))[: len(first)] - 1
        copies = self.rows.table.rows[row, COUNT].copy()
        return InSessions(
            listed, copies, start[first][number], start[last][number] + self.spec.gap
        )

    def _difference(self, old: InSessions, new: InSessions) -> Batch:
        """Removals and inserts that lead from one to the other."""
        order = np.argsort(new.listed.row)
        at = np.searchsorted(new.listed.row, old.listed.row, sorter=order)
        at = order[np.minimum(at, len(order) - 1)] if len(order) else at
        same = np.zeros(len(old.start), np.bool_)
        if len(order):
            same = new.listed.row[at] == old.listed.row
            for was, now in zip(old[1:], new[1:], strict=True):
                same &= was == now[at]
        is_news = np.ones(len(new.start), np.bool_)
        is_news[at[same]] = False
        gone, come = self._net(old.take(~same), new.take(is_news))
        payload = self.rows.payload(np.concatenate([gone.listed.row, come.listed.row]))
        start = np.concatenate([gone.start, come.start])
        end = np.concatenate([gone.end, come.end])
        return written(
            self.output,
            (gone.start, gone.end, gone.start),
            (come.start, come.end),
            self._with_window(payload, start, end),
        )

    def _net(self, old: InSessions, new: InSessions) -> tuple[InSessions, InSessions]:
        """What is gone and what is new, a row for each event, in an order of its own.

        Rows of one payload and session are equal whatever their starts are: one that goes and
        another that comes do not show.
        """
        every = InSessions(
            Listed(*map(np.concatenate, zip(old.listed, new.listed, strict=True))),
            np.concatenate([-old.copies, new.copies]),
            np.concatenate([old.start, new.start]),
            np.concatenate([old.end, new.end]),
        )
        names = self.rows.table.rows[every.listed.row][:, [HIGH, LOW]]
        order = np.lexsort((every.end, every.start, names[:, 1], names[:, 0]))
        which = np.stack([names[:, 0], names[:, 1], every.start, every.end], axis=1)[order]
        first = np.flatnonzero(
            np.append(True, (which[1:] != which[:-1]).any(axis=1))[: len(order)]
        )
        if not len(first):
            return every, every
        more = np.add.reduceat(every.copies[order], first)
        one = every.take(order[first])
        places = np.arange(len(first))
        return (
            one.take(np.repeat(places, np.maximum(-more, 0))),
            one.take(np.repeat(places, np.maximum(more, 0))),
        )

    def _with_window(self, payload: pa.Table, start: Ints, end: Ints) -> pa.Table:
        """The rows with their sessions."""
        time = self.plain.time.arrow
        sides = [to_arrow(start, time), to_arrow(end, time)]
        column = pa.StructArray.from_arrays(sides, names=["start", "end"])
        return pa.Table.from_arrays([*payload.columns, column], schema=self.output.payload)

    def _close(self, frontier: int) -> Batch:
        """Forget the sessions that end before the frontier; their events, as inserts."""
        due = self.lists.pop_due(frontier)
        held = self.read(due)
        self._visits += len(held.row)
        found = self._sessions(held)
        is_closed = is_frozen(found.end, frontier)
        closed = found.take(is_closed)
        final = nothing(self.output)
        if self.spec.reports_final:
            closed = closed.take(np.repeat(np.arange(len(closed.start)), closed.copies))
            order = self.rows.order(closed.listed.row, closed.start, closed.end)
            closed = closed.take(order)
            payload = self.rows.payload(closed.listed.row)
            payload = self._with_window(payload, closed.start, closed.end)
            final = inserts(self.output, closed.start, closed.end, payload)
        self.drop(due, held, ~is_closed)
        return final

    def write(self, keys: Ints, listed: Listed) -> None:
        """Let these keys have these lists, and note the oldest start."""
        super().write(keys, listed)
        found, first = np.unique(listed.key, return_index=True)
        size = len(self._first)
        self._first = grown(self._first, int(keys.max(initial=-1)) + 1)
        self._first[size:] = _NONE_OPEN
        had_oldest = bool((self._first[keys] == self._oldest).any())
        self._first[keys] = _NONE_OPEN
        self._first[found] = listed.start[first]
        oldest = int(listed.start[first].min(initial=_NONE_OPEN))
        if oldest <= self._oldest:
            self._oldest = oldest
        elif had_oldest:
            # The oldest session is gone: one look at a number for each key.
            self._oldest = int(self._first.min())

    def due_of(self, listed: Listed) -> tuple[Ints, Ints]:
        """The first row of a key can go when the frontier has passed the end of its session."""
        keys, first = np.unique(listed.key, return_index=True)
        return keys, self._sessions(listed).end[first]

    @property
    def settings(self) -> Mapping[str, str]:
        """The gap and the key."""
        return {"sessions": f"gap {self.spec.gap} by {', '.join(self.spec.by)}"}

    def require_settings(self, header: Mapping[str, str]) -> None:
        """Refuse the rows of other sessions: some of theirs are forgotten."""
        if header["sessions"] == self.settings["sessions"]:
            return
        message = (
            f"{self.spec.name}: the state has sessions of {header['sessions']}, the query has "
            f"{self.settings['sessions']}; those of a running query cannot change; start with "
            "a new checkpoint and output folder"
        )
        raise StateError(message)

    def check(self) -> None:
        """Assert every invariant."""
        super().check()
        found = self._sessions(self.read(self.lists.table.living()))
        frontier = self.received[INPUT]
        closed = is_frozen(found.end, frontier)
        assert not closed.any(), f"closed at {frontier}, but remembered: {found.take(closed)}"
        oldest = int(found.start.min(initial=_NONE_OPEN))
        assert self._oldest == oldest, f"oldest start {self._oldest} != {oldest}"
