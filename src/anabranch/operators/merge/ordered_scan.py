"""The elements of a step in their order, as far as times alone decide: no payload is looked at.

One pass decides for each element whether it breaks a promise, comes too late, is held back,
opens a new current start (and so is emitted), or is at the current start, where payloads must
be compared.  Current start and frontier do not depend on that comparison, so this is exact.

`sequence` is what the output may show, in order: inserts that open a start or are at the
current one, and every stable.  Rows that were held back before the step come first among the
rows of a step; a replica's held rows are a chain (`following`), oldest first.

Papers: LMerge IV-A to IV-C, the tests against MaxVs and MaxStable, with errata L5 and L9.
"""

from typing import Final, NamedTuple

from anabranch.batch.batch import ADJUST, FOREVER_UNITS, NEVER_UNITS, STABLE, Codes, Ints
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge import codes

OPENS: Final = 0
"""An insert that is the first of its start on the output."""
JOINS: Final = 1
"""An insert at the current start, which may be new on the output."""
FINAL: Final = 2
"""An insert at the current start, which is final: it may only be known."""
MOVES: Final = 3
"""A stable; its time stands in place of a row."""

NOBODY: Final = -1
"""The end of a chain; no row."""

# Places in `clock`.
FRONTIER: Final = 0
CURRENT: Final = 1
LENGTH: Final = 2
LEADER: Final = 3
VISITS: Final = 4
LAG: Final = 5
CLOCK_SIZE: Final = 6


class Rows(NamedTuple):
    """The rows of a step as columns; `seq` is empty if the streams have none."""

    kind: Codes
    start: Ints
    end: Ints
    seq: Ints
    replica: Ints


class Control(NamedTuple):
    """What is known of each replica, changed in place; `oldest` and `newest` held row."""

    guarantee: Ints
    frontier: Ints
    last_seq: Ints
    last_start: Ints
    oldest: Ints
    newest: Ints


class Found(NamedTuple):
    """What the scan writes: per row a reason and the next row of a chain; the sequence."""

    reasons: Codes
    following: Ints
    what: Codes
    row: Ints


@kernel
def scan(
    rows: Rows, control: Control, found: Found, clock: Ints, held: int, starts_increase: int
) -> None:
    """Judge every row; the first `held` rows were held back before."""
    for i in range(held):
        hold(rows, control, found, i)
    advance(rows, control, found, clock)
    has_seq = rows.seq.size > 0
    for i in range(held, rows.kind.size):
        replica = rows.replica[i]
        if has_seq:
            if rows.seq[i] <= control.last_seq[replica]:
                found.reasons[i] = codes.REDELIVERY
                continue
            control.last_seq[replica] = rows.seq[i]
        if rows.kind[i] == STABLE:
            judge_stable(rows, control, found, clock, i)
        elif rows.kind[i] == ADJUST:
            found.reasons[i] = codes.NOT_INSERT_ONLY
        else:
            judge_insert(rows, control, found, clock, i, starts_increase)
    clock[VISITS] += rows.kind.size - held


@part
def judge_insert(
    rows: Rows, control: Control, found: Found, clock: Ints, i: int, starts_increase: int
) -> None:
    """Against its replica's promises first, then against the output."""
    start, end, replica = rows.start[i], rows.end[i], rows.replica[i]
    if end <= start:
        found.reasons[i] = codes.BACKWARDS if end < start else codes.NO_CHANGE
    elif start < control.frontier[replica]:
        found.reasons[i] = codes.BEHIND_STABLE
    elif start < control.last_start[replica]:
        found.reasons[i] = codes.OUT_OF_ORDER
    elif starts_increase and start == control.last_start[replica]:
        found.reasons[i] = codes.SAME_START
    else:
        control.last_start[replica] = start
        is_joined = control.guarantee[replica] <= clock[FRONTIER]
        if is_joined or start < max(clock[FRONTIER], clock[CURRENT]):
            take(rows, found, clock, i)
        else:
            hold(rows, control, found, i)


@part
def judge_stable(rows: Rows, control: Control, found: Found, clock: Ints, i: int) -> None:
    """A stable that moves the output's frontier may let replicas join."""
    time, replica = rows.start[i], rows.replica[i]
    found.reasons[i] = codes.FOLLOWS
    if time > control.frontier[replica]:
        control.frontier[replica] = time
        if control.guarantee[replica] > clock[FRONTIER]:
            found.reasons[i] = codes.JOINING
        elif behind(time, clock) > clock[FRONTIER]:
            found.reasons[i] = codes.LEADS
            clock[LEADER] = i
            advance(rows, control, found, clock)


@part
def advance(rows: Rows, control: Control, found: Found, clock: Ints) -> None:
    """Move the frontier as far as the joined replicas allow, and decide what was held."""
    while True:
        for replica in range(control.guarantee.size):
            is_joined = control.guarantee[replica] <= clock[FRONTIER]
            until = FOREVER_UNITS if is_joined else clock[FRONTIER]
            release(rows, control, found, clock, replica, until)
        time = clock[FRONTIER]
        for replica in range(control.guarantee.size):
            if control.guarantee[replica] <= clock[FRONTIER]:
                time = max(time, behind(control.frontier[replica], clock))
        if time == clock[FRONTIER]:
            break
        clock[FRONTIER] = time
        put(found, clock, MOVES, time)


@part
def behind(time: int, clock: Ints) -> int:
    """How far the output may be when a replica is here; FOREVER passes at once."""
    lag = clock[LAG]
    return time if time == FOREVER_UNITS else max(time, NEVER_UNITS + lag) - lag


@part
def release(
    rows: Rows, control: Control, found: Found, clock: Ints, replica: int, until: int
) -> None:
    """Decide a replica's held rows that start before this time, oldest first."""
    i = control.oldest[replica]
    while i != NOBODY and rows.start[i] < until:
        take(rows, found, clock, i)
        clock[VISITS] += 1
        i = found.following[i]
    control.oldest[replica] = i


@part
def hold(rows: Rows, control: Control, found: Found, i: int) -> None:
    """Add a row to the end of its replica's chain."""
    replica = rows.replica[i]
    found.reasons[i] = codes.HELD
    found.following[i] = NOBODY
    if control.oldest[replica] == NOBODY:
        control.oldest[replica] = i
    else:
        found.following[control.newest[replica]] = i
    control.newest[replica] = i


@part
def take(rows: Rows, found: Found, clock: Ints, i: int) -> None:
    """An insert of a joined replica, or one that can only be known."""
    start = rows.start[i]
    if start < clock[CURRENT]:
        found.reasons[i] = codes.PASSED
    elif start == clock[CURRENT]:
        found.reasons[i] = codes.KNOWN
        put(found, clock, JOINS if start >= clock[FRONTIER] else FINAL, i)
    elif start < clock[FRONTIER]:
        found.reasons[i] = codes.LATE
    else:
        found.reasons[i] = codes.FIRST
        clock[CURRENT] = start
        put(found, clock, OPENS, i)


@part
def put(found: Found, clock: Ints, what: int, row: int) -> None:
    """The next of the sequence."""
    found.what[clock[LENGTH]] = what
    found.row[clock[LENGTH]] = row
    clock[LENGTH] += 1
