"""The state of merge R3 with a policy as bytes: Arrow streams, the first says what it is.

replicas   one row each; its metadata has the policy, the frontier and whom the policy asks
nodes      one row per event that may still change, in the order in which they came;
`end_7` is what the attachment with serial 7 says, `held_7` the number of its
insert that is held back (-1: none) and `held_end_7` the end of that
settled    one row per event that is final and may still be mentioned
payload    one row per node
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.operators.merge.members import Members
from anabranch.operators.merge.members_codec import members_table, read_members
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.r3_codec import (
    named_table,
    payload_table,
    read_rows,
)
from anabranch.operators.merge.r3_nodes import BORN, FLAGS, Nodes
from anabranch.operators.merge.r3_policy_state import R3PolicyState, first_numbers, new_control
from anabranch.operators.merge.r3_policy_table import (
    CHOSEN,
    CONFLICTS,
    FOLLOWED,
    FRONTIER,
    HAD_JOINED,
    HELD,
    HIGHEST,
    LAST_SEQ,
    NUMBER,
    OUTPUT,
    PROMOTED,
    RANK,
    SURE,
    VIEW_FRONTIER,
    VOTES,
    WITHDRAWN,
)
from anabranch.operators.merge.settled import END, Settled
from anabranch.operators.merge.settled_codec import read_settled, settled_table
from anabranch.operators.merge.slots import LOW, NOBODY
from anabranch.operators.state_codec import StateKind, column_of, to_table, write_tables

KIND: Final = StateKind("anabranch merge r3 with a policy", version=1, reads=(1,))

_NUMBERS: Final = {
    "frontier": OUTPUT,
    "conflicts": CONFLICTS,
    "next_rank": RANK,
    "next_held": NUMBER,
    "followed": FOLLOWED,
    "chosen": CHOSEN,
    "sure": SURE,
    "view_frontier": VIEW_FRONTIER,
    "had_joined": HAD_JOINED,
}
_CONTROL: Final = {"highest_start": HIGHEST, "promoted_from": PROMOTED, "votes": VOTES}


def write_state(state: R3PolicyState) -> bytes:
    """The bytes from which `read_state` makes an equal state."""
    ids, settled = state.by_rank(), state.settled
    return write_tables(
        control_table(state),
        events_table(state, ids).drop_columns("node"),
        settled_table(settled.all()),
        payload_of(state, ids),
    )


def read_state(data: bytes, schema: ElementSchema) -> R3PolicyState:
    """The state that was written, ready for the next step."""
    streams = KIND.open(data)
    control, header = streams.first()
    nodes, known, payload = (streams.next() for _ in range(3))
    KIND.require_payload(header, payload, schema)
    state = new_state(schema, header, control)
    # Numbers are given anew: whoever saves in parts must write all of them.
    state.mark += 1
    ids = np.arange(nodes.num_rows)
    restore(state, ids, read_events(state, nodes), payload, state.mark)
    names = read_settled(known)
    state.settled.remember(names[:, : LOW + 1], names[:, END], state.mark)
    return state.restored()


def payload_of(state: R3PolicyState, ids: Ints) -> pa.Table:
    """The payloads of these nodes."""
    # What these tables need of a state, ours has too.
    return payload_table(cast("Any", state), ids)


def control_table(state: R3PolicyState) -> pa.Table:
    """The replicas, with the header of the state."""
    header = KIND.header(
        time=state.schema.time.value,
        settled=state.settled.first,
        mark=state.mark,
        policy=json.dumps(state.policy.to_dict()),
        expelled=json.dumps(state.expelled),
        **{name: int(state.numbers[place]) for name, place in _NUMBERS.items()},
    )
    more = {name: state.control[:, column] for name, column in _CONTROL.items()}
    return members_table(state.members, header, more)


def new_state(
    schema: ElementSchema, header: Mapping[str, str], control: pa.Table
) -> R3PolicyState:
    """A state without events, as far as its control tells."""
    plain = replace(schema, has_seq=False, has_replica=False)
    members = read_members(control, header)
    numbers = first_numbers()
    for name, place in _NUMBERS.items():
        numbers[place] = int(header[name])
    state = R3PolicyState.empty(plain, policy=Policy.from_dict(json.loads(header["policy"])))
    state.members, state.numbers = members, numbers
    state.nodes = Nodes(plain.payload, replicas=len(members))
    state.book = np.empty((0, HELD + 2 * len(members)), np.int64)
    state.settled = Settled(int(header["settled"]))
    state.control = _read_control(control, members, state.control)
    state.expelled = json.loads(header["expelled"])
    members.promoted = state.control[:, PROMOTED].copy()
    state.mark = int(header["mark"])
    return state


def _read_control(table: pa.Table, members: Members, empty: Ints) -> Ints:
    promised = zip(members.serial.tolist(), members.guarantee.tolist(), strict=True)
    control = np.vstack([empty, *(new_control(*one) for one in promised)])
    control[:, FRONTIER], control[:, LAST_SEQ] = members.frontier, members.last_seq
    for name, column in _CONTROL.items():
        control[:, column] = column_of(table, name)
    return control


def events_table(state: R3PolicyState, ids: Ints) -> pa.Table:
    """These nodes, without their payloads."""
    rows, book = state.nodes.rows[ids], state.book[ids]
    more: dict[str, NDArray[Any]] = {
        "rank": rows[:, BORN],
        "withdrawn": (rows[:, FLAGS] & WITHDRAWN != 0).astype(np.int8),
    }
    for i, serial in enumerate(state.members.serial.tolist()):
        more[f"held_{serial}"] = book[:, HELD + 2 * i]
        more[f"held_end_{serial}"] = book[:, HELD + 2 * i + 1]
    table = named_table(cast("Any", state), ids)
    for name, column in zip(more, to_table(more).columns, strict=True):
        table = table.append_column(name, column)
    return table


def read_events(state: R3PolicyState, table: pa.Table) -> tuple[Ints, Ints]:
    """The rows and the book of a table of nodes."""
    rows = read_rows(table, state.members)
    rows[:, BORN] = column_of(table, "rank")
    rows[:, FLAGS] |= np.where(column_of(table, "withdrawn") != 0, WITHDRAWN, 0)
    book = np.full((len(rows), HELD + 2 * len(state.members)), NOBODY, np.int64)
    for i, serial in enumerate(state.members.serial.tolist()):
        # Who was attached after this was written has said nothing here.
        if f"held_{serial}" in table.column_names:
            book[:, HELD + 2 * i] = column_of(table, f"held_{serial}")
            book[:, HELD + 2 * i + 1] = column_of(table, f"held_end_{serial}")
    return rows, book


def restore(
    state: R3PolicyState, ids: Ints, events: tuple[Ints, Ints], payload: pa.Table, mark: int
) -> None:
    """Fill a state without events with these."""
    rows, book = events
    columns = read_table(payload) if payload.num_columns else []
    state.nodes.restore(ids, rows, columns, mark)
    state.book = np.full((len(state.nodes.rows), book.shape[1]), NOBODY, np.int64)
    state.book[ids] = book
