"""What lanes have of a policy: the choice of `violations`; the rest is refused by name.

A violation has changed nothing in the state.  `raise` fails the trigger, which leaves nothing
behind.  `detach` names the guilty: the control log detaches them in all lanes at the next
trigger, not in the one lane that saw the violation.
"""

from collections.abc import Sequence

import numpy as np

from anabranch.batch.codec import to_elements
from anabranch.errors import UsageError, ViolationError
from anabranch.operators.merge.contract import REASONS, Arrival, Bucket, StepResult
from anabranch.operators.merge.policy import DEFAULT, Ignore, Policy, Raise
from anabranch.operators.merge.r3 import accuse


def require_policy(policy: Policy) -> None:
    """Refuse a policy of which lanes have not all choices.

    >>> require_policy(Policy())
    """
    default = DEFAULT.to_dict()
    missing = [
        f"{choice}={value}"
        for choice, value in policy.to_dict().items()
        if value != default[choice] and choice != "violations"
    ]
    if missing:
        message = (
            f"merge: lanes on Spark have no {', '.join(missing)}; they run the default policy "
            "with any choice of violations; leave these choices out, or merge in one process "
            "with anabranch.operators.merge, which has them"
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
