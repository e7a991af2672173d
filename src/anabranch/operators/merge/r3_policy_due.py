"""Which events a stable must look at: a heap of the times from which on they matter.

The KEY of an event is not after the first stable that may change it, freeze it or find it in
dispute, as far as replicas that have it are concerned:

    while it is free                  its start
    when it is half frozen            the earliest of its end on the output and in the replicas

A replica that does not have a half frozen event may deny it whenever it decides.  SILENT counts
such events per replica; only if a decider has some, all events are looked at.

`heap` has each event once, PLACE is where.  `due` is what was found: `find_due` takes those out
of the heap whose KEY is before a time, `peek_due` leaves them there; both give them by rank.

Papers: none; LMerge IV-D visits all half frozen nodes at every stable.
"""

from typing import Any

from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.r3_nodes import BORN, ENDS, OUT
from anabranch.operators.merge.r3_policy_table import HEAPED, KEY, PLACE
from anabranch.operators.merge.slots import NOBODY, START


@part
def rise(table: Any, node: Any, at: Any) -> None:
    """Put a node at this place of the heap, or further up."""
    key = table.book[node, KEY]
    while at > 0:
        above = (at - 1) // 2
        other = table.heap[above]
        if table.book[other, KEY] <= key:
            break
        table.heap[at] = other
        table.book[other, PLACE] = at
        at = above
    table.heap[at] = node
    table.book[node, PLACE] = at


@part
def sink(table: Any, node: Any, at: Any) -> None:
    """Put a node at this place of the heap, or further down."""
    key, count = table.book[node, KEY], table.numbers[HEAPED]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if (
            child + 1 < count
            and table.book[table.heap[child + 1], KEY] < table.book[table.heap[child], KEY]
        ):
            child += 1
        other = table.heap[child]
        if table.book[other, KEY] >= key:
            break
        table.heap[at] = other
        table.book[other, PLACE] = at
        at = child
    table.heap[at] = node
    table.book[node, PLACE] = at


@kernel
def push(table: Any, node: Any, key: Any) -> None:
    """Put a node on the heap."""
    table.book[node, KEY] = key
    at = table.numbers[HEAPED]
    table.numbers[HEAPED] = at + 1
    rise(table, node, at)


@kernel
def take_out(table: Any, node: Any) -> None:
    """Take a node from the heap, if it is there."""
    at = table.book[node, PLACE]
    if at == NOBODY:
        return
    table.book[node, PLACE] = NOBODY
    count = table.numbers[HEAPED] - 1
    table.numbers[HEAPED] = count
    last = table.heap[count]
    if last == node:
        return
    if table.book[last, KEY] < table.book[node, KEY]:
        rise(table, last, at)
    else:
        sink(table, last, at)


@part
def lower(table: Any, node: Any, key: Any) -> None:
    """From this time on at the latest, the node matters."""
    if key < table.book[node, KEY]:
        table.book[node, KEY] = key
        if table.book[node, PLACE] != NOBODY:
            rise(table, node, table.book[node, PLACE])


@part
def key_of(table: Any, node: Any, frontier: Any) -> Any:
    """From when on a node matters to an output with this frontier."""
    start = table.rows[node, START]
    if start >= frontier:
        return start
    key = table.rows[node, OUT]
    for column in range(ENDS, table.rows.shape[1]):
        said = table.rows[node, column]
        if said > start:
            key = min(key, said)
    return key


@kernel
def find_due(table: Any, time: Any) -> Any:
    """Take the nodes that matter before this time out of the heap; how many there are."""
    count = 0
    while table.numbers[HEAPED] > 0:
        node = table.heap[0]
        if table.book[node, KEY] >= time:
            break
        take_out(table, node)
        table.due[count] = node
        count += 1
    by_rank(table, count)
    return count


@kernel
def peek_due(table: Any, time: Any) -> Any:
    """The nodes that matter before this time, which stay on the heap; how many there are."""
    count, read = 0, 0
    if table.numbers[HEAPED] > 0 and table.book[table.heap[0], KEY] < time:
        table.due[0] = table.heap[0]
        count = 1
    while read < count:
        child = 2 * table.book[table.due[read], PLACE] + 1
        read += 1
        for at in range(child, min(child + 2, table.numbers[HEAPED])):
            if table.book[table.heap[at], KEY] < time:
                table.due[count] = table.heap[at]
                count += 1
    by_rank(table, count)
    return count


@part
def by_rank(table: Any, count: Any) -> None:
    """Sort the first ones of `due` by rank: a heap of ranks, emptied from behind."""
    for k in range(count // 2):
        settle_rank(table, count // 2 - 1 - k, count)
    for k in range(count - 1):
        last = count - 1 - k
        table.due[0], table.due[last] = table.due[last], table.due[0]
        settle_rank(table, 0, last)


@part
def settle_rank(table: Any, at: Any, count: Any) -> None:
    """Let the node at this place sink below those of greater rank."""
    node = table.due[at]
    rank = table.rows[node, BORN]
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        ranked = table.rows[table.due[child], BORN]
        if child + 1 < count and table.rows[table.due[child + 1], BORN] > ranked:
            child += 1
            ranked = table.rows[table.due[child], BORN]
        if ranked <= rank:
            break
        table.due[at] = table.due[child]
        at = child
    table.due[at] = node
