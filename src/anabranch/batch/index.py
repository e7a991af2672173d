"""A hash index with open addressing and removal, from names of events to their ids.

A name is (start, 128-bit hash of the payload).  The table holds ids only; the names are in a
matrix of the caller, one row per id, whose first three columns are START, HIGH and LOW (the
caller has more columns behind them).  Two ids may have one name (payloads that differ under
one hash): a search that was not satisfied goes on behind the slot it stopped at, so whoever
compares by value finds each of them.

    a slot     0 if free, else `tag << ID_BITS | id + 1`; the tag is a part of the name that
               the place does not show, so that a wrong slot is passed without a look at a name
    removal    shifts back what had to make way, so that there are no gravestones and a search
               ends at the first free slot, however long the table has lived
    room       at least two slots per id, at most sixteen (but for small tables)

`probes` counts the slots that were looked at: what a step costs, whatever the machine.

Papers: LMerge IV-D, the first tier of in2t, as a hash table instead of a tree.
"""

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import frozen, frozen_rows, kernel, part
from anabranch.batch.murmur import U64

Words: TypeAlias = NDArray[np.uint64]
"""The slots of a table."""

START: Final = 0
HIGH: Final = 1
LOW: Final = 2
"""The columns of a name."""

NOBODY: Final = -1
"""No id."""

ID_BITS: Final = 40
_SHIFT: Final = U64(ID_BITS)
_IDS: Final = U64((1 << ID_BITS) - 1)
_FREE: Final = U64(0)
_ONE: Final = U64(1)
_GOLDEN: Final = U64(0x9E3779B97F4A7C15)
_HALF: Final = U64(32)

_FIRST_SLOTS: Final = 64
_ROOM: Final = 2
_TOO_MUCH_ROOM: Final = 16


class Index:
    """The table; `base` is the id of the first row of the matrix of names."""

    def __init__(self) -> None:
        self._words: Words = np.zeros(_FIRST_SLOTS, np.uint64)
        self._count = 0
        self._probes = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"Index({self._count} ids in {len(self._words)} slots)"

    @property
    def nbytes(self) -> int:
        """What the table takes."""
        return self._words.nbytes

    @property
    def probes(self) -> int:
        """How many slots were looked at, since the beginning."""
        return int(self._probes[0])

    def make_room(self, more: int, names: Ints, *, base: int = 0) -> None:
        """For this many ids more; must come before `search` may add them."""
        need, size = _ROOM * (self._count + more), len(self._words)
        if need <= size and (size <= _FIRST_SLOTS or size <= _TOO_MUCH_ROOM * need):
            return
        words = np.zeros(max(_FIRST_SLOTS, 1 << (need - 1).bit_length()), np.uint64)
        move(frozen(self._words), words, frozen(names), base)
        self._words = words

    def search(
        self, asked: "Lookup", rows: Ints, names: Ints, *, base: int = 0
    ) -> tuple[Ints, Ints]:
        """Find the id of each of these rows; add those that are not there and may be added.

        Sets `asked.id` (NOBODY where there is none) and `asked.slot`, from which another
        search for the same row goes on.  Returns the rows that were added (they took the
        first of `asked.ids`, in this order) and those that were found.
        """
        added, found = np.empty((2, len(rows)), np.int64)
        counts = np.zeros(2, np.int64)
        search_all(
            frozen_rows(rows),
            (asked.start, asked.high, asked.low, asked.may_add, asked.ids),
            (asked.slot, asked.id, added, found, counts),
            (self._words, names, base, self._probes),
        )
        count = int(counts[0])
        self._count += count
        asked.ids = asked.ids[count:]
        return added[:count], found[: int(counts[1])]

    def put(self, ids: Ints, names: Ints, *, base: int = 0) -> None:
        """Add these ids, none of which is there; their names are."""
        self.make_room(len(ids), names, base=base)
        put_all(frozen_rows(ids), frozen(names), base, self._words)
        self._count += len(ids)

    def remove(self, ids: Ints, names: Ints, *, base: int = 0) -> None:
        """Take out these ids, which are there; their names must still be."""
        remove_all(frozen_rows(ids), frozen(names), base, self._words, self._probes)
        self._count -= len(ids)

    def renumber(self, slots: Ints, ids: Ints) -> None:
        """Let the slots that a search found hold these ids instead; names move with them."""
        tags = self._words[slots] >> _SHIFT << _SHIFT
        self._words[slots] = tags | (ids + 1).view(np.uint64)

    def check(self, names: Ints, *, base: int = 0) -> None:
        """Assert what must always hold: each id in one slot, reachable from where it hashes."""
        used = np.flatnonzero(self._words)
        ids = (self._words[used] & _IDS).astype(np.int64) - 1
        counts = (len(ids), self._count, len(np.unique(ids)))
        assert len(set(counts)) == 1, (
            f"numbers of slots, counted and distinct ids differ: {counts}"
        )
        size = len(self._words)
        assert size >= _ROOM * self._count, f"{size} slots < {_ROOM} * {self._count} ids"
        places = np.empty(len(ids), np.int64)
        place_all(frozen_rows(ids), frozen(names), base, size, places)
        free = np.flatnonzero(self._words == _FREE)
        # The first free slot at or after the place must lie behind the slot that holds the id.
        gap = (free[np.searchsorted(free, places) % len(free)] - places) % size
        far = ids[(used - places) % size >= gap]
        assert not len(far), f"ids beyond a free slot, which a search does not reach: {far}"


class Lookup:
    """Names to be searched, one per row, and what was found.

    `ids` are given, in order, to the rows that are added; only rows that `may_add` are.
    """

    def __init__(self, start: Ints, hashes: NDArray[np.uint64], may_add: Mask, ids: Ints):
        """`hashes` has two columns, the low and the high half, as `hash_columns` gives them."""
        halves = hashes.view(np.int64)
        self.start = frozen(start)
        self.low, self.high = frozen(halves[:, 0]), frozen(halves[:, 1])
        self.may_add = frozen(may_add)
        self.ids = frozen_rows(ids)
        self.slot = np.full(len(start), NOBODY, np.int64)
        self.id = np.full(len(start), NOBODY, np.int64)


@part
def place(start: np.int64, low: np.int64) -> np.uint64:
    """Where the search for a name begins, before it is cut to the size of the table."""
    word = U64(low) ^ (U64(start) * _GOLDEN)
    return word ^ (word >> _HALF)


@part
def tag_of(start: np.int64, high: np.int64) -> np.uint64:
    """The part of a name that is in its slot; with the start, for payloads that come often."""
    return (U64(high) ^ (U64(start) * _GOLDEN)) >> _SHIFT


@part
def tagged(start: np.int64, high: np.int64, identity: np.int64) -> np.uint64:
    """The word of a slot."""
    return (tag_of(start, high) << _SHIFT) | U64(identity + 1)


@kernel
def place_all(ids: Ints, names: Ints, base: int, size: int, places: Ints) -> None:
    """The place of each of these ids in a table of this size."""
    mask = U64(size - 1)
    for k in range(ids.size):
        row = U64(ids[k] - base)
        places[k] = place(names[row, START], names[row, LOW]) & mask


@kernel
def move(old: Words, words: Words, names: Ints, base: int) -> None:
    """Put the ids of one table into another, which is empty."""
    mask = U64(words.size - 1)
    for k in range(old.size):
        if old[k] != _FREE:
            row = (old[k] & _IDS) - _ONE - U64(base)
            slot = place(names[row, START], names[row, LOW]) & mask
            while words[slot] != _FREE:
                slot = (slot + _ONE) & mask
            words[slot] = old[k]


@kernel
def put_all(ids: Ints, names: Ints, base: int, words: Words) -> None:
    """Put each id into the first free slot from its place on."""
    mask = U64(words.size - 1)
    for k in range(ids.size):
        row = U64(ids[k] - base)
        slot = place(names[row, START], names[row, LOW]) & mask
        while words[slot] != _FREE:
            slot = (slot + _ONE) & mask
        words[slot] = tagged(names[row, START], names[row, HIGH], ids[k])


@kernel
def search_all(
    rows: Ints,
    asked: tuple[Ints, Ints, Ints, Mask, Ints],
    answer: tuple[Ints, Ints, Ints, Ints, Ints],
    table: tuple[Words, Ints, int, Ints],
) -> None:
    """See `Index.search`."""
    starts, highs, lows, may_add, new_ids = asked
    slots, ids, added, found, counts = answer
    words, names, base, probes = table
    mask, first = U64(words.size - 1), U64(base)
    adds, finds, looks = U64(0), U64(0), U64(0)
    for k in range(U64(rows.size)):
        row = U64(rows[k])
        start, high, low = starts[row], highs[row], lows[row]
        tag, before, identity = tag_of(start, high), slots[row], np.int64(NOBODY)
        slot = place(start, low) & mask if before < 0 else U64(before + 1) & mask
        while True:
            looks += _ONE
            word = words[slot]
            if word == _FREE:
                if may_add[row]:
                    identity = new_ids[adds]
                    words[slot] = (tag << _SHIFT) | U64(identity + 1)
                    at = U64(identity) - first
                    names[at, START], names[at, HIGH], names[at, LOW] = start, high, low
                    added[adds] = row
                    adds += _ONE
                break
            if word >> _SHIFT == tag:
                at = (word & _IDS) - _ONE - first
                is_half = names[at, LOW] == low and names[at, HIGH] == high
                if is_half and names[at, START] == start:
                    identity = np.int64(at + first)
                    found[finds] = row
                    finds += _ONE
                    break
            slot = (slot + _ONE) & mask
        ids[row], slots[row] = identity, np.int64(slot)
    counts[0], counts[1] = adds, finds
    probes[0] += np.int64(looks)


@kernel
def remove_all(ids: Ints, names: Ints, base: int, words: Words, probes: Ints) -> None:
    """Empty the slot of each id, and shift back what had to make way for it."""
    mask = U64(words.size - 1)
    for k in range(ids.size):
        row = U64(ids[k] - base)
        hole = place(names[row, START], names[row, LOW]) & mask
        wanted = U64(ids[k] + 1)
        while words[hole] & _IDS != wanted:
            hole = (hole + _ONE) & mask
            probes[0] += 1
        slot = (hole + _ONE) & mask
        while words[slot] != _FREE:
            probes[0] += 1
            other = (words[slot] & _IDS) - _ONE - U64(base)
            begin = place(names[other, START], names[other, LOW]) & mask
            # It may move back only if its own search passes the hole.
            if (slot - begin) & mask >= (slot - hole) & mask:
                words[hole] = words[slot]
                hole = slot
            slot = (slot + _ONE) & mask
        words[hole] = _FREE
