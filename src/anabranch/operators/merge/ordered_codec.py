"""The state of the merges R0, R1 and R2 as bytes: Arrow streams, the first says what it is.

replicas   one row each; its metadata has the kind, the version and the output's times
group      the events at the current start; `said_0`, `said_1`, ... in replica order
held       the inserts that wait, and behind them those whose replica left meanwhile: their
replica numbers go on from the members, their names are in the metadata
payloads   those of group and held, one row each
"""

import json
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints, concat
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Reason, Resolved
from anabranch.operators.merge.members_codec import members_table, read_members
from anabranch.operators.merge.ordered_bag import Bag
from anabranch.operators.merge.ordered_held import Held
from anabranch.operators.merge.ordered_latest import Latest
from anabranch.operators.merge.ordered_state import OrderedState
from anabranch.operators.state.codec import (
    StateKind,
    Streams,
    column_of,
    to_table,
)

VERSION: Final = 1
"""Of all three; the kind of state names the case."""


def kind_of(case: MergeCase) -> StateKind:
    """What a state of this case is called."""
    return StateKind(f"anabranch merge {case.value}", VERSION)


def state_tables(state: OrderedState, held: Ints) -> tuple[pa.Table, ...]:
    """The tables of a state, with these rows of what is held."""
    members, group = state.members, state.group
    header = kind_of(state.case).header(
        time=state.schema.time.value,
        frontier=state.frontier,
        current=state.current,
        conflicts=state.conflicts,
        owed=json.dumps([one.replica for one in state.owed]),
        mark=state.mark,
        stable_lag=state.stable_lag,
        promote=int(state.promotes),
    )
    events: dict[str, NDArray[Any]] = {"end": group.end}
    if isinstance(group, Bag):
        events["emitted"] = group.emitted
        events |= {f"said_{i}": group.said[:, i] for i in range(len(members))}
    waiting = state.held.batch(state.schema, held)
    batch = concat([waiting, *(one.batch for one in state.owed)])
    left = [np.full(len(o.batch), len(members) + i) for i, o in enumerate(state.owed)]
    replica = np.concatenate([state.held.replica[held], *left])
    return (
        members_table(members, header, {"last_start": state.last_start}),
        to_table(events),
        to_table({"replica": replica, "start": batch.start, "end": batch.end}),
        group.payload.replace_schema_metadata(None),
        batch.payload.replace_schema_metadata(None),
    )


def read_tables(streams: Streams, case: MergeCase, schema: ElementSchema) -> OrderedState:
    """The state of these tables; what is held has no numbers yet."""
    control, header = streams.first()
    events, waiting, payload, held_payload = (streams.next() for _ in range(4))
    kind_of(case).require_payload(header, held_payload, schema)
    state = OrderedState.empty(
        case,
        replace(schema, has_seq=False, has_replica=False),
        stable_lag=int(header["stable_lag"]),
        promote=header["promote"] == "1",
    )
    state.members = read_members(control, header)
    state.last_start = _copy_of(control, "last_start")
    state.frontier, state.current = int(header["frontier"]), int(header["current"])
    state.conflicts, state.mark = int(header["conflicts"]), int(header["mark"])
    if isinstance(state.group, Latest):
        state.group = Latest(payload, _copy_of(events, "end"))
    else:
        said = np.empty((events.num_rows, len(state.members)), np.int32)
        for i in range(said.shape[1]):
            said[:, i] = _copy_of(events, f"said_{i}")
        ends, emitted = _copy_of(events, "end"), _copy_of(events, "emitted")
        state.group.restore(state.current, payload, ends, emitted, said)
    _read_held(state, waiting, held_payload, json.loads(header["owed"]))
    return state


def _read_held(
    state: OrderedState, waiting: pa.Table, payload: pa.Table, owed: list[str]
) -> None:
    replica, place = _copy_of(waiting, "replica"), np.arange(waiting.num_rows)
    start, end = _copy_of(waiting, "start"), _copy_of(waiting, "end")
    both = Held(replica, start, end, place, place, payload)
    members = len(state.members)
    left = [np.flatnonzero(replica == members + i) for i in range(len(owed))]
    abandoned = Reason.ABANDONED.code
    state.owed = tuple(
        Resolved(name, both.batch(state.schema, rows), np.full(len(rows), abandoned, np.int8))
        for name, rows in zip(owed, left, strict=True)
    )
    state.held = both.keep(np.flatnonzero(replica < members)).compact()


def _copy_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A step changes columns in place, and a view of the bytes may not be changed."""
    return column_of(table, name).copy()
