"""The hash table behind `intern`: open addressing, one word per slot, nothing is ever removed.

A slot is 0 if free, else `tag << ID_BITS | id + 1`: the tag is a few bits of the hash that the
place does not show, so that a wrong slot is passed without a look at its key.
"""

from typing import Any, Final

import numpy as np

from anabranch.batch.kernel import kernel, part
from anabranch.batch.murmur import U64

ID_BITS: Final = 40
_SHIFT: Final = U64(ID_BITS)
_IDS: Final = U64((1 << ID_BITS) - 1)
_FREE: Final = U64(0)


@part
def tagged(high: Any, identity: Any) -> Any:
    """The word of a slot."""
    return ((high >> _SHIFT) << _SHIFT) | U64(identity + 1)


@kernel
def rebuild(table: Any, keys: Any, count: Any) -> None:
    """Puts the ids below `count` into an empty table."""
    mask = U64(table.size - 1)
    for identity in range(count):
        slot = keys[identity, 0] & mask
        while table[slot] != _FREE:
            slot = (slot + U64(1)) & mask
        table[slot] = tagged(keys[identity, 1], identity)


@kernel
def probe(
    rows: Any,
    hashes: Any,
    start: Any,
    table: Any,
    keys: Any,
    starts: Any,
    count: Any,
    slots: Any,
    ids: Any,
    fresh: Any,
    hits: Any,
) -> Any:
    """Looks up each row, from its home or behind `slots[row]` if that is not -1.

    A row whose key is there goes to `hits` with that id; another is added and goes to `fresh`.
    Either way `slots` says where.  Returns how many were added.
    """
    mask = U64(table.size - 1)
    added = 0
    found = 0
    for k in range(rows.size):
        row = rows[k]
        low, high = hashes[row, 0], hashes[row, 1]
        slot = low & mask if slots[row] < 0 else U64(slots[row] + 1) & mask
        while True:
            word = table[slot]
            if word == _FREE:
                identity = count + added
                table[slot] = tagged(high, identity)
                keys[identity, 0], keys[identity, 1] = low, high
                starts[identity] = start[row]
                fresh[added] = row
                added += 1
                break
            if (word ^ high) >> _SHIFT == _FREE:
                identity = np.int64((word & _IDS) - U64(1))
                is_key = keys[identity, 0] == low and keys[identity, 1] == high
                if is_key and starts[identity] == start[row]:
                    hits[found] = row
                    found += 1
                    break
            slot = (slot + U64(1)) & mask
        ids[row] = identity
        slots[row] = slot
    return added


@kernel
def move_slots(table: Any, slots: Any, ids: Any) -> None:
    """Gives the identities in these slots new ids."""
    for k in range(slots.size):
        slot = slots[k]
        table[slot] = ((table[slot] >> _SHIFT) << _SHIFT) | U64(ids[k] + 1)
