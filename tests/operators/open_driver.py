"""Drives any merge through `merge`, saved in parts and restored between any two steps.

For laws about promotion by hand and attachments that replace one another: no engine does that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from merge_driver import SCHEMA, batch_of, units
from state_store import Store

from anabranch.batch.codec import to_elements
from anabranch.model.element import Element
from anabranch.model.properties import MergeCase
from anabranch.model.time import Time
from anabranch.operators.contract import Arrival, StepResult
from anabranch.operators.merge.merge import from_parts, open_merge
from anabranch.operators.merge.policy import DEFAULT, Policy


@dataclass
class Opened:
    """A merge of any case and policy, and all of its output."""

    case: MergeCase
    policy: Policy = DEFAULT
    output: list[Element] = field(default_factory=list)
    numbers: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    violators: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = open_merge(self.case, SCHEMA, self.policy)
        self.store = Store()

    def attach(self, name: str, guarantee: Time | None = None, attachment: int = 1) -> None:
        self.numbers[name] = units(guarantee), attachment
        found = self.state.attach(name, guarantee=units(guarantee), attachment=attachment)
        self.note(found)

    def detach(self, name: str) -> None:
        self.numbers.pop(name, None)
        self.note(self.state.detach(name))

    def take(self, name: str, elements: Sequence[Element]) -> list[Element]:
        guarantee, attachment = self.numbers.get(name, (None, 1))
        arrival = Arrival(name, batch_of(list(elements)), guarantee, attachment)
        result = self.state.step([arrival])
        self.violators += result.violators
        self.note(result)
        return to_elements(result.output)

    def note(self, result: StepResult) -> None:
        self.state.check()
        self.output += to_elements(result.output)

    def restart(self) -> None:
        self.store.save(self.state)
        self.state = from_parts(self.store.parts, self.case, SCHEMA, self.policy)
        self.state.check()
