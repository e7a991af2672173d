"""The state of merge R4 as bytes: five Arrow streams, the first of which says what it is.

    replicas   one row each; its metadata has the kind and version of state, and the frontier
    nodes      one row per identity that may still change, in the order of first arrival
    ends       (node, column, end, count): column 0 is the output, i + 1 the i-th replica; the
               count 0 says that all events were removed
    settled    one row per identity that is final and may still be mentioned
    payload    one row per node

When to look at a node again is not written: `restore` finds it out.  No pickle, and nothing
that depends on the machine.  A state of another kind or version is refused by name.
"""

from dataclasses import replace
from typing import Final

from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.members_codec import members_table, read_members
from anabranch.operators.merge.r4_nodes import IN_CONFLICT, ROW, STATUS
from anabranch.operators.merge.r4_restore import restore
from anabranch.operators.merge.r4_settled import END
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.merge.slots import HIGH, LOW, START
from anabranch.operators.state_codec import (
    StateKind,
    column_of,
    matrix_of,
    to_table,
    write_tables,
)

KIND: Final = StateKind("anabranch merge r4", version=1, reads=(1,))

_NAME: Final = {"start": START, "high": HIGH, "low": LOW}
_ENDS: Final = ("node", "column", "end", "count")


def write_state(state: R4State) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    members, settled = state.members, state.settled
    header = KIND.header(
        time=state.schema.time.value,
        frontier=state.frontier,
        conflicts=state.conflicts,
        shrink_only=int(state.shrink_only),
    )
    ids, rows = state.ends()
    facts = state.nodes.facts[ids]
    nodes = {name: facts[:, column] for name, column in _NAME.items()}
    known = settled.rows
    final = {name: known[:, column] for name, column in (_NAME | {"end": END}).items()}
    return write_tables(
        members_table(members, header),
        to_table(nodes | {"in_conflict": facts[:, STATUS] & IN_CONFLICT}),
        to_table({name: rows[:, column] for column, name in enumerate(_ENDS)}),
        to_table(final),
        state.nodes.payloads.take(facts[:, ROW]).replace_schema_metadata(None),
    )


def read_state(data: bytes, schema: ElementSchema) -> R4State:
    """The state that was written, ready for the next step."""
    streams = KIND.open(data)
    control, header = streams.first()
    nodes, ends, final, payload = (streams.next() for _ in range(4))
    KIND.require_payload(header, payload, schema)
    plain = replace(schema, has_seq=False, has_replica=False)
    state = R4State.empty(plain, shrink_only=header["shrink_only"] == "1")
    state.frontier, state.conflicts = int(header["frontier"]), int(header["conflicts"])
    state.members = read_members(control, header)
    state.settled.remember(matrix_of(final, tuple(_NAME)), column_of(final, "end"))
    restore(
        state,
        matrix_of(nodes, tuple(_NAME)),
        column_of(nodes, "in_conflict"),
        matrix_of(ends, _ENDS),
        payload,
    )
    return state
