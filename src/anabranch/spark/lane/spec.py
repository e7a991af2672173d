"""The configuration of the lanes of a stage: frozen data that is sent to the workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from anabranch.batch.schema import ElementSchema
from anabranch.operators.contract import Attach, Inputs, Operator, State
from anabranch.operators.pipeline import Pipeline, PipelineStep, require_ids, source_of
from anabranch.operators.route import Routing
from anabranch.spark.lane.exported import lane_file, read_lane
from anabranch.spark.lane.heartbeats import LaneClock
from anabranch.spark.lane.receive import Order
from anabranch.spark.lane.rows import LaneRow
from anabranch.spark.lane.state import Lane, LaneId
from anabranch.spark.lane.state_cache import is_switched_on
from anabranch.spark.pack.spill import Depot
from anabranch.spark.step_record import Described

STABLES: Final = "stables"
"""The step that emits the stables of a stage whose lanes reach different frontiers."""


class StagesFiles(Protocol):
    """Writes the files of an output where the rows are (`anabranch.spark.write`)."""

    def write(self, rows: Sequence[LaneRow]) -> tuple[list[LaneRow], dict[str, str]]:
        """Write a lane's rows; those that travel on, and the files by folder."""


@dataclass(frozen=True)
class Founder:
    """An input that was there when the run began; every lane knows it from the first step on.

    Only then is remembered what it may still mention when its first file comes later.
    """

    name: str
    guarantee: int | None = None
    attachment: int = 1


@dataclass(frozen=True)
class Entry:
    """A step that takes inputs of the lane: which of them, and how their elements are ordered.

    `names` are its inputs; None: all that no other entry has.  A step whose inputs have
    different columns has several entries.
    """

    step: str
    order: Order
    names: frozenset[str] | None = None


@dataclass(frozen=True)
class Sending:
    """A stream that a stage sends to the next: the step (or stream) that it is, and its lanes.

    `of` is a step of the stage, or a stream that the stage has received and only passes on.
    `is_native`: Spark changes it on the way, and it is routed after that.
    """

    name: str
    of: str
    routing: Routing
    is_native: bool = False


@dataclass(frozen=True)
class NextStage:
    """Where the elements of a stage go: how many lanes follow, and which streams they get.

    `only_stables`: the lanes of the stage make the rows of the output, all but the stables, and
    send nothing but how far they are.
    """

    lanes: int
    sends: tuple[Sending, ...]
    only_stables: bool = False


@dataclass(frozen=True)
class LaneSpec:
    """What every lane of a stage must know; it travels to the workers.

    `stage` counts from 0; `before` is the number of lanes of the stage before, None for the
    first, and `receives` are the schemas of the streams that it sends, by name.  `entries` are
    the steps that take inputs, where it is not the first one alone.  `late` are the columns of
    rows that were not taken, if inputs differ in theirs.  `final` asks for the events that
    become final.  `plain`: rows are events, without a key, so those that repeat one are worth a
    warning.  `warm`: workers may keep copies of states (decided by the driver's environment).
    `exported` is the folder with the states that lanes begin with, if they do not begin with
    nothing; the run has taken `first_trigger` triggers by then.  `clocks` infer the stables of
    inputs that have none; `notes` is the name under which lanes leave a note of when these are
    due, for a source of ticks.  `described` are the steps of the plan, for progress records.
    """

    run: str
    lanes: int
    pipeline: Pipeline
    order: Order
    founders: tuple[Founder, ...] = ()
    strict: bool = False
    final: bool = False
    plain: bool = False
    direct: StagesFiles | None = None
    depot: Depot | None = None
    stage: int = 0
    before: int | None = None
    after: NextStage | None = None
    receives: tuple[tuple[str, ElementSchema], ...] = ()
    entries: tuple[Entry, ...] = ()
    late: ElementSchema | None = None
    warm: bool = field(default_factory=is_switched_on)
    exported: str | None = None
    first_trigger: int = 0
    clocks: tuple[LaneClock, ...] = ()
    notes: str | None = None
    described: Mapping[str, Described] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The id of the step whose output is the lane's."""
        return source_of(self.pipeline)

    def entry(self, name: str) -> Entry:
        """The step that takes an input; a parcel that names none belongs to the first."""
        if not self.entries:
            return Entry(self.pipeline[0].id, self.order)
        mine = [one for one in self.entries if one.names is None or name in one.names]
        return (mine or list(self.entries))[0]

    @property
    def entry_steps(self) -> tuple[str, ...]:
        """The steps that take inputs, in order."""
        steps = dict.fromkeys(one.step for one in self.entries)
        return tuple(steps) or (self.pipeline[0].id,)

    def schema(self, name: str) -> ElementSchema:
        """The columns of the elements of an input, or of a stream of the stage before."""
        received: Mapping[str, ElementSchema] = dict(self.receives)
        return received[name] if received else self.entry(name).order.schema

    @property
    def routing(self) -> Routing:
        """What decides the lane of an element."""
        return Routing.of(self.pipeline[0].operator)

    def infers(self, name: str) -> bool:
        """Whether a clock infers the stables of this input."""
        return any(clock.serves(name) for clock in self.clocks)

    @property
    def keeps_ends(self) -> bool:
        """Whether no event of the output ends after the row from which it comes."""
        names = {one.operator.name for one in self.pipeline}
        return self.after is None and names <= {"merge", "union", "align", "final"}

    def lane_id(self, number: int) -> LaneId:
        """What the stored state of a lane must agree with."""
        return LaneId(self.run, self.stage, number, self.lanes, self.pipeline)

    def first_lane(self, number: int) -> Lane:
        """What a lane begins with that has nothing in Spark's store."""
        if self.exported is None:
            return self.new_lane()
        return read_lane(lane_file(Path(self.exported), number), self.lane_id(number))

    def new_lane(self) -> Lane:
        """A lane that has taken no step."""
        states: dict[str, State] = {one.id: one.operator.empty() for one in self.pipeline}
        for founder in self.founders:
            entry = Attach(founder.name, founder.attachment, founder.guarantee)
            states[self.entry(founder.name).step].step(Inputs(control=(entry,)))
        return Lane(states)


def staged(first: LaneSpec, *others: tuple[Pipeline, int]) -> tuple[LaneSpec, ...]:
    """Stages that follow one another in one query: the first, and pipelines with their lanes.

    Each pipeline takes the output of the one before.  What asks for rows of the output
    (`final`) holds for the last stage.  One lane of it emits the stable for all: an operator
    whose frontier depends on its data, and not on stables and members alone, must be followed
    by a stage of one lane, or run in one; see also `with_stables`.
    """
    require_ids((*first.pipeline, *(one for pipeline, _ in others for one in pipeline)))
    specs = [first]
    for pipeline, lanes in others:
        before, operator = specs.pop(), pipeline[0].operator
        sending = Sending(before.source, before.source, Routing.of(operator))
        received = ((sending.name, operator.schema),)
        specs += follow(before, NextStage(lanes, (sending,)), pipeline, received)
    return tuple(specs)


def with_stables(last: LaneSpec, operator: Operator) -> tuple[LaneSpec, LaneSpec]:
    """A last stage whose lanes reach different frontiers, and one lane that has the least.

    The lanes make all rows of the output but the stables; these come from the one lane behind
    them, whose `operator` passes on what it reads.
    """
    schema = operator.schema
    sending = Sending(STABLES, last.source, Routing.of(operator))
    pipeline, received = (PipelineStep(STABLES, operator),), ((STABLES, schema),)
    sends, one = follow(last, NextStage(1, (sending,), only_stables=True), pipeline, received)
    return replace(sends, final=last.final), replace(one, final=False)


def follow(
    before: LaneSpec,
    after: NextStage,
    pipeline: Pipeline,
    receives: tuple[tuple[str, ElementSchema], ...],
) -> tuple[LaneSpec, LaneSpec]:
    """A stage that sends what another one receives, and that other one."""
    sends = replace(before, after=after, final=False)
    return sends, replace(
        before,
        lanes=after.lanes,
        pipeline=pipeline,
        order=Order(receives[0][1]),
        receives=receives,
        stage=before.stage + 1,
        before=before.lanes,
        # Of the inputs alone.
        entries=(),
        founders=(),
        clocks=(),
        notes=None,
    )
