"""The state of merge R4 as bytes: five Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per identity that may still change, in the order of first arrival
    ends       (node, column, end, count): the position among the nodes; column 0 is the output,
               i + 1 the attachment with serial i; the count 0 says that all events were removed
    settled    one row per identity that is final and may still be mentioned
    payload    one row per node

When to look at a node again is not written: `restore` finds it out.  Version 1, which had no
serials (replicas counted from 0), is read as well.
"""

from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.members_codec import members_table, read_members
from anabranch.operators.merge.r4_nodes import BORN, IN_CONFLICT, ROW, STATUS
from anabranch.operators.merge.r4_restore import Written, restore
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.settled_codec import read_settled, settled_table
from anabranch.operators.merge.slots import HIGH, LOW, START
from anabranch.operators.state_codec import (
    StateKind,
    column_of,
    matrix_of,
    to_table,
    write_tables,
)
from anabranch.operators.state_parts import Blocks

KIND: Final = StateKind("anabranch merge r4", version=2, reads=(1, 2))

_NAME: Final = {"start": START, "high": HIGH, "low": LOW}
_ENDS: Final = ("node", "column", "end", "count")
_COLUMN: Final = _ENDS.index("column")


def write_state(state: R4State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    ids = state.nodes.ids()
    return write_tables(
        control_table(state),
        node_table(state, ids).drop_columns("node"),
        end_table(state, ids),
        settled_table(state.settled.all()),
        payload_table(state, ids).replace_schema_metadata(None),
    )


def read_state(data: bytes, schema: ElementSchema) -> R4State:
    """The state that was written, ready for the next step."""
    streams = KIND.open(data)
    control, header = streams.first()
    nodes, ends, final, payload = (streams.next() for _ in range(4))
    KIND.require_payload(header, payload, schema)
    state = new_state(schema, header, read_members(control, header))
    # Numbers are given anew: whoever saves in parts must write all of them.
    state.mark += 1
    names = read_settled(final)
    state.settled.remember(names[:, : LOW + 1], names[:, END], state.mark)
    ids = np.arange(nodes.num_rows)
    blocks = Blocks.none()
    blocks.add(ids, state.mark)
    restore(state, read_nodes(ids, nodes, read_ends(ends, state.members), payload), blocks)
    state.nodes.next_born = max(state.nodes.next_born, int(header.get("next_born", "0")))
    return state


def control_table(state: R4State) -> pa.Table:
    """The replicas, with the header of the state."""
    header = KIND.header(
        time=state.schema.time.value,
        frontier=state.frontier,
        conflicts=state.conflicts,
        shrink_only=int(state.shrink_only),
        stable_lag=state.stable_lag,
        promote=int(state.promote),
        next_born=state.nodes.next_born,
        settled=state.settled.first,
        mark=state.mark,
    )
    return members_table(state.members, header)


def new_state(schema: ElementSchema, header: dict[str, str], members: Members) -> R4State:
    """A state without events, as far as the header tells."""
    plain = replace(schema, has_seq=False, has_replica=False)
    state = R4State.empty(
        plain,
        shrink_only=header["shrink_only"] == "1",
        stable_lag=int(header.get("stable_lag", "0")),
        promote=header.get("promote", "0") == "1",
    )
    state.frontier, state.conflicts = int(header["frontier"]), int(header["conflicts"])
    state.members, state.settled = members, Settled(int(header.get("settled", "0")))
    state.mark = int(header.get("mark", "0"))
    return state


def node_table(state: R4State, ids: Ints) -> pa.Table:
    """These nodes, without their ends and payloads."""
    facts = state.nodes.facts[ids]
    names = {name: facts[:, column] for name, column in _NAME.items()}
    flags = {"born": facts[:, BORN], "in_conflict": facts[:, STATUS] & IN_CONFLICT}
    return to_table({"node": ids} | names | flags)


def end_table(state: R4State, ids: Ints) -> pa.Table:
    """The ends of these nodes."""
    rows = state.ends(ids)
    rows[:, _COLUMN] = np.append(0, state.members.serial + 1)[rows[:, _COLUMN]]
    return to_table({name: rows[:, column] for column, name in enumerate(_ENDS)})


def payload_table(state: R4State, ids: Ints) -> pa.Table:
    """The payloads of these nodes."""
    return state.nodes.payloads.take(state.nodes.facts[ids, ROW])


def read_ends(table: pa.Table, members: Members) -> Ints:
    """The rows of a table of ends; who is not attached any more is left out."""
    rows = matrix_of(table, _ENDS)
    known = np.append(0, members.serial + 1)
    rows = rows[np.isin(rows[:, _COLUMN], known)]
    # Who came later has the greater serial, and stands behind.
    rows[:, _COLUMN] = np.searchsorted(known, rows[:, _COLUMN])
    return rows


def read_nodes(ids: Ints, nodes: pa.Table, ends: Ints, payload: pa.Table) -> Written:
    """What a table of nodes says of these nodes."""
    has_born = "born" in nodes.column_names
    return Written(
        ids,
        matrix_of(nodes, tuple(_NAME)),
        column_of(nodes, "born") if has_born else np.arange(nodes.num_rows),
        column_of(nodes, "in_conflict"),
        ends,
        payload,
    )
