"""Align inside a query: events are held back for a while, and leave in order.

What is held is an element, or what several elements of one event come to: an adjust of an event
that is held changes it where it is, and one of an event that was released is combined with
adjusts that are held.  Whatever nets to nothing is dropped (erratum C14).

`release="ordered"` releases what the frontier has passed, inserts by start and adjusts by
min(old_end, end), in the order of these sync times, before the stable (C15, C16, D13).  So the
output is ordered, and it has the frontier of the input.

`release="final"` releases events that are frozen, once no event that starts earlier is held, by
start: no adjusts.  Its frontier is the start of the first event that is held and not frozen, so
an event without end stops it (L13).

With `wait` or `wait_wall` an ordered release does not wait for the frontier for ever.  What
starts at the limit of `waiting.pace` or before it is released, with all that comes for it
later; it may be out of order, and corrected.

The order holds within a lane and from step to step; a step is atomic, and emits its net change.

`operators.align` is another operator: the total order of a merge, in one lane, for readers.  It
passes adjusts of released events at once, and validates its input; this one trusts it.

Papers: CEDR *operators*, 4.5, with errata C14 to C17 and D13; the reference is
`anabranch.operators.reference.hold`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.cleanse import after_cleanse
from anabranch.operators.contract import INPUT, Port, Route
from anabranch.operators.waiting.hold_state import FinalState, HoldState, OrderedState
from anabranch.operators.waiting.level import Release


def after_align(
    properties: StreamProperties, *, release: Release, waits: bool
) -> StreamProperties:
    """What holds of the output, if this holds of the input.

    `waits`: only the frontier releases events.  Then inserts are in the order of starts; those
    of one start come together, by their values, if there are no adjusts.
    """
    if release is Release.FINAL:
        return after_cleanse(properties)
    ordered = waits
    return StreamProperties(
        insert_only=properties.insert_only,
        ordered=ordered,
        strictly_increasing=ordered and properties.strictly_increasing,
        ties_in_same_order=ordered and properties.insert_only,
        keyed=properties.keyed,
    )


@dataclass(frozen=True)
class HoldOperator:
    """Hold events back, combine what changes them meanwhile, and release them in order.

    `schema` has the columns of the input.

    `wait`, in units of application time: an event is released at the latest when its start is
    no greater than the greatest start that the whole query has seen, less `wait`.  0 holds
    nothing beyond its step; None waits for the frontier only.

    `wait_wall`, in microseconds: the same by the wall clock of the triggers; of both the one
    that is over first counts.

    `release`: see above; `Release.FINAL` takes neither of the waits.

    `beside` are the ports of the other inputs of the step that this one is in front of.  All
    are released together, by the least of their frontiers: else a join of ordered inputs is not
    ordered.  Of such a port (`beside_0`, `beside_1`, ...) only stables are read.

    `is_leveled`: its waits are those of the query's level, which may change while it runs; see
    `abilities.Leveled`.

    It is `abilities.Paced` if it has a wait, or may get one.
    """

    schema: ElementSchema
    wait: int | None = field(default=None, kw_only=True)
    wait_wall: int | None = field(default=None, kw_only=True)
    release: Release = field(default=Release.ORDERED, kw_only=True)
    beside: tuple[Port, ...] = field(default=(), kw_only=True)
    name: str = field(default="align", kw_only=True)
    is_leveled: bool = field(default=False, kw_only=True)
    route: Route = field(default=Route.IDENTITY, kw_only=True)
    route_columns: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for option in ("wait", "wait_wall"):
            value = getattr(self, option)
            if value is not None and value < 0:
                message = f"align: {option} is {value}; it must be 0 or greater"
                raise UsageError(message)
        if self.release is Release.FINAL and (self.wait is not None or self.needs_time):
            message = (
                'align: release="final" releases final events only, however long that takes; '
                'leave wait= and wait_wall= out, or use release="ordered"'
            )
            raise UsageError(message)

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def ports(self) -> Mapping[str, Port]:
        """The input, and those that are released together with it."""
        mine = Port(self.schema, self.route, tuple(self.route_columns))
        others = {f"beside_{number}": one for number, one in enumerate(self.beside)}
        return {INPUT: mine, **others}

    @property
    def keeps_payload(self) -> bool:
        """Events are compared with those of their payload, and stay as they are."""
        return True

    @property
    def is_paced(self) -> bool:
        """Whether it goes by how far the whole query is."""
        return self.is_leveled or self.wait is not None or self.wait_wall is not None

    @property
    def needs_time(self) -> bool:
        """Whether it goes by the wall clock."""
        return self.wait_wall is not None

    @property
    def holds_stables(self) -> bool:
        """Lanes differ by what they hold, if final events wait for others."""
        return self.release is Release.FINAL

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Ordered, unless a wait is over first."""
        waits = not self.is_paced
        return after_align(inputs[0], release=self.release, waits=waits)

    def empty(self) -> HoldState:
        """Nothing has happened."""
        return self._state(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> HoldState:
        """The state that was saved; StateError if of another kind, version or schema."""
        return self._state.restored(parts, self)

    @property
    def _state(self) -> type[HoldState]:
        return FinalState if self.release is Release.FINAL else OrderedState
