"""The options of a merge as the user gave them, and the policy that follows from them.

Python and the command line fill in the same values; a restart combines them with the run.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from anabranch.batch.schema import TimeType
from anabranch.batch.times import MICROSECONDS, to_units
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import ORDERED
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.spark.run.patience import WAIT_WALL

REMEMBER: Final = MICROSECONDS["day"]
"""For timestamps, with gaps: how far behind the frontier copies are recognised in new runs."""
NO_LIMIT: Final = "forever"
"""What `remember` is called where nothing limits it."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of one merge; None: keep that of the run, or choose one for a new run.

    `wait` and `remember` are distances in application time, as the user wrote them (`remember`
    also "forever").  `wait_wall` is in seconds.
    """

    case: MergeCase | None = None
    policy: Policy | None = None
    lanes: int | None = None
    usual_lanes: int = 1
    gaps: bool | None = None
    wait: str | int | None = None
    remember: str | int | None = None
    wait_wall: float = WAIT_WALL
    strict: bool = False
    assume_complete: bool = False

    def settle(self, time: TimeType, *, gaps: bool, kept: Policy | None = None) -> Policy:
        """The policy in force: the requested one, else `kept`, the run's, else the default.

        `gaps` is the default for the inputs.
        """
        base = self.policy or kept or DEFAULT
        if self.gaps is not None:
            gaps = self.gaps
        elif base is kept or base.gaps or self.case in ORDERED:
            gaps = base.gaps
        elif kept is not None:
            base, gaps = replace(base, gaps=kept.gaps, wait=kept.wait), kept.gaps
        wait = base.wait if gaps else None
        if self.wait is not None:
            wait = to_units(str(self.wait), time, option="wait")
        remember = self._remember(time, base, gaps=gaps, kept=kept)
        return replace(base, gaps=gaps, wait=wait, remember=remember)

    def _remember(
        self, time: TimeType, base: Policy, *, gaps: bool, kept: Policy | None
    ) -> int | None:
        """How far behind the frontier copies are recognised, in units; None: no limit."""
        if self.remember is not None:
            return remember_units(self.remember, time)
        if base.remember is not None:
            return base.remember
        if kept is not None:
            return kept.remember
        return REMEMBER if gaps and time is TimeType.TIMESTAMP else None

    def explain_wait(self) -> str:
        """How long the output waits for slow replicas, for `explain`."""
        limits = [] if self.wait is None else [f"at most {self.wait} behind the fastest"]
        if math.isfinite(self.wait_wall):
            limits.append(f"at most {self.wait_wall:g} s for one that makes no progress")
        return ", ".join(["; it is final where the slowest copy is", *limits])


def remember_units(given: str | int, time: TimeType) -> int | None:
    """How far behind the frontier copies are recognised, in units; None: no limit."""
    if str(given).strip().lower() == NO_LIMIT:
        return None
    return to_units(str(given), time, option="remember")


def case_named(case: str) -> MergeCase | None:
    """The merge case of this name; None for "auto"."""
    if case == "auto":
        return None
    if case not in [one.value for one in MergeCase]:
        message = f"ab.merge: case={case!r} is not one of auto, r0, r1, r2, r3, r4"
        raise UsageError(message)
    return MergeCase(case)
