"""The state of the merges R0, R1 and R2 in parts: small, but for what joining replicas brought.

    control      always: the replicas with the header, the list of blocks, an empty payload,
                 the events at the current start (`brought_0`, ... in replica order), and their
                 payloads
    nodes/K      the inserts that wait with the numbers of block K; `replica` is a serial
    payload/K    their payloads

Numbers are never given again, so a block is written while it fills and when inserts of it are
decided; a block of which all are decided is deleted.

For another number of lanes (`split`, `unite`) starts decide.  Nothing is remembered of what is
behind the current start, so every lane gets the greatest of the current starts, with the events
there: one of them will see more of these, and for the others all before is passed.  A replica
whose elements have reached that start has sent all before it, so nothing that a lane would
still have emitted is lost; a slow copy of an event between the current starts of two former
lanes counts as late, as in one lane it would.  What is held for joining replicas goes to the
lane of its start, in the order of starts, which is the order of its replica.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.batch.hashing import hash_rows
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Route
from anabranch.operators.merge.codec import equal_without
from anabranch.operators.merge.members import Members, require_agreement
from anabranch.operators.merge.ordered_group import Bag, Latest
from anabranch.operators.merge.ordered_state import Held, OrderedState
from anabranch.operators.merge.policy import Policy
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import (
    BLOCK_BITS,
    EVERYTHING,
    Blocks,
    InBlocks,
    Saved,
    read_blocks,
)
from anabranch.operators.state.codec import StateKind, column_of, header_of, to_table
from anabranch.operators.state.parts import Control, open_control, save
from anabranch.operators.state.reshape import Reshape, reshaped

VERSION: Final = 3
"""Of all three; the kind of state names the case."""


def kind_of(case: MergeCase) -> StateKind:
    """What a state of this case is called."""
    return StateKind(f"anabranch merge {case.value}", VERSION)


def write_parts(state: OrderedState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    control, held = control_of(state), _in_blocks(state)
    saved = save(control.head, held, state.schema.payload, since, more=control.more)
    state.blocks.forget(EVERYTHING if since is None else since, state.mark)
    return saved


def read_parts(
    parts: Mapping[str, bytes], case: MergeCase, schema: ElementSchema
) -> OrderedState:
    """The state that was saved last."""
    kind = kind_of(case)
    control = open_control(parts, kind, schema, more=2)
    state = read_control(control, case, schema)
    state.blocks, state.next_held = control.blocks, int(control.header["next_held"])
    names = ("node", "replica", "start", "end")
    tables = [to_table(dict.fromkeys(names, np.empty(0, np.int64)))]
    payloads = [state.held.payload]
    for rows, _, payload in read_blocks(parts, state.blocks, kind):
        tables.append(rows)
        payloads.append(payload)
    whole = pa.concat_tables(tables)
    number, serial, start, end = (_copy_of(whole, name) for name in names)
    payload = pa.concat_tables(payloads) if len(schema.payload) else state.held.payload
    # Who came later has the greater serial, and stands behind.
    replica = np.searchsorted(state.members.serial, serial)
    state.held = Held(replica, start, end, np.arange(len(number)), number, payload)
    state.blocks.hold(number)
    return state


def control_of(state: OrderedState) -> Control:
    """All but what is held: the replicas, and the events at the current start."""
    members, group = state.members, state.group
    header = kind_of(state.case).header(
        time=state.schema.time.value,
        frontier=state.frontier,
        current=state.current,
        conflicts=state.conflicts,
        mark=state.mark,
        next_held=state.next_held,
        stable_lag=state.policy.stable_lag,
        promote=int(state.policy.promote),
    )
    events: dict[str, NDArray[Any]] = {"end": group.end}
    if isinstance(group, Bag):
        events["emitted"] = group.emitted
        events |= {f"brought_{i}": group.brought[:, i] for i in range(len(members))}
    head, empty = members.table(header, last_start=state.last_start), state.held.payload[:0]
    payload = group.payload.replace_schema_metadata(None)
    return Control(head, header_of(head), Blocks.none(), empty, (to_table(events), payload))


def read_control(control: Control, case: MergeCase, schema: ElementSchema) -> OrderedState:
    """The state of a control, without what is held."""
    header, (events, payload) = control.header, control.more
    lag, promote = int(header["stable_lag"]), header["promote"] == "1"
    state = OrderedState.empty(case, schema, Policy(stable_lag=lag, promote=promote))
    state.members = Members.read(control.head, header)
    state.last_start = _copy_of(control.head, "last_start")
    state.frontier, state.current = int(header["frontier"]), int(header["current"])
    state.conflicts, state.mark = int(header["conflicts"]), int(header["mark"])
    ends = _copy_of(events, "end")
    if isinstance(state.group, Latest):
        state.group = Latest(payload, ends)
    else:
        brought = np.empty((events.num_rows, len(state.members)), np.int32)
        for i in range(brought.shape[1]):
            brought[:, i] = column_of(events, f"brought_{i}")
        emitted = _copy_of(events, "emitted")
        state.group.restore(state.current, payload, ends, emitted, brought)
    return state


def _in_blocks(state: OrderedState) -> InBlocks:
    """What is held."""
    held = state.held

    def ids(block: int) -> Ints:
        edges = [block << BLOCK_BITS, (block + 1) << BLOCK_BITS]
        return held.number[slice(*np.searchsorted(held.number, edges))]

    def tables(ids: Ints) -> tuple[pa.Table, ...]:
        rows = np.searchsorted(held.number, ids)
        serial = state.members.serial[held.replica[rows]]
        times = {"start": held.start[rows], "end": held.end[rows]}
        return (to_table({"node": ids, "replica": serial} | times),)

    def payload(ids: Ints) -> pa.Table:
        return take(held.payload, held.place[np.searchsorted(held.number, ids)])

    return InBlocks(state.blocks, ids, tables, payload)


def _copy_of(table: pa.Table, name: str) -> NDArray[Any]:
    """A step changes columns in place, and a view of the bytes may not be changed."""
    return column_of(table, name).copy()


def split(state: OrderedState, lanes: int) -> list[OrderedState]:
    """What a state remembers, by the lane that it belongs to from now on."""
    lane_of = _lanes_of(state.held.start, lanes)
    made = []
    for lane in range(lanes):
        share = _copied(state)
        _hold_all(share, [state], [np.flatnonzero(lane_of == lane)])
        made.append(share)
    for other in made[1:]:
        other.conflicts = 0
    return made


def unite(states: Sequence[OrderedState], reshape: Reshape | None = None) -> OrderedState:
    """The shares of one lane as one state."""
    require_agreement([(one.members, one.frontier) for one in states])
    made = _copied(states[_furthest(states)], reshape)
    made.members.last_seq = np.max([one.members.last_seq for one in states], axis=0)
    made.last_start = np.max([one.last_start for one in states], axis=0)
    made.conflicts = sum(one.conflicts for one in states)
    _hold_all(made, states, [np.arange(len(one.held)) for one in states], reshape)
    return made


def _furthest(states: Sequence[OrderedState]) -> int:
    """The lane with the greatest current start; of several the one that gets its events."""
    currents = np.array([one.current for one in states])
    furthest = np.flatnonzero(currents == currents.max())
    owner = int(_lanes_of(currents[furthest[:1]], len(states))[0])
    return owner if owner in furthest else int(furthest[0])


def _lanes_of(start: Ints, lanes: int) -> Ints:
    return lanes_of_names(start, start, lanes, Route.START)


def _copied(state: OrderedState, reshape: Reshape | None = None) -> OrderedState:
    """The same state, without what is held; with other payload columns, if these change."""
    control, schema = control_of(state), state.schema
    if reshape is not None:
        events, payload = control.more
        payload = reshape.payload(payload, events.num_rows).replace_schema_metadata(None)
        _require_apart(reshape, payload)
        schema = reshaped(schema, reshape)
        control = control._replace(empty=schema.payload.empty_table(), more=(events, payload))
    made = read_control(control, state.case, schema)
    made.policy = state.policy
    return made


def _require_apart(reshape: Reshape, events: pa.Table) -> None:
    """Refuse columns without which events of the current start become equal."""
    if not reshape.dropped:
        return
    words = hash_rows(events, events.num_rows)
    if len(np.unique(words, axis=0)) < events.num_rows:
        raise equal_without(reshape)


def _hold_all(
    made: OrderedState,
    states: Sequence[OrderedState],
    rows: Sequence[Ints],
    reshape: Reshape | None = None,
) -> None:
    """Hold these inserts of some states, renumbered."""
    some = [one.held.keep(mine) for one, mine in zip(states, rows, strict=True)]
    start = np.concatenate([held.start for held in some])
    order = np.argsort(start, kind="stable")
    payloads = [take(held.payload, held.place) for held in some]
    if reshape is not None:
        payloads = [
            reshape.payload(one, len(held)) for one, held in zip(payloads, some, strict=True)
        ]
    payload = pa.concat_tables(payloads) if payloads[0].num_columns else payloads[0]
    made.blocks, made.next_held = Blocks.none(), 0
    numbers = made.number(len(order))
    made.held = Held(
        np.concatenate([held.replica for held in some])[order],
        start[order],
        np.concatenate([held.end for held in some])[order],
        order,
        numbers,
        payload,
    )
