"""`violations` of a policy as a verdict on a step that has been taken, whatever the case.

A violation has changed nothing in the state, but other elements of the step have.  So

* `raise` raises after the step: go back to the state that was saved before it;
* `detach` names the violators, and the caller detaches them in all lanes before the next step,
  and takes nothing from them until they attach with a greater number.

Papers: LMerge V-A.
"""

from collections.abc import Sequence

import numpy as np

from anabranch.batch.codec import to_elements
from anabranch.errors import ViolationError
from anabranch.operators.contract import REASONS, Arrival, Bucket, StepResult
from anabranch.operators.merge.policy import Policy, Violations
from anabranch.operators.reference.r3 import accuse


def violators(
    policy: Policy, arrivals: Sequence[Arrival], result: StepResult
) -> tuple[str, ...]:
    """The replicas with a violation in this step that are to be detached; or raise."""
    if policy.violations is Violations.IGNORE:
        return ()
    names: dict[str, None] = {}
    for arrival, buckets, reasons in zip(arrivals, result.buckets, result.reasons, strict=True):
        wrong = np.flatnonzero(buckets == Bucket.VIOLATION)
        if len(wrong) == 0:
            continue
        if policy.violations is Violations.RAISE:
            (element,) = to_elements(arrival.batch.take(wrong[:1]))
            raise ViolationError(accuse(arrival.input, element, REASONS[reasons[wrong[0]]]))
        names[arrival.input] = None
    return tuple(names)
