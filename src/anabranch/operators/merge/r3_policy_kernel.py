"""Merge R3 over batches, with what the kernel has of a policy; the rest is refused by name.

The kernel runs the default `adjusts`, `inserts` and `stable_lag`, without `shrink_only` and
`promote`.  `violations` is a verdict on a step that has been taken: a violation has changed
nothing in the state, but other elements of the step have.  So

* `raise` raises after the step: go back to the state that was saved before it;
* `detach` returns the names of the guilty, and the caller detaches them in all lanes before
  the next step, and takes nothing from them until they attach with a greater number.

Papers: LMerge V-A.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anabranch.batch.codec import to_elements
from anabranch.errors import UsageError, ViolationError
from anabranch.operators.merge.contract import (
    REASONS,
    Arrival,
    Bucket,
    Granularity,
    StepResult,
)
from anabranch.operators.merge.policy import DEFAULT, Ignore, Policy, Raise
from anabranch.operators.merge.r3 import accuse
from anabranch.operators.merge.r3_kernel import step as plain_step
from anabranch.operators.merge.r3_state import R3State


class PolicyStep(NamedTuple):
    """The result of a step, and the replicas that the policy detaches before the next."""

    result: StepResult
    guilty: tuple[str, ...]


def step(
    state: R3State,
    arrivals: Sequence[Arrival],
    *,
    policy: Policy = DEFAULT,
    granularity: Granularity = "batch",
) -> PolicyStep:
    """Take what arrived under this policy; one that the kernel has not is refused first."""
    require_kernel(policy)
    result = plain_step(state, arrivals, granularity=granularity)
    return PolicyStep(result, guilty(policy, arrivals, result))


def require_kernel(policy: Policy) -> None:
    """Refuse a policy of which the kernel has not all choices.

    >>> require_kernel(Policy())
    """
    ours, default = policy.to_dict(), DEFAULT.to_dict()
    missing = [
        f"{choice}={value}"
        for choice, value in ours.items()
        if value != default[choice] and choice != "violations"
    ]
    if missing:
        message = (
            f"merge: the kernel over batches has no {', '.join(missing)}; it runs the default "
            "policy and any choice of violations.  Leave these choices out, or merge element "
            "by element: anabranch.operators.merge.r3.MergeR3(policy=...) has all of them"
        )
        raise UsageError(message)


def guilty(policy: Policy, arrivals: Sequence[Arrival], result: StepResult) -> tuple[str, ...]:
    """The replicas with a violation in this step that are to be detached; or raise."""
    if isinstance(policy.violations, Ignore):
        return ()
    names: dict[str, None] = {}
    for arrival, buckets, reasons in zip(arrivals, result.buckets, result.reasons, strict=True):
        wrong = np.flatnonzero(buckets == Bucket.VIOLATION)
        if len(wrong) == 0:
            continue
        if isinstance(policy.violations, Raise):
            (element,) = to_elements(arrival.batch.take(wrong[:1]))
            raise ViolationError(accuse(arrival.replica, element, REASONS[reasons[wrong[0]]]))
        names[arrival.replica] = None
    return tuple(names)
