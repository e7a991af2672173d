"""A pipeline: operators with ids that users see, connected as a graph, in one lane.

A step reads the output of other steps, or of streams that another stage sends; each of its
ports reads one or several of them.  The first step is an *entry*: it takes the named inputs of
the lane and the control entries.  A query of several sources has several entries.  A step that
names nothing to read takes the output of the step before it.  Steps come after those that they
read.

In one step of a pipeline a step is called if it is an entry that is given something, or if
something that it reads has output.

Whoever hosts a pipeline knows its operators by their contract alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.batch.batch import Batch
from anabranch.batch.schema import ElementSchema
from anabranch.errors import AnabranchError, UsageError
from anabranch.operators.abilities import KnowsEnds, ReportsFinal
from anabranch.operators.contract import (
    INPUT,
    Arrival,
    Inputs,
    Operator,
    State,
    StepResult,
)


@dataclass(frozen=True)
class Edge:
    """What a port of a step reads: the output of a step, or a stream of the stage before."""

    of: str
    port: str = INPUT


@dataclass(frozen=True)
class PipelineStep:
    """An operator and its id: unique in a run, part of the names in the state store.

    `detail` is what a checkpoint records beside the id, the operator's name unless given: it is
    fixed for a run's life.  A step that `observes` only reports: nobody reads its output.
    """

    id: str
    operator: Operator
    detail: str = ""
    observes: bool = False
    reads: tuple[Edge, ...] = ()
    is_entry: bool = False

    @property
    def label(self) -> str:
        """What a checkpoint records of it."""
        named = [f"{one.port} of {one.of}" for one in self.reads]
        reads = f", reads {', '.join(named)}" if named else ""
        return f"{self.id}: {self.detail or self.operator.name}{reads}"


Pipeline = tuple[PipelineStep, ...]


def require_ids(pipeline: Pipeline) -> None:
    """Reject a pipeline in which two steps have one id, or an id that cannot be a prefix."""
    ids = [one.id for one in pipeline]
    if not ids or len(set(ids)) != len(ids) or any("/" in one or not one for one in ids):
        message = (
            f"the steps of a pipeline are called {ids}; expected at least one, each with an id "
            "of its own that is not empty and has no '/'; rename them"
        )
        raise UsageError(message)


def entries(pipeline: Pipeline) -> tuple[str, ...]:
    """The steps that take the inputs of a lane, if no stage comes before it."""
    return tuple(
        one.id for at, one in enumerate(pipeline) if one.is_entry or (not at and not one.reads)
    )


def run(
    pipeline: Pipeline, states: Mapping[str, State], given: Mapping[str, Inputs]
) -> Iterator[tuple[PipelineStep, Inputs, StepResult]]:
    """Take one step with each operator that has something to read.

    `given` has what entries take, by their ids, and the streams of the stage before by name;
    also control entries for other steps.  Yields each step with what it read and what it made
    of it.  An error names the step.
    """
    made: dict[str, Batch] = {}
    last = next(iter(given))  # the first step reads the one stream, if it names none
    first = entries(pipeline)
    for one in pipeline:
        takes_inputs = one.id in given and one.id in first and not one.reads
        read = None if takes_inputs else _read(one, last, made, given)
        inputs = _together(given.get(one.id), read)
        last = last if one.observes else one.id
        if inputs is None:
            continue
        try:
            result = states[one.id].step(inputs)
        except AnabranchError as error:
            if one.id == one.operator.name:
                raise
            message = f"step '{one.id}': {error}"
            raise type(error)(message) from error
        made[one.id] = result.output
        yield one, inputs, result


def _together(own: Inputs | None, read: Inputs | None) -> Inputs | None:
    """What a step is given and what it reads of others; None if neither is there."""
    if own is None or read is None:
        return read if own is None else own
    return Inputs((*own.arrivals, *read.arrivals), own.control)


def _read(
    step: PipelineStep, last: str, made: Mapping[str, Batch], given: Mapping[str, Inputs]
) -> Inputs | None:
    """What a step reads of others; None: nothing that has output."""
    arrivals: list[Arrival] = []
    for edge in step.reads or (Edge(last),):
        if edge.of in made:
            arrivals.append(Arrival(edge.port if step.reads else edge.of, made[edge.of]))
        elif edge.of in given:
            name = edge.port if step.reads else edge.of
            arrivals += [Arrival(name, one.batch) for one in given[edge.of].arrivals]
    arrivals = [one for one in arrivals if len(one.batch)]
    return Inputs(tuple(arrivals)) if arrivals else None


def source_of(pipeline: Pipeline) -> str:
    """The id of the step whose output is the pipeline's."""
    return next(one.id for one in reversed(pipeline) if not one.observes)


def with_final(pipeline: Pipeline, *, at_start: bool = False) -> Pipeline:
    """The pipeline, such that its last step reports the events that become final.

    `at_start`: whoever built the pipeline knows that ends do not change, which the operator
    cannot know, so that an event is final as soon as the frontier has passed its start.
    """
    # Here, since every worker imports this module, and only this needs those kernels.
    from anabranch.operators.report_final import ReportFinalOperator

    last = pipeline[-1].operator
    own = last.reporting_final() if isinstance(last, ReportsFinal) else None
    known = isinstance(last, KnowsEnds) and last.output_final_at_start
    if own is not None and (known or not at_start):
        return (*pipeline[:-1], replace(pipeline[-1], operator=own))
    if not isinstance(last.output, ElementSchema):
        return pipeline
    if not at_start and last.empty().step(Inputs()).final is not None:
        return pipeline
    reports = ReportFinalOperator(last.output, final_at_start=at_start or known)
    return (*pipeline, PipelineStep("final", reports, observes=True))
