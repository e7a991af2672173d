"""What the compiled merge R3 with policies reads and writes, as arrays with named columns.

A node is a row of `rows` (the columns of `r3_nodes`) and the same row of `book`, which has what
only policies need.  BORN is here the rank in which the merge came to know the event, ABSENT if
it does not know it; OUT is its end on the output, SHOWN that which readers of earlier steps
have.

    NEXT, PREVIOUS            the events behind and before it, by rank
    NEXT + 2, PREVIOUS + 2    the same among those that wait, if it does
    KEY, PLACE                see `r3_policy_due`
    HELD + 2 r                the number of replica r's insert that is held back, else NOBODY
    HELD + 2 r + 1            the end with which it was inserted

Kernels make no arrays, so everything that they write has its room beforehand (`has_room`).

Papers: LMerge IV-D, in2t; V-A.
"""

from typing import Any, Final, NamedTuple

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Codes, Ints
from anabranch.batch.kernel import part
from anabranch.operators.merge.policy import (
    Always,
    Detach,
    First,
    Follow,
    FollowLeader,
    HalfFrozen,
    HighestStart,
    Ignore,
    Leader,
    MostFree,
    OnStable,
    Policy,
    Quorum,
    Raise,
)
from anabranch.operators.merge.r3_nodes import ABSENT, BLOCK_BITS, BORN, FLAGS
from anabranch.operators.merge.slots import NOBODY

NEXT: Final = 0
PREVIOUS: Final = 1
KEY: Final = 4
PLACE: Final = 5
HELD: Final = 6

ALL: Final = 0
WAITING: Final = 2
"""The row of all events; the row of those that are not on the output, but were withdrawn."""

WITHDRAWN: Final = 128
"""A flag: it was on the output, and an adjust took it away."""
LISTED: Final = 256
"""A flag, within one step: it is in `gone`."""
WAITS: Final = 2048
"""A flag: it is in the row of those that wait."""

# Columns of `control`, a row per replica.
FRONTIER: Final = 0
LAST_SEQ: Final = 1
GUARANTEE: Final = 2
HIGHEST: Final = 3
"""The highest start of its inserts."""
PROMOTED: Final = 4
"""The guarantee of one that was promoted."""
ATTACHED: Final = 5
"""0: it left within this step, and its column goes at the end of it."""
FREE: Final = 6
"""How many free events it has."""
VOTES: Final = 7
"""1: it counts for a quorum, in the present view."""
SERIAL: Final = 8
SILENT: Final = 9
"""How many half frozen events it does not have, and nobody has denied."""
CONTROL_COLUMNS: Final = 10

# Places of `numbers`, which kernels change.
OUTPUT: Final = 0
"""The frontier of the output."""
RANK: Final = 1
"""The rank that the next event gets."""
NUMBER: Final = 2
"""The number that the next held insert gets."""
NUMBER_BASE: Final = 3
"""That of the first one of this step."""
CONFLICTS: Final = 4
EVENTS: Final = 5
"""How many events the merge knows."""
HEAD: Final = 21
TAIL: Final = 22
"""The first and the last of a row: of ALL, and WAITING places further that of the other."""
HEAPED: Final = 6
"""How many events are on the heap."""
FOLLOWED: Final = 8
CHOSEN: Final = 9
SURE: Final = 10
VIEW_FRONTIER: Final = 11
"""The present view, with VOTES: see `r3_view.View`."""
SLOWEST: Final = 12
HAD_JOINED: Final = 13
SAID: Final = 14
RESOLVED: Final = 15
GONE: Final = 16
STRETCHES: Final = 17
"""How many rows of these lists are used."""
MARK: Final = 18
VISITS: Final = 19
"""How many events stables and changes of view looked at."""
STOPPED: Final = 20
"""1: a violation stopped the loop."""
NUMBERS: Final = 25

# Places of `choice`, the policy.
ADJUSTS: Final = 0
INSERTS: Final = 1
LAG: Final = 2
VIOLATIONS: Final = 3
SHRINK_ONLY: Final = 4
PROMOTE: Final = 5
NAMED: Final = 6
"""The replica that `follow` names, or NOBODY."""

ADJUSTS_CODES: Final = {OnStable: 0, Always: 1, FollowLeader: 2, Follow: 3}
INSERTS_CODES: Final = {
    First: 0,
    Leader: 1,
    HighestStart: 2,
    MostFree: 3,
    HalfFrozen: 4,
    Quorum: 5,
}
VIOLATION_CODES: Final = {Ignore: 0, Raise: 1, Detach: 2}

ALWAYS: Final = ADJUSTS_CODES[Always]
FOLLOW_LEADER: Final = ADJUSTS_CODES[FollowLeader]
FOLLOW: Final = ADJUSTS_CODES[Follow]
FIRST: Final = INSERTS_CODES[First]
HIGHEST_START: Final = INSERTS_CODES[HighestStart]
MOST_FREE: Final = INSERTS_CODES[MostFree]
HALF_FROZEN: Final = INSERTS_CODES[HalfFrozen]
QUORUM: Final = INSERTS_CODES[Quorum]
RAISE: Final = VIOLATION_CODES[Raise]
DETACH: Final = VIOLATION_CODES[Detach]

# Columns of `said`: what went to the output; a stable has no node, and its time in END.
KIND: Final = 0
NODE: Final = 1
END: Final = 2
OLD_END: Final = 3
GAP: Final = 3
"""A kind: not said, but noted: the decider with the serial END never mentioned this event."""
SAID_COLUMNS: Final = 4

# Columns of `resolved`: inserts of earlier steps that are no longer pending.
HELD_NUMBER: Final = 0
HELD_NODE: Final = 1
HELD_SERIAL: Final = 2
HELD_END: Final = 3
HELD_REASON: Final = 4
RESOLVED_COLUMNS: Final = 5


class Table(NamedTuple):
    """All of it.  `gone` are nodes that leave when the step ends.

    `heap` and `due` are those of `r3_policy_due`.  `held_by[n]` is the element of this step
    that is held with the number NUMBER_BASE + n; `reasons` are those of the elements.
    `needed[n]` is how many of n voters make a quorum.  `stretches` has rows (start, end, serial
    of the promoted replica).
    """

    rows: Ints
    book: Ints
    heap: Ints
    due: Ints
    changed: Ints
    control: Ints
    numbers: Ints
    choice: Ints
    needed: Ints
    said: Ints
    resolved: Ints
    gone: Ints
    stretches: Ints
    held_by: Ints
    reasons: Codes


def encode(policy: Policy, names: list[str]) -> list[int]:
    """The policy as `choice` has it, for replicas of these names."""
    adjusts = policy.adjusts
    followed = adjusts.replica if isinstance(adjusts, Follow) else None
    return [
        ADJUSTS_CODES[type(adjusts)],
        INSERTS_CODES[type(policy.inserts)],
        policy.stable_lag,
        VIOLATION_CODES[type(policy.violations)],
        int(policy.shrink_only),
        int(policy.promote),
        names.index(followed) if followed in names else NOBODY,
    ]


def needed_room(events: int, replicas: int) -> tuple[int, int]:
    """Rows of `said` and of `resolved` that one element, or one attachment, may need."""
    # Every joined replica may decide once, and then the view may change.
    rounds = replicas + 2
    return rounds * (2 * events + 3), replicas * (events + 1)


@part
def has_room(table: Any) -> Any:
    """Whether the lists have room for whatever the next element brings."""
    events, replicas = table.numbers[EVENTS] + 1, table.control.shape[0]
    said = table.said.shape[0] - table.numbers[SAID]
    resolved = table.resolved.shape[0] - table.numbers[RESOLVED]
    return said >= (replicas + 2) * (2 * events + 3) and resolved >= replicas * (events + 1)


@part
def is_known(table: Any, node: Any) -> Any:
    """Whether the merge knows this event."""
    return node != NOBODY and table.rows[node, BORN] != ABSENT


@part
def touch(table: Any, node: Any) -> None:
    """Note that what is written of this node has changed."""
    table.changed[node >> BLOCK_BITS] = table.numbers[MARK]


@part
def is_joined(table: Any, replica: Any) -> Any:
    """Whether its stables count."""
    if table.control[replica, ATTACHED] == 0:
        return False
    return table.control[replica, GUARANTEE] <= table.numbers[OUTPUT]


@part
def link(table: Any, row: Any, node: Any) -> None:
    """Put an event at the end of a row."""
    last = table.numbers[TAIL + row]
    table.book[node, NEXT + row], table.book[node, PREVIOUS + row] = NOBODY, last
    if last == NOBODY:
        table.numbers[HEAD + row] = node
    else:
        table.book[last, NEXT + row] = node
    table.numbers[TAIL + row] = node


@part
def unlink(table: Any, row: Any, node: Any) -> None:
    """Take an event out of a row."""
    before, behind = table.book[node, PREVIOUS + row], table.book[node, NEXT + row]
    if before == NOBODY:
        table.numbers[HEAD + row] = behind
    else:
        table.book[before, NEXT + row] = behind
    if behind == NOBODY:
        table.numbers[TAIL + row] = before
    else:
        table.book[behind, PREVIOUS + row] = before


@part
def stop_waiting(table: Any, node: Any) -> None:
    """Take an event out of the row of those that wait, if it is there."""
    if table.rows[node, FLAGS] & WAITS:
        table.rows[node, FLAGS] &= ~WAITS
        unlink(table, WAITING, node)


@part
def lagging(time: Any, lag: Any) -> Any:
    """The time that stays behind this one; FOREVER and NEVER stay as they are."""
    if time == FOREVER_UNITS:
        return time
    return time - lag if time > NEVER_UNITS + lag else NEVER_UNITS
