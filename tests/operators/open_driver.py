"""Drives any merge through `start`, saved in parts and restored between any two steps."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from merge_driver import SCHEMA, batch_of, units
from state_store import Store

from anabranch.batch.codec import to_elements
from anabranch.model.element import Element
from anabranch.model.properties import MergeCase
from anabranch.model.time import Time
from anabranch.operators.merge.contract import Arrival, Granularity, StepResult
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.start import from_parts, open_merge


@dataclass
class Opened:
    """A merge of any case and policy, and all that it said."""

    case: MergeCase
    policy: Policy = DEFAULT
    granularity: Granularity = "batch"
    first: MergeCase | None = None
    output: list[Element] = field(default_factory=list)
    numbers: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    guilty: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = open_merge(self.case, SCHEMA, self.policy, first=self.first)
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
        found = self.state.step([arrival], granularity=self.granularity)
        self.guilty += found.guilty
        self.note(found.result)
        return to_elements(found.result.output)

    def note(self, result: StepResult) -> None:
        self.state.check()
        self.output += to_elements(result.output)

    def restart(self) -> None:
        self.store.save(self.state)
        self.state = from_parts(
            self.store.parts, self.case, SCHEMA, self.policy, first=self.first
        )
        self.state.check()
