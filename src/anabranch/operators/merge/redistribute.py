"""The states of a merge for another number of lanes: R3 and R4 by identity, under any policy.

What a lane remembers of events goes to the lane of each event.  What all lanes know (members,
frontiers, the policy's view) stays in every lane; of the last `seq` and the highest start of a
replica, of which each lane knows its own, the greatest counts: a replica has sent all before.
What lanes count by themselves (conflicts) goes on in one of them.

The order in which events came to the output, and inserts to be held back, is kept within each
former lane; between two of them it never mattered.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.index import LOW, NOBODY, START
from anabranch.errors import StateError
from anabranch.operators.contract import Route
from anabranch.operators.merge.codec import control_table, fill_rows, new_state, node_table
from anabranch.operators.merge.govern import View
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.state import MergeState
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import Blocks
from anabranch.operators.state.codec import column_of, header_of
from anabranch.operators.state.events import ABSENT
from anabranch.operators.state.final_names import END, FinalNames
from anabranch.operators.state.parts import Control

COMMON: Final = ("attachment", "guarantee", "frontier", "serial", "promoted", "passed_at")
"""The columns of the members that are the same in every lane."""


class Share(NamedTuple):
    """Some of what a state remembers: these events, and these final names."""

    state: MergeState
    ids: Ints
    names: Ints


def split(state: MergeState, lanes: int) -> list[MergeState]:
    """What a state remembers, by the lane that it belongs to from now on."""
    ids, names = state.nodes.living(), state.final_names.all()
    rows = state.nodes.rows[ids]
    of_events = lanes_of_names(rows[:, START], rows[:, LOW], lanes, Route.IDENTITY)
    of_names = lanes_of_names(names[:, START], names[:, LOW], lanes, Route.IDENTITY)
    made = [
        _made([Share(state, ids[of_events == lane], names[of_names == lane])])
        for lane in range(lanes)
    ]
    for other in made[1:]:
        other.conflicts = 0
    return made


def unite(states: Sequence[MergeState]) -> MergeState:
    """The shares of one lane as one state."""
    require_agreement(states)
    return _made([Share(one, one.nodes.living(), one.final_names.all()) for one in states])


def _made(shares: Sequence[Share]) -> MergeState:
    states = [one.state for one in shares]
    first = states[0]
    head, empty = control_table(first), first.schema.payload.empty_table()
    made = new_state(first.schema, Control(head, header_of(head), Blocks.none(), empty))
    made.policy, made.reports_final = first.policy, first.reports_final
    made.final_names = FinalNames()
    made.conflicts = sum(one.conflicts for one in states)
    made.members.last_seq = np.max([one.members.last_seq for one in states], axis=0)
    if made.is_governed:
        made.highest = np.max([one.highest for one in states], axis=0)
    if len({one.view for one in states}) > 1:
        made.view = View()  # whom the policy asks is found again in the next step
    _fill(made, shares, empty)
    names = np.concatenate([one.names for one in shares])
    made.final_names.remember(names[:, : LOW + 1], names[:, END], made.mark)
    return made.restored()


def _fill(made: MergeState, shares: Sequence[Share], empty: pa.Table) -> None:
    """The events of all shares, numbered anew."""
    tables = [node_table(one.state, one.ids) for one in shares]
    payloads = [one.state.nodes.payload(one.ids) for one in shares]
    sizes = [table.num_rows for table in tables]
    nodes = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    tables = [_with(one, "node", ids) for one, ids in zip(tables, nodes, strict=True)]
    tables, made.next_rank = _renumbered(tables, ["rank"], ABSENT)
    held = [name for name in tables[0].column_names if _is_held(name)]
    tables, made.next_number = _renumbered(tables, held, NOBODY)
    fill_rows(made, list(zip(tables, payloads, strict=True)), empty)


def _is_held(name: str) -> bool:
    return name.startswith("held_") and not name.startswith("held_end_")


def _renumbered(
    tables: Sequence[pa.Table], columns: Sequence[str], nothing: int
) -> tuple[list[pa.Table], int]:
    """Numbers in these columns without gaps, in their order; and how many there are."""
    cells = [(at, name) for at in range(len(tables)) for name in columns]
    if not cells:
        return list(tables), 0
    values = [column_of(tables[at], name).copy() for at, name in cells]
    whole = np.concatenate(values)
    given = np.flatnonzero(whole != nothing)
    whole[given[np.argsort(whole[given], kind="stable")]] = np.arange(len(given))
    made = list(tables)
    for (at, name), mine in zip(
        cells, np.split(whole, np.cumsum([len(v) for v in values])[:-1]), strict=True
    ):
        made[at] = _with(made[at], name, mine)
    return made, len(given)


def _with(table: pa.Table, name: str, values: Ints) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, to_arrow(values, pa.int64()))


def require_agreement(states: Sequence[MergeLane]) -> None:
    """Refuse states that are not those of lanes of one run after one trigger."""
    known = [_common(one.members, one.frontier) for one in states]
    if any(one != known[0] for one in known):
        message = (
            f"merge: lanes that should know the same replicas and frontier differ: {known}; "
            "the checkpoint is damaged; restore it, or start with a new checkpoint and output"
        )
        raise StateError(message)


def _common(members: Members, frontier: int) -> tuple[object, ...]:
    columns = (getattr(members, name).tolist() for name in COMMON)
    return frontier, list(members.names), *columns
