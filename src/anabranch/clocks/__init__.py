"""Clocks: stables for sources of plain rows, from bounds, heartbeats and idleness.

Sources that send plain rows promise nothing.  What is known about them (how far out of order,
how far behind one another, how long under way) makes heartbeats: all rows that arrive later
have a later time.  Time of the wall clock is always handed in.

    pairs, bounds, builders   what is known, as frozen values; also as TOML (`settings`)
    reference                 heartbeats row by row: the judge
    summary                   rows as one line per source and tick
    clock, clock_state        the same heartbeats from summaries, in columns
    saved, forget             its state, as it is written, and without sources that are gone
    states                    active, idle, paused, blocked, and why
    groups                    one heartbeat for many sources
    late                      rows that break an inferred promise, counted and explained
    learn                     bounds that are learned, with a trail of their changes

Papers: Srivastava and Widom, *Flexible Time Management in Data Stream Systems*, PODS 2004.

>>> clock = Clock(disorder(10), idle_after=60)
>>> state = clock.empty()
>>> state.step(summarise(["a", "b"], [100, 95], [1, 1]), now=1).stable
85
>>> state.step(summarise(["a"], [170], [50]), now=50).stable
85
>>> state.step(Summaries.none(), now=61).stable  # b is idle: the clock goes on without it
160
"""

from anabranch.clocks.beat import Beat, Holder, Report
from anabranch.clocks.bounds import Alike, AnyBounds, Bounds, closure, is_idempotent
from anabranch.clocks.builders import (
    Sensor,
    Token,
    delay,
    disorder,
    duplicates,
    global_counter,
    k_ordered,
    sensors,
    slack,
)
from anabranch.clocks.clock import Clock
from anabranch.clocks.clock_state import ClockState
from anabranch.clocks.groups import cost, group_alike, grouped
from anabranch.clocks.late import Timeliness, sort_out
from anabranch.clocks.learn import Change, Learning
from anabranch.clocks.pairs import Pair
from anabranch.clocks.reference import Heartbeats
from anabranch.clocks.states import Look, State, decide
from anabranch.clocks.summary import Coded, Summaries, fold, summarise, summarise_trigger

__all__ = [
    "Alike",
    "AnyBounds",
    "Beat",
    "Bounds",
    "Change",
    "Clock",
    "ClockState",
    "Coded",
    "Heartbeats",
    "Holder",
    "Learning",
    "Look",
    "Pair",
    "Report",
    "Sensor",
    "State",
    "Summaries",
    "Timeliness",
    "Token",
    "closure",
    "cost",
    "decide",
    "delay",
    "disorder",
    "duplicates",
    "fold",
    "global_counter",
    "group_alike",
    "grouped",
    "is_idempotent",
    "k_ordered",
    "sensors",
    "slack",
    "sort_out",
    "summarise",
    "summarise_trigger",
]
