"""Asserts about streams that show what is wrong as a small table.

Each takes physical streams (sequences of elements), or histories where only those matter, and
raises `AssertionError` with a message for people.

>>> from anabranch.model.notation import parse
>>> assert_equivalent(parse("insert a 1..9; adjust a 1..9->5"), parse("insert a 1..5"))
"""

from collections.abc import Sequence
from typing import Final

from anabranch.model.element import Element
from anabranch.model.equivalence import (
    Settled,
    compatible,
    consistent,
    differences_until,
    equivalent_until,
    leading,
)
from anabranch.model.history import History, Replay, replay
from anabranch.model.notation import show_element, show_event, show_payload
from anabranch.model.time import FOREVER, Time, show

_SHOWN: Final = 20
"""Rows of a table; a failing test with more differences is not read further."""


def assert_valid(stream: Sequence[Element]) -> None:
    """The stream keeps every promise of its stables, and adjusts only what is there."""
    violations = replay(stream).violations
    if violations:
        rows = [(str(v.position), show_element(v.element), v.reason.value) for v in violations]
        _fail(
            f"{len(violations)} of {len(stream)} elements break a promise",
            ("position", "element", "reason"),
            rows,
        )


def assert_equivalent(
    left: Sequence[Element] | History,
    right: Sequence[Element] | History,
    *,
    until: Time = FOREVER,
) -> None:
    """Both have the same history; with `until`, as far as a stable at that time fixes it."""
    ours, theirs = _history(left), _history(right)
    if equivalent_until(ours, theirs, until):
        return
    if until == FOREVER:
        rows = [("left only", show_event(event)) for event in ours.minus(theirs)]
        rows += [("right only", show_event(event)) for event in theirs.minus(ours)]
        _fail("the histories differ", ("where", "event"), rows)
    _fail_settled(f"the histories differ before {show(until)}", ours, theirs, until)


def assert_consistent(streams: Sequence[Sequence[Element]]) -> None:
    """All streams can still come to have one history."""
    prefixes = [replay(stream) for stream in streams]
    if consistent(prefixes):
        return
    leader = leading(prefixes)
    number = [consistent([prefix, leader]) for prefix in prefixes].index(False)
    prefix = prefixes[number]
    title = (
        f"stream {number} (left, frontier {show(prefix.frontier)}) cannot become the "
        f"leading one (right, frontier {show(leader.frontier)})"
    )
    _fail_settled(title, prefix.history, leader.history, prefix.frontier)


def assert_compatible(output: Sequence[Element], inputs: Sequence[Sequence[Element]]) -> None:
    """The output can follow wherever the inputs go; exact for consistent inputs."""
    ours, theirs = replay(output), [replay(stream) for stream in inputs]
    if compatible(ours, theirs):
        return
    leader: Replay = leading(theirs)
    title = (
        f"the output (left, frontier {show(ours.frontier)}) cannot follow its leading input "
        f"(right, frontier {show(leader.frontier)})"
    )
    if ours.frontier > leader.frontier:
        title += "; it must not be ahead"
    _fail_settled(title, ours.history, leader.history, ours.frontier)


def _history(stream: Sequence[Element] | History) -> History:
    return stream if isinstance(stream, History) else History.of(stream)


def _fail_settled(title: str, left: History, right: History, frontier: Time) -> None:
    rows = [
        (
            f"{show_payload(one.payload)} at {show(one.start)}",
            _show_settled(ours),
            _show_settled(theirs),
        )
        for one, ours, theirs in differences_until(left, right, frontier)
    ]
    _fail(title, ("identity", "left", "right"), rows)


def _show_settled(fixed: Settled) -> str:
    ends = [f"ends {show(end)}" for end in fixed.frozen]
    open_ends = [f"{fixed.half_frozen} half frozen"] if fixed.half_frozen else []
    return ", ".join([*ends, *open_ends]) or "nothing"


def _fail(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = [header, *rows[:_SHOWN]]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]
    if len(rows) > _SHOWN:
        lines.append(f"... and {len(rows) - _SHOWN} more")
    message = "\n".join([title, *lines]) if rows else title
    raise AssertionError(message)
