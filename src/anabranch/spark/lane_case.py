"""Which merge the lanes of a run take, with which policy: the one seam to `merge.start`.

R3 and R4 are routed by identity: all that is said of an event reaches one lane.  R0, R1 and R2
compare the events of one start, so there the start alone decides the lane; a lane sees some of
the starts of each replica, in their order, and the promises of the case hold for it.  What
several lanes do not have is one current start: their common output is valid, but not in the
order of starts.  With one lane it is.

A merge of undeclared streams begins as R3 in every lane and goes on as R4 in the lane that
meets an identity twice.  Lanes may so be in different cases; no identity is in two of them,
and all have the same frontier, so the history is that of one lane.

All that a policy asks of stables and membership (who leads, who votes, who is promoted, how far
the output stays behind) is the same in every lane, for these reach every lane.  A violation is
seen by one lane: so no lane detaches by itself.  `raise` fails the trigger, which leaves
nothing behind; `detach` names the guilty, and the control log detaches them in all lanes at the
next trigger.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import Choice
from anabranch.operators.merge.contract import Arrival
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_policy_kernel import PolicyStep
from anabranch.operators.merge.start import Merge, from_parts, open_merge
from anabranch.operators.merge.support import require_choice, require_support
from anabranch.operators.merge.verdict import guilty

ORDERED: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)


@dataclass(frozen=True)
class LaneCase:
    """The case, the case that a lane begins with, and the policy; fixed for a run's life.

    Of the policy `violations` may change between two starts.
    """

    case: MergeCase
    first: MergeCase
    policy: Policy = DEFAULT

    @classmethod
    def of(cls, choice: Choice, policy: Policy = DEFAULT) -> "LaneCase":
        """The chosen case; a policy that it has not is refused by name."""
        require_choice(choice, policy)
        return cls(choice.case, choice.first, policy)

    @classmethod
    def named(cls, name: str, policy: Policy = DEFAULT) -> "LaneCase":
        """The case of a run that recorded this name."""
        first, _, then = name.partition(" then ")
        require_support(MergeCase(then or first), policy)
        return cls(MergeCase(then or first), MergeCase(first), policy)

    @property
    def by_start(self) -> bool:
        """Whether the start alone decides the lane."""
        return self.case in ORDERED

    @property
    def name(self) -> str:
        """How a run records it."""
        case, first = self.case.value, self.first.value
        return case if self.case is self.first else f"{first} then {case}"

    @property
    def in_lane(self) -> Policy:
        """What a lane does by itself: all but what becomes of violations."""
        return replace(self.policy, violations=DEFAULT.violations)

    def empty(self, schema: ElementSchema) -> Merge:
        """Nobody is attached and nothing has happened."""
        return open_merge(self.case, schema, self.in_lane, first=self.first)

    def step(self, merge: Merge, arrivals: Sequence[Arrival]) -> PolicyStep:
        """Take what arrived; whom the policy detaches before the next step."""
        result, _ = merge.step(arrivals)
        return PolicyStep(result, guilty(self.policy, arrivals, result))

    def from_parts(self, parts: Mapping[str, bytes], schema: ElementSchema) -> Merge:
        """The merge that was saved last; StateError if of another case, policy or payload."""
        return from_parts(parts, self.case, schema, self.in_lane, first=self.first)
