"""inserts and deletes over batches: all that ever started, and all that ever ended.

    inserts    [start, FOREVER) for every event
    deletes    [end, FOREVER) for every event that ends

`inserts` is an `alter_lifetime`.  `deletes` is not, since its start depends on the end (erratum
C28): an adjust removes the event at the old end and inserts one at the new end.

Stables pass both.  After `stable(t)` an end may move from or to t, so `deletes` cannot pass
more; only where ends are known (`final_at_start`) can nothing begin before t + 1 any more: an
event that comes at t ends later.

Papers: CEDR *operators*, 4.2; the reference is `anabranch.operators.reference.lifetimes`.
"""

from dataclasses import dataclass, field

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Ints
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.lifetimes import StartChange, after_alter_lifetime
from anabranch.operators.stateless import StatelessOperator


@dataclass(frozen=True)
class InsertsOperator(StatelessOperator):
    """All that ever started."""

    @property
    def name(self) -> str:
        """As the call that makes it."""
        return "inserts"

    @property
    def output_final_at_start(self) -> bool:
        """Ends do not change: no event has one."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Starts stay: all but the order of ties, which needs an input without adjusts."""
        return after_alter_lifetime(shared(inputs))

    def moved(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """From the start, without an end."""
        return start, np.full_like(end, FOREVER_UNITS)

    def passed(self, received: int) -> int:
        """Stables pass."""
        return received


@dataclass(frozen=True)
class DeletesOperator(StatelessOperator):
    """All that ever ended.

    `final_at_start`: the ends of the input are known; an event of it is only ever removed, and
    only while its start is not before the frontier.
    """

    final_at_start: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """As the call that makes it."""
        return "deletes"

    @property
    def output_final_at_start(self) -> bool:
        """Ends do not change: no event has one."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Ends become starts: no adjusts if the input has none."""
        return after_alter_lifetime(shared(inputs), start=StartChange.ANY)

    def moved(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """From the end, without an end; nothing where there is no end."""
        del start
        return end, np.full_like(end, FOREVER_UNITS)

    def passed(self, received: int) -> int:
        """Stables pass; where ends are known, one unit more."""
        is_real = NEVER_UNITS < received < FOREVER_UNITS - 1
        return received + 1 if self.final_at_start and is_real else received
