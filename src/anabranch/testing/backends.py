"""The back ends of an `Engine` in one process: a reference, or the compiled operator.

Both know the operator contract and nothing of any operator.
"""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.codec import from_elements, to_elements
from anabranch.model.element import Adjust, Element, Insert
from anabranch.model.time import FOREVER, Time
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Bucket,
    ControlEntry,
    Detach,
    Gap,
    Inputs,
    Operator,
    Outcome,
    Reason,
    Released,
    StepResult,
    ports_of,
)
from anabranch.testing.ledger import Account, Ledger
from anabranch.testing.step_account import StepAccount

COUNTED: Final = ("conflicts", "missing", "added_adjusts", "added_inserts")
"""What every step counts, and a progress record too."""

Pushed: TypeAlias = tuple[str, int, list[Element]]
"""An input, its attachment, and consecutive elements of it."""


class Backend(Protocol):
    """What an `Engine` needs; `reasons` and `gaps` are None where they are not reported."""

    output: list[Element]
    expelled: set[str]

    @property
    def account(self) -> Account:
        """By input and bucket the number of elements."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Conflicts, missing identities, and events that are remembered."""

    @property
    def reasons(self) -> Sequence[Reason] | None:
        """Why each element is in its bucket, in the order of pushing."""

    @property
    def gaps(self) -> Sequence[Gap] | None:
        """The missing identities by name."""

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take elements; add to the output and the account."""

    def restart(self) -> None:
        """Go on from what was saved."""

    def close(self) -> None:
        """Stop."""


class Reference(Protocol):
    """An operator, one element at a time; it can be copied."""

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """An input comes or leaves: what comes out, and what is no longer pending."""

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """Who is to be detached after these elements of a step."""

    def check(self) -> None:
        """Assert every invariant that the reference states."""

    @property
    def conflicts(self) -> int:
        """How many events the deciding inputs deny although the output had promised them."""

    @property
    def gaps(self) -> Sequence[Gap]:
        """The identities of the output that a deciding input never mentioned."""

    @property
    def live(self) -> int:
        """How many events are remembered."""


@dataclass
class Stepwise:
    """A reference, fed in the order of pushing."""

    reference: Reference
    check_every: int = 1
    taken: int = 0
    output: list[Element] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    expelled: set[str] = field(default_factory=set)

    @property
    def account(self) -> Account:
        """By input and bucket the number of elements."""
        return self.ledger.account

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why each element is in its bucket."""
        return self.ledger.reasons

    @property
    def gaps(self) -> Sequence[Gap]:
        """The missing identities by name."""
        return self.reference.gaps

    @property
    def counts(self) -> Mapping[str, int]:
        """What the reference counts, and what it emits that no single element asked for."""
        one, kinds = self.reference, Counter(type(element) for element in self.output)
        buckets = Counter(reason.bucket for reason in self.ledger.reasons)
        return {
            "conflicts": one.conflicts,
            "missing": len(one.gaps),
            "added_adjusts": kinds[Adjust] - buckets[Bucket.CORRECTED],
            "added_inserts": kinds[Insert] - self.ledger.reasons.count(Reason.FIRST),
            "live": one.live,
        }

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""
        self.expelled.discard(entry.input)
        output, resolved = self.reference.control(entry)
        self._note(output, resolved)

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take the elements one by one."""
        found: list[tuple[str, Element, Outcome]] = []
        for name, _, elements in pushed:
            for element in elements:
                if name in self.expelled:
                    self.ledger.add(name, [element], [Reason.EXPELLED])
                    continue
                outcome = self.reference.push(name, element)
                # What it resolves came before it: nothing is held and released by one element.
                self._note(outcome.output, outcome.resolved)
                self.ledger.add(name, [element], [outcome.reason])
                found.append((name, element, outcome))
                self.taken += 1
                if self.taken % self.check_every == 0:
                    self.reference.check()
        for name in self.reference.violators(found):
            self.control(Detach(name))
            self.expelled.add(name)

    def restart(self) -> None:
        """Nothing but what a copy holds survives; a pickled NaN would not equal itself."""
        self.reference = copy.deepcopy(self.reference)

    def close(self) -> None:
        """Nothing runs."""

    def _note(self, output: Sequence[Element], resolved: Sequence[Released]) -> None:
        self.output += output
        for one in resolved:
            self.ledger.resolve(*one)


@dataclass
class Compiled:
    """A compiled operator in one lane, and what was saved of it.

    `shows_final`: its output are the events that become final.
    """

    operator: Operator
    shows_final: bool = False
    check_every: int = 1
    output: list[Element] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    gaps: list[Gap] = field(default_factory=list)
    steps_account: StepAccount = field(default_factory=StepAccount)
    counted: Counter[str] = field(default_factory=Counter)
    expelled: set[str] = field(default_factory=set)
    saved: dict[str, bytes] = field(default_factory=dict)
    mark: int | None = None
    steps: int = 0

    def __post_init__(self) -> None:
        self.state = self.operator.empty()

    @property
    def account(self) -> Account:
        """By input and bucket the number of elements."""
        return self.ledger.account

    @property
    def reasons(self) -> Sequence[Reason]:
        """Why each element is in its bucket."""
        return self.ledger.reasons

    @property
    def counts(self) -> Mapping[str, int]:
        """What the steps counted, and what the state remembers now."""
        return {name: self.counted[name] for name in COUNTED} | {"live": self.state.live}

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves."""
        self.expelled.discard(entry.input)
        result = self.state.step(Inputs(control=(entry,)))
        self._judge((), result)
        self._note(result)

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take the elements in one step."""
        taken = [one for one in pushed if one[0] not in self.expelled]
        ports = ports_of(self.operator)
        # Where inputs are alike, they have one port whatever their names.
        only = next(iter(ports.values()))
        arrivals = [
            Arrival(name, from_elements(some, ports.get(name, only).schema), attachment=number)
            for name, number, some in taken
        ]
        result = self.state.step(Inputs(arrivals=tuple(arrivals)))
        self._judge(arrivals, result)
        codes = iter(result.reasons)
        for name, _, elements in pushed:
            found = [Reason.EXPELLED] * len(elements)
            if name not in self.expelled:
                found = [REASONS[code] for code in next(codes)]
            self.ledger.add(name, elements, found)
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
        self.gaps += result.gaps
        for count in COUNTED:
            self.counted[count] += getattr(result, count)
        for name in result.violators:
            self.control(Detach(name))
            self.expelled.add(name)

    def _judge(self, arrivals: Sequence[Arrival], result: StepResult) -> None:
        """The reasons explain the output; what was pending before this step is decided."""
        self.steps_account.add(arrivals, result)
        assert self.steps_account.adds_up, self.steps_account
        for one in result.resolved:
            for element, code in zip(to_elements(one.batch), one.reasons, strict=True):
                self.ledger.resolve(one.replica, element, REASONS[code])


def time_of(entry: Attach) -> Time | None:
    """The guarantee of an attaching input as a time of the model."""
    return FOREVER if entry.guarantee == FOREVER_UNITS else entry.guarantee
