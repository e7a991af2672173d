"""The paper's own conditions for an output that can follow its inputs, with reasons.

`anabranch.model.equivalence.compatible` decides the same more simply.  These explain *why not*:

* `breaches_r3`: conditions C1, C2 and C3, for streams whose identities name one event.  C2 is
  corrected (erratum L1): a half-frozen output event needs an input that is *not behind* the
  output.
* `breaches_r4`: the condition for bags, where the output's frontier is that of the leading
  input.  Corrected (erratum L2): the frozen events must be *equal*, not only contained.

Inputs are assumed to be consistent.

Papers: LMerge III-D.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from anabranch.errors import UsageError
from anabranch.model.element import Event, Identity
from anabranch.model.equivalence import Settled, differences_until, leading
from anabranch.model.frozen import Status, status
from anabranch.model.history import Replay
from anabranch.model.notation import show_event, show_payload
from anabranch.model.time import Time, show


@dataclass(frozen=True, slots=True)
class Breach:
    """A condition that does not hold, for which identity (None: for the whole), and why."""

    condition: str
    identity: Identity | None
    why: str

    def __str__(self) -> str:
        if self.identity is None:
            return f"{self.condition}: {self.why}"
        name = f"{show_payload(self.identity.payload)} at {show(self.identity.start)}"
        return f"{self.condition}: {name}: {self.why}"


@dataclass(frozen=True, slots=True)
class _Found:
    """One event in one prefix, with its status there."""

    event: Event
    status: Status
    frontier: Time


def breaches_r3(output: Replay, inputs: Sequence[Replay]) -> list[Breach]:
    """Where C1, C2 or C3 fails; empty exactly when a keyed output is compatible."""
    found = list(_c1(output, inputs))
    identities = [*output.history.identities()]
    for one in inputs:
        identities += one.history.identities()
    for identity in dict.fromkeys(identities):
        ours = _find(output, identity)
        theirs = [event for one in inputs for event in _find(one, identity)]
        found += _c2(identity, ours, theirs, output.frontier)
        found += _c3(identity, ours, theirs, output.frontier)
    return found


def breaches_r4(output: Replay, inputs: Sequence[Replay]) -> list[Breach]:
    """Where the bag condition fails; empty exactly when the output is compatible.

    Only for outputs whose frontier is that of the leading input, as in the paper.
    """
    leader = leading(inputs)
    if output.frontier != leader.frontier:
        message = (
            f"the R4 condition is about an output with the frontier of the leading input, "
            f"{show(leader.frontier)}, this output has {show(output.frontier)}; "
            "use anabranch.model.equivalence.compatible"
        )
        raise UsageError(message)
    return [
        Breach(
            "R4",
            one.identity,
            f"the output has {_show_settled(one.left)}, the input {_show_settled(one.right)}",
        )
        for one in differences_until(output.history, leader.history, output.frontier)
    ]


def _c1(output: Replay, inputs: Sequence[Replay]) -> Iterator[Breach]:
    greatest = leading(inputs).frontier
    if output.frontier > greatest:
        ours, theirs = show(output.frontier), show(greatest)
        why = f"the output is final until {ours}, no input beyond {theirs}"
        yield Breach("C1", None, why)


def _c2(
    identity: Identity, ours: list[_Found], theirs: list[_Found], frontier: Time
) -> Iterator[Breach]:
    """What may be in the output."""
    if len(ours) > 1:
        yield Breach("C2", identity, f"the output has {len(ours)} events of it")
    for one in ours:
        if one.status is Status.HALF_FROZEN and not any(
            _supports(other, frontier) for other in theirs
        ):
            why = f"half frozen in the output as {show_event(one.event)}, supported by no input"
            yield Breach("C2", identity, why)
        if one.status is Status.FROZEN and not any(
            other.event == one.event and other.status is Status.FROZEN for other in theirs
        ):
            why = f"frozen in the output as {show_event(one.event)}, but in no input"
            yield Breach("C2", identity, why)


def _supports(other: _Found, frontier: Time) -> bool:
    """Whether a half-frozen output event can follow this input event."""
    if other.status is Status.HALF_FROZEN:
        return frontier <= other.frontier  # erratum L1; the paper prints it reversed
    if other.status is Status.FROZEN:
        return _status_at(other.event, frontier) is not Status.FROZEN
    return False


def _c3(
    identity: Identity, ours: list[_Found], theirs: list[_Found], frontier: Time
) -> Iterator[Breach]:
    """What must be in the output."""
    frozen = [other for other in theirs if other.status is Status.FROZEN]
    half = [other for other in theirs if other.status is Status.HALF_FROZEN]
    has_half = any(one.status is Status.HALF_FROZEN for one in ours)
    for event in dict.fromkeys(other.event for other in frozen):
        needed = _status_at(event, frontier)
        if needed is Status.HALF_FROZEN and not has_half:
            why = f"an input froze {show_event(event)}, the output can no longer reach it"
            yield Breach("C3", identity, why)
        if needed is Status.FROZEN and event not in (one.event for one in ours):
            why = f"an input froze {show_event(event)}, the output is past it without it"
            yield Breach("C3", identity, why)
    if half and not frozen:
        leader = max(half, key=lambda other: other.frontier)
        reachable = has_half and frontier <= leader.frontier
        if _status_at(leader.event, frontier) is not Status.FREE and not reachable:
            why = f"an input keeps {show_event(leader.event)}, the output cannot follow its end"
            yield Breach("C3", identity, why)


def _find(prefix: Replay, identity: Identity) -> list[_Found]:
    ends = prefix.history.identities().get(identity, ())
    events = [Event(identity.payload, identity.start, end) for end in ends]
    return [_Found(one, _status_at(one, prefix.frontier), prefix.frontier) for one in events]


def _status_at(event: Event, frontier: Time) -> Status:
    return status(event.start, event.end, frontier=frontier)


def _show_settled(fixed: Settled) -> str:
    ends = ", ".join(map(show, fixed.frozen)) or "none"
    return f"frozen ends {ends} and {fixed.half_frozen} half frozen"
