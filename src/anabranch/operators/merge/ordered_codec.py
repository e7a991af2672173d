"""The state of the merges R0, R1 and R2 in parts: small, but for what joining replicas brought.

    control      always: all but what is held, in Arrow streams, and the list of blocks
    nodes/K      the inserts that wait with the numbers of block K; `replica` is a serial
    payload/K    their payloads

The streams of the control:

    replicas     one row each; its metadata has the kind, the version and the output's times
    group        the events at the current start; `said_0`, `said_1`, ... in replica order
    payloads     of group, one row each; then an empty one

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
from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Route
from anabranch.operators.merge.members import Members, require_agreement
from anabranch.operators.merge.ordered_group import Bag, Latest
from anabranch.operators.merge.ordered_state import Held, OrderedState
from anabranch.operators.merge.policy import Policy
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import (
    BLOCK_BITS,
    CONTROL,
    EVERYTHING,
    Blocks,
    InBlocks,
    Saved,
    part_of,
    read_blocks,
    write_blocks,
)
from anabranch.operators.state.codec import (
    StateKind,
    Streams,
    column_of,
    header_of,
    to_table,
    write_tables,
)

VERSION: Final = 3
"""Of all three; the kind of state names the case."""


def kind_of(case: MergeCase) -> StateKind:
    """What a state of this case is called."""
    return StateKind(f"anabranch merge {case.value}", VERSION)


def write_parts(state: OrderedState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    after = EVERYTHING if since is None else since
    held, gone = write_blocks(_in_blocks(state), after)
    blocks = state.blocks.table().replace_schema_metadata({"next_held": str(state.next_held)})
    control = write_tables(*write_control(state), blocks)
    state.blocks.forget(after, state.mark)
    return Saved({CONTROL: control} | held, () if since is None else tuple(gone), state.mark)


def read_parts(
    parts: Mapping[str, bytes], case: MergeCase, schema: ElementSchema
) -> OrderedState:
    """The state that was saved last."""
    kind = kind_of(case)
    streams = kind.open(part_of(parts, CONTROL, kind))
    state = read_control(streams, case, schema)
    table = streams.next()
    state.blocks, state.next_held = Blocks.read(table), int(header_of(table)["next_held"])
    empty = np.empty(0, np.int64)
    names = ("node", "replica", "start", "end")
    tables, payloads = [to_table(dict.fromkeys(names, empty))], [state.held.payload]
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


def write_control(state: OrderedState) -> tuple[pa.Table, ...]:
    """The tables of all but what is held."""
    members, group = state.members, state.group
    header = kind_of(state.case).header(
        time=state.schema.time.value,
        frontier=state.frontier,
        current=state.current,
        conflicts=state.conflicts,
        mark=state.mark,
        stable_lag=state.policy.stable_lag,
        promote=int(state.policy.promote),
    )
    events: dict[str, NDArray[Any]] = {"end": group.end}
    if isinstance(group, Bag):
        events["emitted"] = group.emitted
        events |= {f"said_{i}": group.brought[:, i] for i in range(len(members))}
    return (
        members.table(header, last_start=state.last_start),
        to_table(events),
        group.payload.replace_schema_metadata(None),
        state.schema.payload.empty_table().replace_schema_metadata(None),
    )


def read_control(streams: Streams, case: MergeCase, schema: ElementSchema) -> OrderedState:
    """The state of these tables, without what is held."""
    control, header = streams.first()
    events, payload, empty = (streams.next() for _ in range(3))
    kind_of(case).require_payload(header, empty, schema)
    lag, promote = int(header["stable_lag"]), header["promote"] == "1"
    state = OrderedState.empty(case, schema, Policy(stable_lag=lag, promote=promote))
    state.members = Members.read(control, header)
    state.last_start = _copy_of(control, "last_start")
    state.frontier, state.current = int(header["frontier"]), int(header["current"])
    state.conflicts, state.mark = int(header["conflicts"]), int(header["mark"])
    ends = _copy_of(events, "end")
    if isinstance(state.group, Latest):
        state.group = Latest(payload, ends)
    else:
        brought = np.empty((events.num_rows, len(state.members)), np.int32)
        for i in range(brought.shape[1]):
            brought[:, i] = column_of(events, f"said_{i}")
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


def unite(states: Sequence[OrderedState]) -> OrderedState:
    """The shares of one lane as one state."""
    require_agreement([(one.members, one.frontier) for one in states])
    made = _copied(states[_furthest(states)])
    made.members.last_seq = np.max([one.members.last_seq for one in states], axis=0)
    made.last_start = np.max([one.last_start for one in states], axis=0)
    made.conflicts = sum(one.conflicts for one in states)
    _hold_all(made, states, [np.arange(len(one.held)) for one in states])
    return made


def _furthest(states: Sequence[OrderedState]) -> int:
    """The lane with the greatest current start; of several the one that gets its events."""
    currents = np.array([one.current for one in states])
    furthest = np.flatnonzero(currents == currents.max())
    owner = int(_lanes_of(currents[furthest[:1]], len(states))[0])
    return owner if owner in furthest else int(furthest[0])


def _lanes_of(start: Ints, lanes: int) -> Ints:
    return lanes_of_names(start, start, lanes, Route.START)


def _copied(state: OrderedState) -> OrderedState:
    """The same state, without what is held."""
    streams = kind_of(state.case).open(write_tables(*write_control(state)))
    made = read_control(streams, state.case, state.schema)
    made.policy = state.policy
    return made


def _hold_all(made: OrderedState, states: Sequence[OrderedState], rows: Sequence[Ints]) -> None:
    """Let these inserts of some states wait, numbered anew."""
    some = [one.held.keep(mine) for one, mine in zip(states, rows, strict=True)]
    start = np.concatenate([held.start for held in some])
    order = np.argsort(start, kind="stable")
    payloads = [take(held.payload, held.place) for held in some]
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
