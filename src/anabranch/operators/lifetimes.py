"""alter_lifetime and hop over batches: every event gets the lifetime of a rule.

At every prefix the output's history is that of the rule (`model.lifetimes`), and its frontier
is the image of the input's: the greatest that is true, since an event may still come at the
input's frontier.  A combination of rules that would make it untrue is rejected when the rule is
built (erratum C27).  Adjusts that change nothing are not emitted (C26); a removal stays one.

`window(size)` is `sliding(size)`, `hop(size, slide)` is `Hop(size, slide)`.

Papers: CEDR *operators*, 4.2; the reference is `anabranch.operators.reference.lifetimes`.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeAlias

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Ints
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationCapped,
    DurationConstant,
    DurationLengthened,
    DurationRule,
    Hop,
    StartRounded,
    StartRule,
    StartShifted,
)
from anabranch.model.properties import StreamProperties, positions_agree, shared
from anabranch.model.time import FOREVER
from anabranch.operators.stateless import (
    StatelessOperator,
    require_room,
    time_of,
    units_of,
)

Rule: TypeAlias = AlterLifetime | Hop


class StartChange(Enum):
    """What an operator does to starts, by a function of the start alone (`ANY`: of more)."""

    NONE = "none"
    INCREASING = "increasing"  # different starts stay different, in the same order
    NON_DECREASING = "non_decreasing"  # different starts may become equal: rounding to a grid
    ANY = "any"


def after_alter_lifetime(
    properties: StreamProperties, *, start: StartChange = StartChange.NONE
) -> StreamProperties:
    """Change lifetimes, each as a function of the event; ends do not affect properties.

    Windows that only set the end (`[start, start + size)`) keep all; so does a start function
    that is strictly increasing.  Rounding to a grid keeps order, but makes starts equal: what
    was unique need not be, and ties are those of all starts that fall on one grid point, in
    their order.  After any other change of starts only the absence of adjusts is known.  A step
    with adjusts is sorted by payload, so only an input without them keeps the order of ties.
    """
    if start in (StartChange.NONE, StartChange.INCREASING):
        ties = properties.ties_in_same_order and properties.insert_only
        return replace(properties, ties_in_same_order=ties)
    insert_only = properties.insert_only
    if start is StartChange.ANY:
        return StreamProperties(insert_only=insert_only)
    return StreamProperties(
        insert_only=insert_only,
        ordered=properties.ordered,
        ties_in_same_order=positions_agree(properties),
    )


@dataclass(frozen=True)
class AlterLifetimeOperator(StatelessOperator):
    """Give every event the lifetime of a rule.

    `final_at_start`: the ends of the input are known, so that an event of it is final as soon
    as its start is before the frontier.
    """

    rule: Rule
    final_at_start: bool = field(default=False, kw_only=True)

    @property
    def name(self) -> str:
        """As the call that makes it."""
        return "hop" if isinstance(self.rule, Hop) else "alter_lifetime"

    @property
    def output_final_at_start(self) -> bool:
        """Whether an event of the output is final once its start is before the frontier."""
        return (
            self.final_at_start or isinstance(self.rule, Hop) or self.rule.ends_by_start_alone
        )

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """All but the order of ties if starts stay or move; order if they are rounded."""
        rounds = isinstance(self.rule, Hop) or isinstance(self.rule.start, StartRounded)
        change = StartChange.NON_DECREASING if rounds else StartChange.INCREASING
        return after_alter_lifetime(shared(inputs), start=change)

    def moved(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The new lifetimes of events that live."""
        known = isinstance(self.rule, Hop) or self.rule.ends_by_start_alone
        require_room(self.name, reach(self.rule), *((start,) if known else (start, end)))
        if isinstance(self.rule, Hop):
            size, slide = self.rule.size, self.rule.slide
            return round_up(start, slide), round_up(start + size, slide)
        begin = _starts(self.rule.start, start)
        return begin, _ends(self.rule.duration, start, end, begin)

    def passed(self, received: int) -> int:
        """The rule's image of the input's frontier."""
        return units_of(self.rule.stable(time_of(received)))


def reach(rule: Rule) -> int:
    """How far a rule moves a time at most, intermediate results included."""
    if isinstance(rule, Hop):
        return rule.size + rule.slide
    moves = 0
    if isinstance(rule.start, StartShifted):
        moves = abs(rule.start.by)
    elif isinstance(rule.start, StartRounded):
        moves = rule.start.step + abs(rule.start.offset)
    duration = rule.duration
    if isinstance(duration, DurationConstant):
        return moves + (0 if duration.size == FOREVER else int(duration.size))
    if isinstance(duration, DurationLengthened):
        return moves + duration.by
    return moves + (duration.at if isinstance(duration, DurationCapped) else 0)


def round_down(times: Ints, step: int, offset: int) -> Ints:
    """The last time `k * step + offset` that is not later."""
    rounded: Ints = (times - offset) // step * step + offset
    return rounded


def round_up(times: Ints, step: int) -> Ints:
    """The first time `k * step` that is not earlier."""
    rounded: Ints = -(-times // step) * step
    return rounded


def _starts(rule: StartRule, start: Ints) -> Ints:
    if isinstance(rule, StartShifted):
        return start + rule.by
    if isinstance(rule, StartRounded):
        return round_down(start, rule.step, rule.offset)
    return start


def _ends(rule: DurationRule, start: Ints, end: Ints, begin: Ints) -> Ints:
    """The ends of events that live; the difference of two times could be no int64."""
    if isinstance(rule, DurationConstant):
        if rule.size == FOREVER:
            return np.full(len(start), FOREVER_UNITS, np.int64)
        return begin + int(rule.size)
    if isinstance(rule, DurationCapped):
        capped: Ints = np.minimum(end, start + rule.at) + (begin - start)
        return capped
    more = begin - start + (rule.by if isinstance(rule, DurationLengthened) else 0)
    ends: Ints = end + np.where(end == FOREVER_UNITS, 0, more)
    return ends
