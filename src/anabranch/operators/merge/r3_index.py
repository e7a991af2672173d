"""Which event an element is about: exact, found by hash and decided by value.

Events are found by (128-bit hash of the payload, start, salt) in an open-addressing table that
is built for the step.  Every hit is then compared by value.  Elements that hit an event with
another payload (a true collision) look again with the next salt; so the events that share a
hash and a start have the salts 0, 1, 2, ... without holes, and `resalt` keeps it so.

Papers: LMerge IV-D, the first tier of in2t (SameVsPayload).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.equality import equal_rows
from anabranch.batch.hashing import hash_payload
from anabranch.operators.merge.r3_loop import NOBODY

Hashes = NDArray[np.uint64]

_GOLDEN: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(eq=False)
class Keys:
    """How events are found: one row per event."""

    high: Hashes
    low: Hashes
    start: Ints
    salt: Ints

    @classmethod
    def none(cls) -> "Keys":
        """No events."""
        hashes, numbers = np.empty(0, np.uint64), np.empty(0, np.int64)
        return cls(hashes, hashes, numbers, numbers)

    def __len__(self) -> int:
        return len(self.start)

    def keep(self, rows: Mask) -> "Keys":
        """Only these events."""
        return Keys(self.high[rows], self.low[rows], self.start[rows], self.salt[rows])

    def widen(self, more: int) -> "Keys":
        """The same, with room for more."""
        hashes, numbers = np.empty(more, np.uint64), np.empty(more, np.int64)
        return Keys(
            np.append(self.high, hashes),
            np.append(self.low, hashes),
            np.append(self.start, numbers),
            np.append(self.salt, numbers),
        )

    def columns(self) -> tuple[Hashes, Hashes, Ints, Ints]:
        """The columns, as kernels take them."""
        return self.high, self.low, self.start, self.salt

    def homes(self, slots: int) -> Ints:
        """The slot where the search for each key begins; `slots` is a power of two."""
        mixed = (self.low ^ (self.start.view(np.uint64) * _GOLDEN)) + (
            self.salt.view(np.uint64) * _GOLDEN
        )
        mixed ^= mixed >> np.uint64(32)
        homes: Ints = (mixed & np.uint64(slots - 1)).astype(np.int64)
        return homes


@dataclass(frozen=True, eq=False)
class Located:
    """The event of each asked row (or NOBODY), and the rows that brought a new event."""

    node: Ints
    keys: Keys
    first: Ints


def hash_rows(payload: pa.Table, count: int) -> tuple[Hashes, Hashes]:
    """The 128-bit hash of each payload, in two halves; without columns there is one value."""
    if payload.num_columns == 0:
        return np.zeros(count, np.uint64), np.zeros(count, np.uint64)
    return hash_payload(payload)


def locate(
    known: Keys,
    held: tuple[pa.Table, Ints],
    asked: Keys,
    payload: pa.Table,
    rows: Ints,
    may_add: Mask,
) -> Located:
    """Find, or where `may_add` add, the event of each of these rows of `asked` (all salts 0).

    `held` is where the payloads of the known events are: a table, and the row of each.
    """
    count = used = len(known)
    keys = known.widen(int(may_add[rows].sum()))
    first = np.empty(len(keys) - count, np.int64)
    slots = np.full(_capacity(len(keys)), NOBODY, np.int64)
    _fill(slots, known.homes(len(slots)))
    node = np.full(len(asked), NOBODY, np.int64)
    while len(rows):
        table = (slots, keys.columns(), count, first)
        used = _probe(
            table, used, asked.columns(), asked.homes(len(slots)), rows, may_add, node
        )
        rows = rows[_differ(node, rows, held, payload, count, first)]
        asked.salt[rows] += 1
    return Located(node, keys.keep(np.arange(len(keys)) < used), first[: used - count])


def resalt(keys: Keys) -> None:
    """Close the holes that events which left made among the salts of a shared hash."""
    if not keys.salt.any():
        return
    order = np.lexsort((keys.salt, keys.start, keys.low, keys.high))
    high, low, start = keys.high[order], keys.low[order], keys.start[order]
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1]) & (start[1:] == start[:-1])
    position = np.arange(len(order))
    group_start = np.maximum.accumulate(np.where(np.append(False, same), 0, position))
    keys.salt[order] = position - group_start


def _capacity(keys: int) -> int:
    """A power of two that leaves half of the slots free."""
    return 1 << max(4, (2 * keys).bit_length())


def _differ(
    node: Ints,
    rows: Ints,
    held: tuple[pa.Table, Ints],
    payload: pa.Table,
    count: int,
    first: Ints,
) -> Mask:
    """Which of these rows have another payload than the event they hit."""
    differ = np.zeros(len(rows), np.bool_)
    if payload.num_columns == 0:
        return differ
    hit = node[rows]
    table, row_of = held
    old = np.flatnonzero((hit >= 0) & (hit < count))
    differ[old] = ~equal_rows(payload, rows[old], table, row_of[hit[old]])
    new = np.flatnonzero(hit >= count)
    new = new[first[hit[new] - count] != rows[new]]
    differ[new] = ~equal_rows(payload, rows[new], payload, first[hit[new] - count])
    return differ


@njit(cache=True)
def _fill(slots, homes):  # type: ignore[no-untyped-def]
    for node in range(len(homes)):
        at = homes[node]
        while slots[at] != NOBODY:
            at = (at + 1) & (len(slots) - 1)
        slots[at] = node


@njit(cache=True)
def _probe(table, used, asked, homes, rows, may_add, node):  # type: ignore[no-untyped-def]
    """Set `node` of each row; returns how many events there are now."""
    slots, (high, low, start, salt), known, first = table
    asked_high, asked_low, asked_start, asked_salt = asked
    for i in rows:
        at = homes[i]
        n = slots[at]
        while n != NOBODY and not (
            low[n] == asked_low[i]
            and high[n] == asked_high[i]
            and start[n] == asked_start[i]
            and salt[n] == asked_salt[i]
        ):
            at = (at + 1) & (len(slots) - 1)
            n = slots[at]
        if n == NOBODY and may_add[i]:
            n = used
            high[n], low[n] = asked_high[i], asked_low[i]
            start[n], salt[n] = asked_start[i], asked_salt[i]
            first[n - known] = i
            slots[at] = n
            used += 1
        node[i] = n
    return used
