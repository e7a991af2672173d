"""Merge R3 over batches with any policy: `violations`, `adjusts`, `inserts` and the others.

By `element` the output, the reasons and what is resolved are those of `MergeR3`, however the
elements are cut into steps.  By `batch` the output is the net change of that (erratum D21).

What a step costs: an element, a look at its replicas; a stable that moves the output's frontier
and a change of whom the policy asks, a look at every event that may still change.  The default
policy is that of `r3_kernel`, which looks at nothing but what a stable freezes or corrects.

`violations=raise` raises in the middle of a step: go back to the state that was saved before
it.  With `detach` the replica leaves at its violation; in a merge of several lanes the caller
detaches those whom `PolicyStep.guilty` names from the other lanes too.  In lanes, the replica
of `highest_start` and of `most_free` is chosen among the events of the lane.

Papers: LMerge IV-D, V-A, V-B; erratum D21 for the net change.
"""

from collections.abc import Sequence
from typing import NamedTuple

from anabranch.errors import UsageError
from anabranch.operators.merge.admit import admit
from anabranch.operators.merge.contract import Arrival, Granularity, StepResult
from anabranch.operators.merge.r3_policy_pass import Pass
from anabranch.operators.merge.r3_policy_state import R3PolicyState


class PolicyStep(NamedTuple):
    """The result of a step, and the replicas that the policy has detached in it."""

    result: StepResult
    guilty: tuple[str, ...]


def step(
    state: R3PolicyState, arrivals: Sequence[Arrival], *, granularity: Granularity = "batch"
) -> PolicyStep:
    """Take what arrived, change the state, and return what the output has to say."""
    if granularity not in ("batch", "element"):
        message = f"merge: granularity '{granularity}' is neither 'batch' nor 'element'"
        raise UsageError(message)
    work, before = Pass(state), set(state.expelled)
    for arrival in arrivals:
        work.require_attachment(arrival.replica, arrival.attachment)
    admit(work, arrivals)
    work.take(arrivals)
    result = work.finish(granularity)
    return PolicyStep(result, tuple(name for name in state.expelled if name not in before))
