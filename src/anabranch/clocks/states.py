"""Whether a source takes part in the clock at the moment, and why.

    active     its rows move its heartbeat
    idle       nothing came for `idle_after`: assumed to have nothing; not waited for
    paused     declared to have nothing: not waited for
    blocked    rows wait that were not read: its heartbeat stands still

Silence is what was looked at and found empty.  Down time and a long trigger are none: where
there was no look for longer than `idle_after`, silence begins with the next look, once in each
silence.  A source that the look after that finds empty too is silent, so that looks which are
always far apart do not keep it active for ever.  A source whose rows wait is never silent.  All
is a pure function of what is handed in.

Papers: Heartbeats 3.4, with erratum H18; D8, D13.

>>> decide(Look(silent_since=0, now=60), idle_after=60)
(<State.IDLE: 1>, 'sent nothing for 60, and idle_after is 60')
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from anabranch.batch.batch import Codes, Ints, Mask


class State(IntEnum):
    """Whether a source takes part in the clock."""

    ACTIVE = 0
    IDLE = 1
    PAUSED = 2
    BLOCKED = 3

    @property
    def word(self) -> str:
        """The state's name in reports."""
        return self.name.lower()

    @property
    def counts(self) -> bool:
        """Whether the clock waits for such a source."""
        return self in (State.ACTIVE, State.BLOCKED)


@dataclass(frozen=True, slots=True)
class Look:
    """What is to be seen of a source at a time of the wall clock.

    `silent_since` is the last arrival, or the first look at it; `ahead` are rows of this step
    that were too far in the future to be believed.
    """

    silent_since: int
    now: int
    paused: bool = False
    blocked: bool = False
    ahead: int = 0


def decide(
    look: Look, *, idle_after: int | None = None, show: Callable[[int], str] = str
) -> tuple[State, str]:
    """The state of a source and the reason for it; `show` writes a span of the wall clock."""
    if look.blocked:
        also = ", although it is declared paused" if look.paused else ""
        return State.BLOCKED, f"rows of it wait that were not read{also}"
    if look.paused:
        return State.PAUSED, "declared paused"
    silence = look.now - look.silent_since
    if idle_after is not None and silence >= idle_after:
        what = "sent only rows too far ahead" if look.ahead else "sent nothing"
        return State.IDLE, f"{what} for {show(silence)}, and idle_after is {show(idle_after)}"
    return State.ACTIVE, "its rows move its heartbeat"


def decide_all(
    silent_since: Ints, now: int, *, paused: Mask, blocked: Mask, idle_after: int | None
) -> Codes:
    """The states of many sources, as `decide` gives them."""
    states = np.full(len(silent_since), State.ACTIVE, np.int8)
    if idle_after is not None:
        states[now - silent_since >= idle_after] = State.IDLE
    states[paused] = State.PAUSED
    states[blocked] = State.BLOCKED
    return states
