"""The stages of a plan as lanes: their pipelines, and what each stage sends to the next."""

from collections.abc import Sequence
from dataclasses import replace

from anabranch.batch.schema import ElementSchema
from anabranch.operators.pipeline import Pipeline, PipelineStep
from anabranch.plan.node import Step
from anabranch.plan.stages import Placed, Send, Stage
from anabranch.spark.lane.spec import LaneSpec, NextStage, Sending, follow


def laid_out(cut: Sequence[Stage], first: LaneSpec) -> list[LaneSpec]:
    """The lanes of all stages, if these are the lanes of the first one."""
    specs = [first]
    for number, stage in enumerate(cut[:-1]):
        before = specs.pop()
        sends = tuple(
            Sending(one.name, one.of, one.routing, is_native=bool(one.natives))
            for one in stage.sends
        )
        received = tuple((one.name, sent_schema(one)) for one in stage.sends)
        after = NextStage(first.lanes, sends)
        specs += follow(before, after, pipeline_of(cut[number + 1]), received)
    return specs


def pipeline_of(stage: Stage) -> Pipeline:
    """The operators of a stage, connected."""
    return tuple(_step(one) for one in stage.steps)


def sent_schema(one: Send) -> ElementSchema:
    """The columns of a stream between two stages."""
    node = one.natives[-1] if one.natives else one.node
    return replace(node.schema, has_seq=False, has_replica=False)


def _step(placed: Placed) -> PipelineStep:
    node = placed.node
    if isinstance(node, Step):
        return PipelineStep(node.id, node.operator, node.words, reads=placed.edges)
    entry: PipelineStep = node.entry.spec().pipeline[0]
    return replace(entry, id=node.id, is_entry=True)
