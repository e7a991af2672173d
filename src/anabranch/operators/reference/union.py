"""Union, one element at a time: all events of all inputs in one stream.

At every prefix the output's history is the bag sum of the inputs' histories: two equal events
of two inputs are two.  Its frontier is the least frontier of the attached inputs, so a slow or
silent input holds it back until it is detached.

* An element passes as it is.  Its own input's promises imply the output's: the output's
  frontier is not beyond the input's.
* With `insert_only` an adjust is a violation, and nothing of an insert is remembered.
* An input that attaches when the output is final up to t cannot add what starts before t: such
  elements are late.

`operators.union` does the same over batches.  `UnionOf` is the union inside a query, of
inputs that were validated and do not come and go (`operators.union_of`).

>>> from anabranch.model.element import Insert, Stable
>>> union = Union()
>>> union.attach("east"), union.attach("west")
((), ())
>>> union.push("east", Insert("a", 1, 5)).output
(Insert(payload='a', start=1, end=5),)
>>> union.push("east", Stable(4)).output, union.push("west", Stable(3)).output
((), (Stable(time=3),))
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.time import NEVER, Time
from anabranch.operators.contract import Outcome, Reason
from anabranch.operators.reference.unary import refuse


@dataclass
class _Input:
    """What is known of one attachment: its frontier, its live events, and where it joined."""

    joined_at: Time
    frontier: Time = NEVER
    passed_at: Time | None = None
    live: Counter[Event] = field(default_factory=Counter)


class Union:
    """The state of the reference."""

    def __init__(self, *, insert_only: bool = False) -> None:
        self.insert_only = insert_only
        self.frontier: Time = NEVER
        self.inputs: dict[str, _Input] = {}

    def attach(self, name: str) -> tuple[Element, ...]:
        """An input takes part from now on; another attachment of the name starts empty."""
        self.inputs[name] = _Input(self.frontier)
        return ()

    def detach(self, name: str) -> tuple[Element, ...]:
        """An input leaves; its events stay, and it holds the frontier back no longer."""
        self.inputs.pop(name, None)
        return self._advance()

    def pass_over(self, name: str) -> tuple[Element, ...]:
        """Do not wait for this input until it has caught up."""
        if name in self.inputs:
            self.inputs[name].passed_at = self.inputs[name].frontier
        return self._advance()

    def await_again(self, name: str) -> tuple[Element, ...]:
        """Wait for an input again that was passed over."""
        if name in self.inputs:
            self.inputs[name].passed_at = None
        return self._advance()

    def push(self, name: str, element: Element, *, inferred: bool = False) -> Outcome:
        """Take the next element of an input.

        `inferred`: its stables are no promise of it; see `contract.Arrival`.
        """
        if name not in self.inputs:
            self.attach(name)
        own = self.inputs[name]
        if isinstance(element, Stable):
            own.frontier = max(own.frontier, element.time)
            output = self._advance()
            return Outcome(Reason.LEADS if output else Reason.FOLLOWS, output)
        return self._data(own, element, inferred=inferred)

    def _data(self, own: _Input, element: Insert | Adjust, *, inferred: bool) -> Outcome:
        is_free = inferred or own.passed_at is not None
        if element.start < (max(own.joined_at, self.frontier) if is_free else own.joined_at):
            return Outcome(Reason.LATE)
        if self.insert_only and isinstance(element, Adjust):
            return Outcome(_refuse_adjust(element))
        broken = refuse(element, own.live, frontier=NEVER if inferred else own.frontier)
        if broken is not None:
            return Outcome(Reason[broken.name])
        if element.changes_nothing:
            return Outcome(Reason.NO_CHANGE)
        if isinstance(element, Adjust):
            own.live[element.old_event] -= 1
        if not element.event.is_empty and not self.insert_only:
            own.live[element.event] += 1
        is_insert = isinstance(element, Insert)
        return Outcome(Reason.FIRST if is_insert else Reason.CORRECTED, (element,))

    def _advance(self) -> tuple[Element, ...]:
        for one in self.inputs.values():
            if one.passed_at is not None and one.frontier > one.passed_at:
                one.passed_at = None if one.frontier >= self.frontier else one.passed_at
        awaited = [one.frontier for one in self.inputs.values() if one.passed_at is None]
        least = min(awaited, default=self.frontier)
        if least <= self.frontier:
            return ()
        self.frontier = least
        return (Stable(least),)


class UnionOf:
    """The union of ports: all elements pass, the frontier is the least of the ports'."""

    live = 0

    def __init__(self, names: Sequence[str]) -> None:
        self.frontiers: dict[str, Time] = dict.fromkeys(names, NEVER)

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of a port."""
        if not isinstance(element, Stable):
            if element.changes_nothing:
                return Outcome(Reason.NO_CHANGE)
            return Outcome(Reason.APPLIED, (element,))
        before = min(self.frontiers.values())
        self.frontiers[name] = max(self.frontiers[name], element.time)
        least = min(self.frontiers.values())
        if least <= before:
            return Outcome(Reason.FOLLOWS)
        return Outcome(Reason.LEADS, (Stable(least),))


def _refuse_adjust(element: Adjust) -> Reason:
    """Why an adjust of an input that only inserts is where it is."""
    if element.end < element.start:
        return Reason.BACKWARDS
    return Reason.NO_CHANGE if element.changes_nothing else Reason.NOT_INSERT_ONLY
