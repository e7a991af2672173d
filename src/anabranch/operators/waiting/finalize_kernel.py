"""The kernel of finalize: which adjusts concern events that the output does not have.

Per identity there is a list of ends with the number of events by which the input has more than
the output; a late element changes it, and an adjust of an end that the input has more of is
late too.  Elements of an identity are followed in their order.
"""

from anabranch.batch.batch import Ints, Mask
from anabranch.batch.kernel import kernel, part

GROUP, END, COUNT = range(3)
"""What the lists have, in rows."""


@part
def change(lists: Ints, first: int, count: int, end: int, by: int) -> int:
    """Add to the number of an end of the list that begins at `first`; how many rows there are.

    An entry of 0 stays until the list is done.
    """
    for k in range(first, count):
        if lists[END, k] == end:
            lists[COUNT, k] += by
            return count
    lists[END, count], lists[COUNT, count] = end, by
    return count + 1


@kernel
def follow(
    items: Ints, is_adjust: Mask, is_late: Mask, held: Ints, frontier: int, lists: Ints
) -> tuple[int, int]:
    """Mark more items as late; fill `lists` (group, end, count) from those that are held.

    `items` are rows (group, start, old end, end) by group; `held` is like `lists`, by group,
    and has lists of groups with items only.  Ends before the frontier are not noted.  Returns
    how many rows the lists have, and how many looks it took.
    """
    done, i, j, looks = 0, 0, 0, 0
    while i < items.shape[1]:
        own, first, count = items[0, i], done, done
        while j < held.shape[1] and held[GROUP, j] == own:
            lists[END, count], lists[COUNT, count] = held[END, j], held[COUNT, j]
            count += 1
            j += 1
        while i < items.shape[1] and items[0, i] == own:
            start, old, end = items[1, i], items[2, i], items[3, i]
            looks += count - first
            if is_adjust[i] and not is_late[i]:
                for k in range(first, count):
                    if lists[END, k] == old and lists[COUNT, k] > 0:
                        is_late[i] = True
            if is_late[i]:
                if is_adjust[i] and old >= frontier:
                    count = change(lists, first, count, old, -1)
                if end != start and end >= frontier:
                    count = change(lists, first, count, end, 1)
            i += 1
        for k in range(first, count):
            if lists[COUNT, k] != 0:
                lists[GROUP, done] = own
                lists[END, done], lists[COUNT, done] = lists[END, k], lists[COUNT, k]
                done += 1
    return done, looks
