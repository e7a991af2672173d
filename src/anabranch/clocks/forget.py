"""Sources that are gone are forgotten, so that the state does not grow with all that ever were.

A source is forgotten when it has been idle for `LONG` times `idle_after`, all its rows are
behind the stable, and nobody declares it present; that moves no heartbeat and no stable.  If it
sends again it is a new source: it counts at once, as one that was idle does.  Bounds of named
sources have no others, and forget none.  Some go together, when they are a quarter of all, so
that the cost of a step does not depend on it.
"""

from typing import TYPE_CHECKING, Final

import numpy as np

from anabranch.batch.batch import Codes, Mask
from anabranch.clocks.states import State

if TYPE_CHECKING:
    from anabranch.clocks.clock_state import ClockState

LONG: Final = 1000
"""A source is forgotten after `idle_after` times this."""
UNIT_COLUMNS: Final = ("heartbeat", "greatest", "silent_since", "excused", "changed")


def forget_silent(state: "ClockState", states: Codes, declared: Mask) -> None:
    """Forget what can be, if it is enough; those that are `declared` are there."""
    idle_after = state.clock.idle_after
    if idle_after is None or state.clock.rules.units():
        return
    gone: Mask = (states == State.IDLE) & (state.greatest <= state.overall) & ~declared
    gone &= state.now - state.silent_since >= idle_after * LONG
    if 4 * int(gone.sum()) >= max(len(gone), 1):
        forget(state, gone)


def forget(state: "ClockState", gone: Mask) -> None:
    """Remove these units, with all that waits for them."""
    kept = np.flatnonzero(~gone)
    place = np.cumsum(~gone) - 1
    names = [state.names[at] for at in np.flatnonzero(gone).tolist()]
    state.rename([state.names[at] for at in kept.tolist()])
    for column in UNIT_COLUMNS:
        setattr(state, column, getattr(state, column)[kept])
    state.changed[:] = state.mark  # each is in another place
    state.promises.move(place, ~gone)
    state.counts.move(place, ~gone)
    if state.learner is not None:
        state.learner.forget(names)
