"""A pipeline: operators with ids that users see, one after the other, in one lane.

The first operator takes the named inputs and the control entries; each other one takes the
output of the one before it, as an input of that one's id.  A step without output ends there:
the operators behind it are not called.

Whoever hosts a pipeline knows its operators by their contract alone.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.operators.contract import (
    Arrival,
    Inputs,
    Operator,
    ReportsFinal,
    State,
    StepResult,
)


@dataclass(frozen=True)
class PipelineStep:
    """An operator and its id: unique in a run, part of the names in the state store.

    `detail` is what a checkpoint records beside the id, the operator's name unless given: it is
    fixed for a run's life.  A step that `observes` takes the output of the step before and only
    reports; the pipeline's output is that of the step before.
    """

    id: str
    operator: Operator
    detail: str = ""
    observes: bool = False

    @property
    def label(self) -> str:
        """What a checkpoint records of it."""
        return f"{self.id}: {self.detail or self.operator.name}"


Pipeline = tuple[PipelineStep, ...]


def require_ids(pipeline: Pipeline) -> None:
    """Refuse a pipeline without steps, or with ids that cannot be prefixes of names."""
    ids = [one.id for one in pipeline]
    if not ids or len(set(ids)) != len(ids) or any("/" in one or not one for one in ids):
        message = (
            f"the steps of a pipeline are called {ids}; expected at least one, each with an id "
            "of its own that is not empty and has no '/'; rename them"
        )
        raise UsageError(message)


def run(
    pipeline: Pipeline, states: Mapping[str, State], inputs: Inputs
) -> Iterator[tuple[PipelineStep, StepResult]]:
    """Take one step with each operator; the last result that is yielded is the pipeline's."""
    result: StepResult | None = None
    for one in pipeline:
        before, result = result, states[one.id].step(inputs)
        if one.observes and before is not None:
            result = replace(result, output=before.output, frontier=before.frontier)
        yield one, result
        if not len(result.output):
            return
        inputs = Inputs((Arrival(one.id, result.output),))


def with_final(pipeline: Pipeline) -> Pipeline:
    """The pipeline, such that its last step reports the events that become final."""
    # Here, since every worker imports this module, and only this needs those kernels.
    from anabranch.operators.finalize import FinalizeOperator

    last = pipeline[-1].operator
    own = last.reporting_final() if isinstance(last, ReportsFinal) else None
    if own is not None:
        return (*pipeline[:-1], replace(pipeline[-1], operator=own))
    if last.empty().step(Inputs()).final is not None or not isinstance(
        last.output, ElementSchema
    ):
        return pipeline
    finalize = FinalizeOperator(last.output)
    return (*pipeline, PipelineStep("finalize", finalize, observes=True))
