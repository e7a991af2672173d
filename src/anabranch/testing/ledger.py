"""Why each element that an engine took is in its bucket, in the order of pushing.

An element that was pending gets the reason that decides it later, in its own place.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from anabranch.model.element import Element
from anabranch.operators.contract import Bucket, Reason

Account: TypeAlias = dict[str, Counter[str]]
"""By input and bucket."""


@dataclass
class Ledger:
    """All elements so far, the input of each, and its reason."""

    inputs: list[str] = field(default_factory=list)
    elements: list[Element] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    waiting: dict[str, list[int]] = field(default_factory=dict)

    def add(self, name: str, elements: Sequence[Element], reasons: Iterable[Reason]) -> None:
        """The next elements of an input."""
        for element, reason in zip(elements, reasons, strict=True):
            if reason.bucket is Bucket.PENDING:
                self.waiting.setdefault(name, []).append(len(self.reasons))
            self.inputs.append(name)
            self.elements.append(element)
            self.reasons.append(reason)

    def resolve(self, name: str, element: Element, reason: Reason) -> None:
        """The first pending element of the input that is equal to this one is decided."""
        assert reason.bucket is not Bucket.PENDING, f"{element} is pending twice"
        waiting = self.waiting.get(name, [])
        at = next((one for one in waiting if self.elements[one] == element), None)
        assert at is not None, f"{element} of {name!r} was not pending"
        waiting.remove(at)
        self.reasons[at] = reason

    @property
    def account(self) -> Account:
        """The number of elements by input and bucket."""
        made: Account = {}
        for name, reason in zip(self.inputs, self.reasons, strict=True):
            made.setdefault(name, Counter())[reason.bucket.word] += 1
        return made
