"""Chains of adjusts by identity: what is on the output, what waits, what was late.

Elements are followed in their order, after the list of their identity (`chain_kernel`).  Where
nothing waits they pass as they came; else the net change of the identity is emitted.  Lists are
rows in `state.groups`; an identity is due at the least of its times, and `broken` has the least
sync time of each in which something waits.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, Batch, Codes, Ints, Mask
from anabranch.batch.index import START
from anabranch.batch.kernel import frozen
from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Reason, Resolved
from anabranch.operators.runs.normalise_runs import Runs, changes
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind
from anabranch.operators.state.due_queue import DueQueue
from anabranch.operators.state.events import FLAGS, LIVE
from anabranch.operators.state.groups import Groups, distinct
from anabranch.operators.trusting import written
from anabranch.operators.waiting.chain_kernel import (
    AT,
    GROUP,
    KIND,
    LATE,
    NUMBER,
    TAKEN,
    TO,
    VISIBLE,
    WAITING,
    WIDTH,
    mend,
)

_COLUMNS = ("start", "at", "to", "kind", "number")
# Entries of a queue that are stale are dropped when they are more than this, and than the rest.
_SMALL = 1_024


OF_CODE: Final[Codes] = np.array(
    [
        Reason.FIRST.code,
        Reason.BEHIND_FORCED.code,
        Reason.OF_FORGOTTEN.code,
        Reason.BROKEN_CHAIN.code,
        Reason.APPLIED.code,
    ],
    np.int8,
)
"""The reasons of the kernel's codes."""


class Followed(NamedTuple):
    """What became of the elements of a step, as codes of the kernel.

    `mixed`: something waited in the element's identity; `net` is what those identities emit,
    and `resolved` are adjusts of earlier steps that no longer wait.
    """

    codes: Codes
    mixed: Mask
    net: Batch
    resolved: list[Resolved]
    looks: int


class _Mended(NamedTuple):
    """The lists after the kernel, what waited and no longer does, and what was mixed."""

    rows: Ints
    fired: Ints
    mixed: Mask
    looks: int


def _mend(items: Ints, is_adjust: Mask, codes: Codes, held: Ints, frontier: int) -> _Mended:
    """Follow items after what is held of their identities; both are sorted by identity."""
    rows = np.empty((WIDTH, held.shape[1] + 2 * items.shape[1] + 1), np.int64)
    fired = np.empty((2, held.shape[1]), np.int64)
    mixed = np.empty(items.shape[1], np.bool_)
    count, gone, looks = mend(
        frozen(items), frozen(is_adjust), codes, frozen(held), frontier, rows, fired, mixed
    )
    fired = fired[:, : int(gone)]
    fired = fired[:, np.argsort(fired[0])]
    return _Mended(rows[:, : int(count)], fired, mixed, int(looks))


def _waiting(rows: Ints) -> int:
    return int(np.count_nonzero(rows[KIND] == WAITING))


class Chains:
    """The lists of one lane; `pending` is how many adjusts wait."""

    def __init__(self, schema: ElementSchema) -> None:
        self.schema = schema
        self.groups = Groups(schema.payload, by_start=True, columns=_COLUMNS)
        self.broken = DueQueue()
        self.pending = 0
        self.mark = 0

    def __repr__(self) -> str:
        return f"Chains({self.pending} pending, {self.groups!r})"

    def __len__(self) -> int:
        return len(self.groups)

    def follow(
        self, data: Batch, number: Ints, late: Mask, shown: int, names: Sequence[str]
    ) -> Followed:
        """Follow elements, of which some are late by their times; `number` is their input."""
        found = self.groups.find(data, np.ones(len(data), np.bool_), self.mark)
        order = np.argsort(found, kind="stable")
        touched, held = distinct(found), self._read(distinct(found))
        columns = found, data.start, data.old_end, data.end, number
        items = np.stack([column[order] for column in columns])
        codes = np.where(late[order], LATE, TAKEN).astype(np.int8)
        done = _mend(items, data.kind[order] == ADJUST, codes, held, shown)
        net = self._net(distinct(items[0][done.mixed]), held, done.rows)
        resolved = self._resolved(held[:, done.fired[0]], done.fired[1], names)
        self._write(touched, done.rows)
        self.pending += _waiting(done.rows) - _waiting(held)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return Followed(codes[back], done.mixed[back], net, resolved, done.looks)

    def _read(self, groups: Ints) -> Ints:
        """The rows of these identities, as the kernel has them."""
        group, rows = self.groups.read(groups)
        held = np.zeros((WIDTH, len(group)), np.int64)
        held[GROUP] = group
        held[AT], held[TO], held[KIND], held[NUMBER] = rows[:, 1:].T
        return held

    def _write(self, groups: Ints, rows: Ints) -> None:
        """Let these identities have these rows, which are sorted by identity."""
        start = self.groups.table.rows[rows[GROUP], START]
        saved = np.stack([start, rows[AT], rows[TO], rows[KIND], rows[NUMBER]], axis=1)
        due = np.full(len(groups), FOREVER_UNITS, np.int64)
        waits = rows[KIND] == WAITING
        times = np.where(waits, np.minimum(rows[AT], rows[TO]), rows[AT])
        first = np.flatnonzero(np.diff(rows[GROUP], prepend=-1))
        if len(first):
            at = np.searchsorted(groups, rows[GROUP][first])
            due[at] = np.minimum.reduceat(times, first)
        self.broken.push(times[waits], rows[GROUP][waits])
        self.groups.write(groups, rows[GROUP].copy(), saved, due, self.mark)
        if len(self.broken) > 2 * self.pending + _SMALL:
            self._queue()

    def _queue(self) -> None:
        """Only what waits now."""
        held = self._read(self.groups.table.living())
        held = held[:, held[KIND] == WAITING]
        self.broken.rebuild(np.minimum(held[AT], held[TO]), held[GROUP])

    def _net(self, groups: Ints, before: Ints, after: Ints) -> Batch:
        """The net change of what is on the output of these identities."""
        found = changes(self._runs(groups, before), self._runs(groups, after))
        adjusted, inserted = found.adjusted, found.inserted
        group = np.concatenate([adjusted.group, inserted.group])
        return written(
            self.schema,
            (adjusted.start, found.old_end, adjusted.end),
            (inserted.start, inserted.end),
            self.groups.payload(group),
        )

    def _runs(self, groups: Ints, rows: Ints) -> Runs:
        rows = rows[:, (rows[KIND] == VISIBLE) & np.isin(rows[GROUP], groups)]
        rows = rows[:, np.lexsort((-rows[AT], rows[GROUP]))]
        return Runs(rows[GROUP], self.groups.table.rows[rows[GROUP], START], rows[AT])

    def _resolved(self, rows: Ints, codes: Ints, names: Sequence[str]) -> list[Resolved]:
        """Adjusts that waited, by their inputs, in the order of their arrival per identity."""
        made = []
        for number, name in enumerate(names):
            mine = rows[:, rows[NUMBER] == number]
            if not mine.shape[1]:
                continue
            batch = Batch(
                self.schema,
                np.full(mine.shape[1], ADJUST, np.int8),
                self.groups.table.rows[mine[GROUP], START],
                mine[TO].copy(),
                mine[AT].copy(),
                self.groups.payload(mine[GROUP]),
            )
            reasons = OF_CODE[codes[rows[NUMBER] == number]]
            made.append(Resolved(name, batch, reasons, Reason.BROKEN_CHAIN))
        return made

    def force(self, forced: int, names: Sequence[str]) -> list[Resolved]:
        """What waits behind the forced stable is late; ends that are behind it are dropped."""
        due = self.groups.pop_due(forced)
        rows = self._read(due)
        waits = rows[KIND] == WAITING
        is_late = waits & (np.minimum(rows[AT], rows[TO]) < forced)
        held, late = rows[:, ~is_late & (waits | (rows[AT] >= forced))], rows[:, is_late]
        if not late.shape[1]:
            self._write(due, held)
            return []
        here = np.isin(held[GROUP], late[GROUP])
        start = self.groups.table.rows[late[GROUP], START]
        items = np.stack([late[GROUP], start, late[AT], late[TO], late[NUMBER]])
        codes = np.full(late.shape[1], LATE, np.int8)
        mine = held[:, here]
        done = _mend(items, np.ones(len(codes), np.bool_), codes, mine, forced)
        resolved = self._resolved(late, codes.astype(np.int64), names)
        resolved += self._resolved(mine[:, done.fired[0]], done.fired[1], names)
        left = np.concatenate([held[:, ~here], done.rows], axis=1)
        self.pending += _waiting(left) - _waiting(rows)
        self._write(due, left[:, np.argsort(left[GROUP], kind="stable")])
        return resolved

    def missing(self, before: int) -> tuple[int, int]:
        """The least sync time of what waits, if it is before a time; identities looked at."""
        if not self.pending:
            return FOREVER_UNITS, 0
        ids, rows = distinct(self.broken.pop_before(before)), self.groups.table.rows
        held = self._read(ids[rows[ids, FLAGS] & LIVE != 0])
        held = held[:, held[KIND] == WAITING]
        times = np.minimum(held[AT], held[TO])
        self.broken.push(times, held[GROUP])
        return int(times.min(initial=FOREVER_UNITS)), len(ids)

    def forget(self, frontier: int) -> int:
        """Drop the ends before the frontier; how many identities had some."""
        due = self.groups.pop_due(frontier)
        rows = self._read(due)
        is_open = (rows[AT] >= frontier) & (frontier < FOREVER_UNITS)
        self._write(due, rows[:, is_open | (rows[KIND] == WAITING)])
        return len(due)

    def parts(
        self,
        kind: StateKind,
        since: int | None,
        facts: Mapping[str, int | str],
        more: Sequence[pa.Table],
    ) -> Saved:
        """What changed after the mark `since`, or all."""
        return self.groups.parts(
            kind, self.schema, since, mark=self.mark, facts=facts, more=more
        )

    def restore(
        self, kind: StateKind, parts: Mapping[str, bytes], *, more: int
    ) -> tuple[dict[str, str], Sequence[pa.Table]]:
        """Fill empty lists with what was saved; the header, and the tables of every save."""
        header, tables = self.groups.restore_all(kind, self.schema, parts, more=more)
        self.mark = int(header["mark"])
        ids = self.groups.table.living()
        rows = self._read(ids)
        waits = rows[KIND] == WAITING
        times = np.where(waits, np.minimum(rows[AT], rows[TO]), rows[AT])
        first = np.flatnonzero(np.diff(rows[GROUP], prepend=-1))
        due = np.minimum.reduceat(times, first) if len(first) else times
        self.groups.schedule(ids, due)
        self.broken.push(times[waits], rows[GROUP][waits])
        self.pending = int(waits.sum())
        return header, tables

    def check(self) -> None:
        """Assert every invariant."""
        self.groups.check()
        self.broken.check()
        rows = self._read(self.groups.table.living())
        waits = rows[:, rows[KIND] == WAITING]
        assert waits.shape[1] == self.pending, f"{waits.shape[1]} wait, {self.pending} counted"
        seen = rows[:, rows[KIND] == VISIBLE]
        ends = set(zip(seen[GROUP].tolist(), seen[AT].tolist(), strict=True))
        for group, at in zip(waits[GROUP].tolist(), waits[AT].tolist(), strict=True):
            assert (group, at) not in ends, f"an adjust of {at} waits, and the output has it"
