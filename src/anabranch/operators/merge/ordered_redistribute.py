"""The states of the merges R0, R1 and R2 for another number of lanes: by start.

Nothing is remembered of what is behind the current start, so every lane gets the greatest of
the current starts, with the events there: one of them will see more of these, and for the
others all before is passed.  A replica whose elements have reached that start has sent all
before it, so nothing that a lane would still have emitted is lost; a slow copy of an event
between the current starts of two former lanes counts as late, as in one lane it would.

What is held for joining replicas goes to the lane of its start, in the order of starts, which
is the order of its replica.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.operators.contract import Route
from anabranch.operators.merge.ordered_codec import kind_of, read_control, write_control
from anabranch.operators.merge.ordered_state import Held, OrderedState
from anabranch.operators.merge.redistribute import require_agreement
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import Blocks
from anabranch.operators.state.codec import write_tables


def split(state: OrderedState, lanes: int) -> list[OrderedState]:
    """What a state remembers, by the lane that it belongs to from now on."""
    lane_of = _lanes_of(state.held.start, lanes)
    made = []
    for lane in range(lanes):
        share = _copied(state)
        _hold(share, [state], [np.flatnonzero(lane_of == lane)])
        made.append(share)
    for other in made[1:]:
        other.conflicts = 0
    return made


def unite(states: Sequence[OrderedState]) -> OrderedState:
    """The shares of one lane as one state."""
    require_agreement(states)
    made = _copied(states[_furthest(states)])
    made.members.last_seq = np.max([one.members.last_seq for one in states], axis=0)
    made.last_start = np.max([one.last_start for one in states], axis=0)
    made.conflicts = sum(one.conflicts for one in states)
    _hold(made, states, [np.arange(len(one.held)) for one in states])
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


def _hold(made: OrderedState, states: Sequence[OrderedState], rows: Sequence[Ints]) -> None:
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
