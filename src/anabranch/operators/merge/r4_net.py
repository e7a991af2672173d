"""The net change of a step: what turns the output as it was into the output as it is.

`log` has every change in order.  An identity that was only inserted keeps its rows; of the
others, what came and went is left out, and each event that has another end than before is
adjusted once: the k-th smallest end that is gone to the k-th smallest that is new.  With
`shrink_only` an adjust shortens, and only an identity that was not free before the step is
lengthened (it cannot be removed any more).

Papers: erratum D21.
"""

from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.r4_nodes import BORN
from anabranch.operators.merge.slots import START

KIND: Final = 0
NODE: Final = 1
OLD_END: Final = 2
END: Final = 3
"""The columns of a log."""


def net_change(log: Ints, facts: Ints, *, frontier: int, shrink_only: bool) -> Ints:
    """A log with the same effect, adjusts first; `frontier` is that before the step."""
    adjusted = np.unique(log[log[:, KIND] == ADJUST, NODE])
    is_plain = ~np.isin(log[:, NODE], adjusted)
    plain, rest = log[is_plain], log[~is_plain]
    gone = rest[rest[:, KIND] == ADJUST][:, [NODE, OLD_END]]
    new = rest[rest[:, END] > facts[rest[:, NODE], START]][:, [NODE, END]]
    rows = np.concatenate([gone, new])
    sign = np.repeat(np.array([-1, 1]), [len(gone), len(new)])
    order = np.lexsort((rows[:, 1], facts[rows[:, 0], BORN]))
    rows, sign = rows[order], sign[order]
    net = np.empty((len(rows), 4), np.int64)
    room = np.empty((2, len(rows)), np.int64)
    count = int(pair_all(rows, sign, facts, frontier, shrink_only, room, net))
    net = np.concatenate([net[:count], plain])
    return net[np.argsort(net[:, KIND] == INSERT, kind="stable")]


@kernel
def pair_all(
    rows: Any, sign: Any, facts: Any, frontier: Any, shrink_only: Any, room: Any, net: Any
) -> Any:
    """Pair what is gone with what is new, node by node; how many rows that makes."""
    count, k = np.int64(0), np.int64(0)
    while k < rows.shape[0]:
        node = rows[k, 0]
        gone, new = np.int64(0), np.int64(0)
        while k < rows.shape[0] and rows[k, 0] == node:
            end, more = rows[k, 1], np.int64(0)
            while k < rows.shape[0] and rows[k, 0] == node and rows[k, 1] == end:
                more += sign[k]
                k += 1
            for _ in range(-more):
                room[0, gone] = end
                gone += 1
            for _ in range(more):
                room[1, new] = end
                new += 1
        start = facts[node, START]
        if shrink_only and start >= frontier:
            count = pair_shrinking(node, start, room, gone, new, net, count)
        else:
            count = pair_in_order(node, start, room, gone, new, net, count)
    return count


@part
def pair_in_order(
    node: Any, start: Any, room: Any, gone: Any, new: Any, net: Any, count: Any
) -> Any:
    """The k-th with the k-th; what is left over is removed or inserted."""
    for i in range(max(gone, new)):
        old_end = room[0, i] if i < gone else np.int64(0)
        end = room[1, i] if i < new else start
        write(net, count, ADJUST if i < gone else INSERT, node, old_end, end)
        count += 1
    return count


@part
def pair_shrinking(
    node: Any, start: Any, room: Any, gone: Any, new: Any, net: Any, count: Any
) -> Any:
    """Each new end with the smallest gone one that is later; the rest is removed, inserted."""
    i = np.int64(0)
    for j in range(new):
        end = room[1, j]
        while i < gone and room[0, i] < end:
            write(net, count, ADJUST, node, room[0, i], start)
            i, count = i + 1, count + 1
        if i < gone:
            write(net, count, ADJUST, node, room[0, i], end)
            i += 1
        else:
            write(net, count, INSERT, node, 0, end)
        count += 1
    for k in range(i, gone):
        write(net, count, ADJUST, node, room[0, k], start)
        count += 1
    return count


@part
def write(net: Any, at: Any, kind: Any, node: Any, old_end: Any, end: Any) -> None:
    """One row."""
    net[at, KIND], net[at, NODE] = kind, node
    net[at, OLD_END], net[at, END] = old_end, end
