"""What a step with a policy shows: all that was said, or its net change and what it explains.

By `element` the output is what was said, in its order.  By `batch` it is, for each event of
which something was said, the way from what readers have to what is so after the step; then the
stable, if there was one.  An end that got longer is one adjust or, with `shrink_only` and while
the event may go, a removal and an insert.

By `batch` an element that was said at first may be part of no change in the end.  So of those
that brought an event the last one has the credit, if the net change has an insert of it, and of
those that corrected one the last that asked for what came out; the others made no difference.

Papers: LMerge V-A; erratum D21 for the net change.
"""

from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, STABLE, Batch, Codes, Ints
from anabranch.batch.kernel import frozen_rows, kernel, part
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.contract import Reason
from anabranch.operators.merge.r3_emit import payload_of
from anabranch.operators.merge.r3_nodes import ABSENT, FLAGS, OUT, ROW, SHOWN, Nodes
from anabranch.operators.merge.r3_policy_table import (
    END,
    HELD_NODE,
    HELD_REASON,
    KIND,
    NODE,
    OLD_END,
    SAID_COLUMNS,
)
from anabranch.operators.merge.slots import NOBODY, START

_FIRST: Final = Reason.FIRST.code
_KNOWN: Final = Reason.KNOWN.code
_NOTED: Final = Reason.NOTED.code
_SUPERSEDED: Final = Reason.SUPERSEDED.code
_CORRECTED: Final = Reason.CORRECTED.code
_LEADS: Final = Reason.LEADS.code
_FOLLOWS: Final = Reason.FOLLOWS.code

# Flags of a node, while a step is explained.
_INSERTED: Final = 512
_ADJUSTED: Final = 1024


def spoken_of(said: Ints) -> Ints:
    """The nodes of which something was said, each once, in the order of the first word."""
    nodes = said[said[:, NODE] != NOBODY, NODE]
    _, first = np.unique(nodes, return_index=True)
    spoken: Ints = nodes[np.sort(first)]
    return spoken


def net_change(nodes: Nodes, said: Ints, *, frontier: int, splits: bool) -> Ints:
    """The shortest way to what `said` led to, as rows of the same columns.

    `frontier` is the output's before the step; `splits`: a longer end of an event that starts
    there or later is a removal and an insert.
    """
    ids = spoken_of(said)
    start, before, after = (nodes.rows[ids, column] for column in (START, SHOWN, OUT))
    split = (before != ABSENT) & (after > before) & splits & (start >= frontier)
    adjusts = np.flatnonzero((before != ABSENT) & (after != before))
    inserts = np.flatnonzero((after != ABSENT) & ((before == ABSENT) | split))
    goes = split | (after == ABSENT)
    net = np.empty((len(adjusts) + len(inserts), SAID_COLUMNS), np.int64)
    net[:, KIND] = np.repeat([ADJUST, INSERT], [len(adjusts), len(inserts)])
    both = np.append(adjusts, inserts)
    net[:, NODE] = ids[both]
    net[:, END] = np.append(np.where(goes, start, after)[adjusts], after[inserts])
    net[:, OLD_END] = np.append(before[adjusts], np.zeros(len(inserts), np.int64))
    # Of one event the removal comes first.
    stables = said[said[:, KIND] == STABLE][-1:]
    return np.concatenate([net[np.argsort(both, kind="stable")], stables])


def to_batch(schema: ElementSchema, nodes: Nodes, said: Ints) -> Batch:
    """These elements as a batch."""
    is_data = said[:, NODE] != NOBODY
    start, payload_row = said[:, END].copy(), np.full(len(said), -1, np.int64)
    facts = nodes.rows[said[is_data, NODE]]
    start[is_data], payload_row[is_data] = facts[:, START], facts[:, ROW]
    end = np.where(is_data, said[:, END], 0)
    kind = said[:, KIND].astype(np.int8)
    return Batch(
        schema, kind, start, end, said[:, OLD_END].copy(), payload_of(nodes, payload_row)
    )


def explain(nodes: Nodes, net: Ints, elements: Any, reasons: Codes, resolved: Ints) -> None:
    """Give the reasons that the net change leaves, in place."""
    for kind, flag in ((INSERT, _INSERTED), (ADJUST, _ADJUSTED)):
        ids = net[net[:, KIND] == kind, NODE]
        nodes.rows[ids, FLAGS] |= flag
    columns = (elements.start, elements.end, elements.node)
    explain_all(nodes.rows, columns, reasons, resolved)
    ids = frozen_rows(net[net[:, NODE] != NOBODY, NODE])
    nodes.rows[ids, FLAGS] &= ~(_INSERTED | _ADJUSTED)


@kernel
def explain_all(rows: Any, columns: Any, reasons: Any, resolved: Any) -> None:
    """Backwards, since the last one has the credit; what was pending came before."""
    starts, ends, nodes = columns
    led = False
    for k in range(reasons.size):
        i = reasons.size - 1 - k
        if reasons[i] == _LEADS:
            reasons[i] = _FOLLOWS if led else _LEADS
            led = True
        elif reasons[i] == _FIRST:
            reasons[i] = credit_insert(rows, nodes[i])
        elif reasons[i] == _CORRECTED:
            reasons[i] = credit_adjust(rows, nodes[i], starts[i], ends[i])
    for k in range(resolved.shape[0]):
        i = resolved.shape[0] - 1 - k
        if resolved[i, HELD_REASON] == _FIRST:
            resolved[i, HELD_REASON] = credit_insert(rows, resolved[i, HELD_NODE])


@part
def credit_insert(rows: Any, node: Any) -> Any:
    """Whether this element brings the event, now that it is known what becomes of it."""
    if rows[node, FLAGS] & _INSERTED:
        rows[node, FLAGS] &= ~_INSERTED
        return _FIRST
    return _SUPERSEDED if rows[node, OUT] == ABSENT else _KNOWN


@part
def credit_adjust(rows: Any, node: Any, start: Any, end: Any) -> Any:
    """Whether this adjust corrects the event, now that it is known what becomes of it."""
    after = rows[node, OUT]
    wanted = end == after or (after == ABSENT and end == start)
    if wanted and rows[node, FLAGS] & _ADJUSTED:
        rows[node, FLAGS] &= ~_ADJUSTED
        return _CORRECTED
    return _NOTED
