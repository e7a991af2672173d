"""What runs behind an `Engine` in one process: a reference, or the compiled operator.

Both know the operator contract and nothing of any operator.
"""

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Codes
from anabranch.batch.codec import from_elements, to_elements
from anabranch.model.element import Element
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import (
    Arrival,
    Attach,
    Bucket,
    ControlEntry,
    Detach,
    Inputs,
    Operator,
    Outcome,
    Released,
    StepResult,
)

Pushed: TypeAlias = tuple[str, int, list[Element]]
"""An input, its attachment, and consecutive elements of it."""

Account: TypeAlias = dict[str, Counter[str]]
"""By input and bucket."""


class Backend(Protocol):
    """What an `Engine` asks for."""

    output: list[Element]
    account: Account
    expelled: set[str]

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take elements; add to the output and the account."""

    def restart(self) -> None:
        """Go on from what was saved."""

    def close(self) -> None:
        """Stop."""


class Reference(Protocol):
    """An operator, one element at a time; it pickles."""

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """An input comes or leaves: what comes out, and what is no longer pending."""

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """Who is to be detached after these elements of a step."""


@dataclass
class Stepwise:
    """A reference, fed in the order of pushing."""

    reference: Reference
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=dict)
    expelled: set[str] = field(default_factory=set)

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""
        self.expelled.discard(entry.input)
        output, resolved = self.reference.control(entry)
        self._note(output, resolved)

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take the elements one by one."""
        found: list[tuple[str, Element, Outcome]] = []
        for name, _, elements in pushed:
            counts = self.account.setdefault(name, Counter())
            for element in elements:
                if name in self.expelled:
                    counts[Bucket.VIOLATION.word] += 1
                    continue
                outcome = self.reference.push(name, element)
                counts[outcome.bucket.word] += 1
                self._note(outcome.output, outcome.resolved)
                found.append((name, element, outcome))
        for name in self.reference.violators(found):
            self.control(Detach(name))
            self.expelled.add(name)

    def restart(self) -> None:
        """Nothing but what pickles survives."""
        self.reference = pickle.loads(pickle.dumps(self.reference))

    def close(self) -> None:
        """Nothing runs."""

    def _note(self, output: Sequence[Element], resolved: Sequence[Released]) -> None:
        self.output += output
        for one in resolved:
            counts = self.account[one.replica]
            counts[Bucket.PENDING.word] -= 1
            counts[one.reason.bucket.word] += 1


@dataclass
class Compiled:
    """A compiled operator in one lane, and what was saved of it.

    `shows_final`: its output are the events that become final.
    """

    operator: Operator
    shows_final: bool = False
    check_every: int = 1
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=dict)
    expelled: set[str] = field(default_factory=set)
    saved: dict[str, bytes] = field(default_factory=dict)
    mark: int | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        self.state = self.operator.empty()

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""
        self.expelled.discard(entry.input)
        self._note(self.state.step(Inputs(control=(entry,))))

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take the elements in one step."""
        arrivals = []
        for name, attachment, elements in pushed:
            if name in self.expelled:
                counts = self.account.setdefault(name, Counter())
                counts[Bucket.VIOLATION.word] += len(elements)
            else:
                batch = from_elements(elements, self.operator.schema)
                arrivals.append(Arrival(name, batch, attachment=attachment))
        result = self.state.step(Inputs(arrivals=tuple(arrivals)))
        for arrival, buckets in zip(arrivals, result.buckets, strict=True):
            _add(self.account.setdefault(arrival.input, Counter()), buckets)
        self._note(result)

    def restart(self) -> None:
        """Write what changed since the last time, as a state store would, and load it all."""
        changed = self.state.parts(since=self.mark)
        self.saved |= changed.written
        for name in changed.deleted:
            self.saved.pop(name, None)
        self.mark = changed.mark
        self.state = self.operator.from_parts(self.saved)
        self.state.check()

    def close(self) -> None:
        """Nothing runs."""

    def _note(self, result: StepResult) -> None:
        self.steps += 1
        if self.steps % self.check_every == 0:
            self.state.check()
        shown = result.final if self.shows_final else result.output
        assert shown is not None, f"{self.operator.name} reports nothing that became final"
        self.output += to_elements(shown)
        for resolved in result.resolved:
            counts = self.account[resolved.replica]
            counts[Bucket.PENDING.word] -= len(resolved.batch)
            _add(counts, resolved.buckets)
        for name in result.violators:
            self.control(Detach(name))
            self.expelled.add(name)


def _add(counts: Counter[str], buckets: Codes) -> None:
    for code, count in zip(*np.unique(buckets, return_counts=True), strict=True):
        counts[Bucket(int(code)).word] += int(count)


def time_of(entry: Attach) -> Time | None:
    """The guarantee of an attaching input as a time of the model."""
    return FOREVER if entry.guarantee == FOREVER_UNITS else entry.guarantee
