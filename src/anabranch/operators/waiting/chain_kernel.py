"""The kernel of broken chains: ends of events, adjusts that wait for one, and what was late.

Rows of an identity are one list: VISIBLE events with their end, WAITING adjusts from an end to
another one, and LOST ends with the number of events by which the input has more than the
output.  Elements of an identity are followed in their order, and compared with its list only.
"""

from typing import Final

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.batch.kernel import kernel, part

VISIBLE, WAITING, LOST = range(3)
"""What a row is."""
GROUP, AT, TO, KIND, NUMBER, ITEM = range(6)
"""What a row has: its identity; its end, or the old end of an adjust that waits; the new end of
that, or the number of a lost end; its kind; the input of an adjust that waits; and the element
of this step that it is, or -1 - its place among the rows that were held."""
WIDTH: Final = 6

TAKEN, LATE, FORGOTTEN, HELD, APPLIED = range(5)
"""What becomes of an element: on input it is TAKEN, or LATE by its times."""


@part
def find(rows: Ints, first: int, count: int, kind: int, at: int) -> int:
    """The first row of the list with this kind and end, or -1."""
    for k in range(first, count):
        if rows[KIND, k] == kind and rows[AT, k] == at:
            return k
    return -1


@part
def drop(rows: Ints, k: int, count: int) -> int:
    """Take a row out of the list; the others keep their order."""
    for j in range(k, count - 1):
        for column in range(WIDTH):
            rows[column, j] = rows[column, j + 1]
    return count - 1


@part
def add(
    rows: Ints, count: int, group: int, kind: int, at: int, to: int, number: int, item: int
) -> int:
    """Put a row behind the list."""
    rows[GROUP, count], rows[KIND, count] = group, kind
    rows[AT, count], rows[TO, count] = at, to
    rows[NUMBER, count], rows[ITEM, count] = number, item
    return count + 1


@part
def lose(rows: Ints, first: int, count: int, group: int, at: int, by: int) -> int:
    """Change the number of a lost end; one that comes to 0 leaves."""
    k = find(rows, first, count, LOST, at)
    if k < 0:
        return add(rows, count, group, LOST, at, by, 0, 0)
    rows[TO, k] += by
    return drop(rows, k, count) if rows[TO, k] == 0 else count


@part
def resolve(item: int, code: int, codes: Codes, fired: Ints, done: int) -> int:
    """An adjust no longer waits: one of this step, or one that was held."""
    if item >= 0:
        codes[item] = code
        return done
    fired[0, done], fired[1, done] = -1 - item, code
    return done + 1


@part
def is_whole(rows: Ints, first: int, count: int) -> bool:
    """Whether no count of ends is negative if all adjusts that wait are applied."""
    for k in range(first, count):
        if rows[KIND, k] == WAITING:
            at, number = rows[AT, k], 0
            for j in range(first, count):
                if rows[KIND, j] != LOST and rows[AT, j] == at:
                    number += 1 if rows[KIND, j] == VISIBLE else -1
                if rows[KIND, j] == WAITING and rows[TO, j] == at:
                    number += 1
            if number < 0:
                return False
    return True


@part
def close(
    codes: Codes, rows: Ints, first: int, count: int, fired: Ints, gone: int
) -> tuple[int, int]:
    """Drop what waits of an identity that is whole: together it comes to nothing."""
    k = first
    while k < count:
        if rows[KIND, k] == WAITING:
            gone = resolve(rows[ITEM, k], APPLIED, codes, fired, gone)
            count = drop(rows, k, count)
        else:
            k += 1
    return count, gone


@kernel
def mend(
    items: Ints,
    is_adjust: Mask,
    codes: Codes,
    held: Ints,
    frontier: int,
    rows: Ints,
    fired: Ints,
    mixed: Mask,
) -> tuple[int, int, int]:
    """Follow items (group, start, old end, end, number), sorted by group, after what is held.

    `held` has rows of groups with items only, by group; `rows` gets the lists after the step,
    `fired` the places in `held` of what waited and no longer does, and its code.  Ends before
    the frontier are not noted as lost.  `mixed`: something waited in the item's identity,
    before or in this step.  Returns how many `rows` and `fired` there are, and how many looks
    it took.
    """
    done, gone, looks, i, j = 0, 0, 0, 0, 0
    while i < items.shape[1]:
        own, begin, first, count = items[0, i], i, done, done
        waits = False
        while j < held.shape[1] and held[GROUP, j] == own:
            waits = waits or held[KIND, j] == WAITING
            to, number = held[TO, j], held[NUMBER, j]
            count = add(rows, count, own, held[KIND, j], held[AT, j], to, number, -1 - j)
            j += 1
        while i < items.shape[1] and items[0, i] == own:
            looks += count - first
            if is_adjust[i]:
                forgets(items, i, codes, rows, first, count)
            count, gone = one(
                items, i, is_adjust, codes, frontier, rows, first, count, fired, gone
            )
            waits = waits or codes[i] == HELD
            if waits and is_whole(rows, first, count):
                count, gone = close(codes, rows, first, count, fired, gone)
            i += 1
        for k in range(begin, i):
            mixed[k] = waits
        done = count
    return done, gone, looks


@part
def forgets(items: Ints, i: int, codes: Codes, rows: Ints, first: int, count: int) -> None:
    """Mark an adjust of an event that the output does not have."""
    k = find(rows, first, count, LOST, items[2, i])
    if codes[i] == TAKEN and k >= 0 and rows[TO, k] > 0:
        codes[i] = FORGOTTEN


@part
def one(
    items: Ints,
    i: int,
    is_adjust: Mask,
    codes: Codes,
    frontier: int,
    rows: Ints,
    first: int,
    count: int,
    fired: Ints,
    gone: int,
) -> tuple[int, int]:
    """Follow one item; how long the list of its identity is then, and `fired`."""
    own, start, old, end = items[0, i], items[1, i], items[2, i], items[3, i]
    if codes[i] != TAKEN:
        if is_adjust[i] and old >= frontier:
            count = lose(rows, first, count, own, old, -1)
        while end != start and end >= frontier:
            count = lose(rows, first, count, own, end, 1)
            k, w = find(rows, first, count, LOST, end), find(rows, first, count, WAITING, end)
            if k < 0 or w < 0 or rows[TO, k] <= 0:
                break
            # What waited for this event is late with it.
            gone, old = resolve(rows[ITEM, w], FORGOTTEN, codes, fired, gone), end
            end = rows[TO, w]
            count = drop(rows, w, count)
            count = lose(rows, first, count, own, old, -1)
        return count, gone
    if is_adjust[i]:
        k = find(rows, first, count, VISIBLE, old)
        if k < 0:
            codes[i] = HELD
            return add(rows, count, own, WAITING, old, end, items[4, i], i), gone
        count = drop(rows, k, count)
    while end != start:
        w = find(rows, first, count, WAITING, end)
        if w < 0:
            return add(rows, count, own, VISIBLE, end, 0, 0, 0), gone
        gone = resolve(rows[ITEM, w], APPLIED, codes, fired, gone)
        end = rows[TO, w]
        count = drop(rows, w, count)
    return count, gone
