"""Redistribute lanes: the states of M lanes after a trigger become those of N lanes.

Each former lane is split into a share for each new one, and each new lane unites its shares.
So no process ever holds more than one lane, as it was or as it becomes.  An operator states by
its contract (`Redistributes`) that its states can be redistributed; others are rejected.
"""

from collections.abc import Sequence

from anabranch.errors import StateError, UsageError
from anabranch.operators.abilities import Redistributes
from anabranch.operators.pipeline import Pipeline
from anabranch.operators.state.reshape import Reshape
from anabranch.spark.lane.state import Lane
from anabranch.spark.pack.positions import restarted


def require_redistributes(pipeline: Pipeline) -> None:
    """Refuse a pipeline with an operator whose states belong to their number of lanes."""
    for one in pipeline:
        if not isinstance(one.operator, Redistributes):
            message = (
                f"the step '{one.id}' ({one.operator.name}) cannot change its lanes: its "
                "states do not support it; start a new run in new folders"
            )
            raise UsageError(message)


def split(
    lane: Lane, pipeline: Pipeline, lanes: int, reshape: Reshape | None = None
) -> list[Lane]:
    """What a lane remembers, by the lane that it belongs to from now on."""
    by = pipeline[0].operator.route
    shares = {
        one.id: one.operator.split(lane.states[one.id], lanes, by, reshape)
        for one in pipeline
        if isinstance(one.operator, Redistributes)
    }
    return [
        Lane(
            {step: states[number] for step, states in shares.items()},
            steps=lane.steps,
            gone=dict(lane.gone),
            passed=dict(lane.passed),
            log=lane.log,
            positions=lane.positions,
            clocks=lane.clocks.copy(),
        )
        for number in range(lanes)
    ]


def unite(shares: Sequence[Lane], pipeline: Pipeline, reshape: Reshape | None = None) -> Lane:
    """The shares of one lane, in the order of the former lanes, as one lane.

    `pipeline` is that of the shares; with `reshape` the lane has other payload columns.
    """
    first = shares[0]
    known = [(one.steps, one.gone, one.passed, one.log, *one.clocks.agreed) for one in shares]
    if any(one != known[0] for one in known):
        message = (
            f"lanes of one run differ in their steps, in who has left, in how far the control "
            f"log was read, or in their clocks: {known}; the checkpoint is damaged; restore "
            "it, or start with a new checkpoint and output"
        )
        raise StateError(message)
    states = {
        one.id: one.operator.unite([share.states[one.id] for share in shares], reshape)
        for one in pipeline
        if isinstance(one.operator, Redistributes)
    }
    return Lane(
        states,
        steps=first.steps,
        gone=dict(first.gone),
        passed=dict(first.passed),
        log=first.log,
        positions=restarted(one.positions for one in shares),
        clocks=first.clocks.copy(),
    )
