"""One trigger of one lane while it is taken: its state, its account, and the rows so far."""

from dataclasses import dataclass, field
from typing import Any

from anabranch.batch.batch import Batch
from anabranch.operators.contract import InputStatus, State
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.lane.account import Account
from anabranch.spark.lane.reach import Reach
from anabranch.spark.lane.rows import LaneRow
from anabranch.spark.lane.spec import LaneSpec
from anabranch.spark.lane.state import Lane


@dataclass
class Trigger:
    """One trigger of one lane; `output` is collected, by step, for the stage after it."""

    number: int
    lane: Lane
    spec: LaneSpec
    account: Account
    rows: list[LaneRow] = field(default_factory=list)
    output: dict[str, list[Batch]] = field(default_factory=dict)
    log: int = -1
    taken: int = 0
    clock: ClockRecord | None = None
    reach: Reach = field(default_factory=Reach)

    @property
    def entries(self) -> list[State]:
        """The states of the operators that take inputs."""
        return [self.lane.states[step] for step in self.spec.entry_steps]

    @property
    def attached(self) -> list[InputStatus]:
        """The inputs that take part."""
        return [status for state in self.entries for status in state.inputs]

    @property
    def last(self) -> State:
        """The state of the operator whose output is the lane's."""
        return self.lane.states[self.spec.source]

    def row(self, channel: str, **values: Any) -> None:
        """Add a row of this step."""
        self.rows.append(LaneRow(channel, self.number, self.lane.steps, **values))
