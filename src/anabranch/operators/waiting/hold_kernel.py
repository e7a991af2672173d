"""The kernel of align: elements of an event that is held become one arc.

An arc goes from an end (an event's start, if it is not on the output) to another one.  An
adjust that begins where an arc of its identity ends lengthens that arc, the latest of them; an
arc that comes back to where it began is dropped.  Arcs of an identity are compared one by one:
there are as many as events of that identity that are held.
"""

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import kernel

ITEM, ORIGIN, END = range(3)
"""What an arc has: the last of its items, where it begins, and where it ends."""


@kernel
def combine(
    group: Ints, origin: Ints, end: Ints, joins: Mask, arcs: Ints, applied: Mask
) -> tuple[int, int]:
    """Fill `arcs` from items that are sorted by group; how many, and how many looks it took.

    `joins`: the item may lengthen an arc.  `applied` gets the items that stand for no arc.
    """
    count, first, looks = 0, 0, 0
    for i in range(group.size):
        if i == 0 or group[i] != group[i - 1]:
            first = count
        at = -1
        if joins[i]:
            k = count - 1
            while k >= first and at < 0:
                looks += 1
                if arcs[END, k] == origin[i]:
                    at = k
                k -= 1
        if at < 0:
            arcs[ITEM, count], arcs[ORIGIN, count], arcs[END, count] = i, origin[i], end[i]
            count += 1
            continue
        applied[arcs[ITEM, at]] = True
        if arcs[ORIGIN, at] != end[i]:
            arcs[ITEM, at], arcs[END, at] = i, end[i]
            continue
        applied[i] = True
        for k in range(at, count - 1):
            for row in range(3):
                arcs[row, k] = arcs[row, k + 1]
        count -= 1
    return count, looks
