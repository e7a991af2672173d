"""Join: pairs of events with equal keys while both are alive, over batches.

    inner    for each pair of events with equal keys the time in which both are alive
    left     that, and of each left event the maximal runs in which no partner is alive, with
             null as right columns
    semi     of each left event the maximal runs in which a partner is alive
    anti     of each left event the maximal runs in which none is

Null matches nothing.  Two equal events are two: each has its own results.  The output's
frontier is the least of both sides, and every stable passes: the start of a result is a start
of an event or, in runs, a time at which partners come or go, which a side's own frontier
protects.  A removed event is gone (erratum C13), and is no partner of anything.

The state is `state.JoinState`.

Papers: CEDR *operators* 2.2 and Algorithm 6; errata C13, D16, D17.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import SchemaError, UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import Port, Route

if TYPE_CHECKING:
    from anabranch.operators.join.state import JoinState

LEFT: Final = "left"
RIGHT: Final = "right"
"""The names of the inputs."""

How = Literal["inner", "left", "semi", "anti"]
HOWS: Final = ("inner", "left", "semi", "anti")


def after_join(
    left: StreamProperties,
    right: StreamProperties,
    *,
    in_order: bool = False,
    never_alive_twice: bool = False,
) -> StreamProperties:
    """Pairs of events that match, while both are alive: the start is the later of the two.

    An old event of a slow input pairs with others than those already paired, so starts may
    decrease, unless the operator takes its inputs together in the order of their starts
    (`in_order`); then each pair starts where the element that completes it does.  The pairs
    that one element completes come in an order of the operator's own.

    Keyed inputs are not enough for a keyed output: left 1..9 and 2..8 of one payload both pair
    with a right 3..5 as (3, the same payloads).  If in neither input a payload is alive twice
    at one time (`never_alive_twice`), pairs of the same payloads are disjoint.
    """
    common = shared([left, right])
    return StreamProperties(
        insert_only=common.insert_only,
        ordered=in_order and common.ordered and common.insert_only,
        keyed=never_alive_twice,
    )


@dataclass(frozen=True)
class JoinOperator:
    """Join two streams on equal values of pairs of columns (left column, right column).

    `final_at_start`: the ends of the events of both inputs are known from the beginning, so
    that an event is final as soon as its input's frontier has passed its start.
    """

    left: ElementSchema
    right: ElementSchema
    on: tuple[tuple[str, str], ...]
    how: How = "inner"
    final_at_start: bool = False
    name: str = "join"

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            message = f"join: how={self.how!r} is not one of {', '.join(HOWS)}"
            raise UsageError(message)
        if not self.on:
            message = "join: on is empty; name at least one column that both sides have"
            raise UsageError(message)
        if self.left.time is not self.right.time:
            message = (
                f"join: the left side has {self.left.time.value} times, the right side "
                f"{self.right.time.value}; both must have the same, cast them"
            )
            raise SchemaError(message)
        self._require_keys()
        self._require_own_names()

    def _require_keys(self) -> None:
        for side, schema, names in (
            (LEFT, self.left, self.left_keys),
            (RIGHT, self.right, self.right_keys),
        ):
            for name in names:
                if name not in schema.payload.names:
                    message = (
                        f"join: the {side} side has no column '{name}' to join on; it has "
                        f"{schema.payload.names}"
                    )
                    raise SchemaError(message)
            if len(set(names)) < len(names):
                message = f"join: on names a column of the {side} side twice: {list(names)}"
                raise UsageError(message)
        for mine, its in self.on:
            one, other = self.left.payload.field(mine).type, self.right.payload.field(its).type
            if one != other:
                message = (
                    f"join: column '{mine}' of the left side is {one}, column '{its}' of the "
                    f"right side is {other}; keys must have the same type, cast one of them"
                )
                raise SchemaError(message)

    def _require_own_names(self) -> None:
        names = [name.lower() for name in self.left.payload.names]  # as Spark compares them
        twice = [name for name in self.added if name.lower() in names]
        if twice:
            message = (
                f"join: both sides have a column '{twice[0]}' that is not joined on; each "
                "column of the result needs a name of its own, rename one of them"
            )
            raise SchemaError(message)

    @property
    def left_keys(self) -> tuple[str, ...]:
        """The columns of the left side that must be equal."""
        return tuple(mine for mine, _ in self.on)

    @property
    def right_keys(self) -> tuple[str, ...]:
        """The columns of the right side that they must be equal to."""
        return tuple(its for _, its in self.on)

    @property
    def added(self) -> tuple[str, ...]:
        """The columns that the result has from the right side."""
        if self.how in ("semi", "anti"):
            return ()
        keys = self.right_keys
        return tuple(name for name in self.right.payload.names if name not in keys)

    @property
    def ports(self) -> Mapping[str, Port]:
        """The two sides, each with lanes by its own key."""
        return {
            LEFT: Port(self.left, Route.KEY, self.left_keys),
            RIGHT: Port(self.right, Route.KEY, self.right_keys),
        }

    @property
    def schema(self) -> ElementSchema:
        """The columns of the left side; see `ports`."""
        return self.left

    @property
    def output(self) -> ElementSchema:
        """The columns of the left side, then those of the right side that are no keys."""
        more = [self.right.payload.field(name) for name in self.added]
        return ElementSchema(self.left.time, pa.schema([*self.left.payload, *more]))

    @property
    def route(self) -> Route:
        """By key; see `ports`."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The key of the left side; see `ports`."""
        return self.left_keys

    @property
    def output_final_at_start(self) -> bool:
        """Whether the ends of results are known: of pairs if those of both events are.

        The end of a run depends on partners that are still to come.
        """
        return self.final_at_start and self.how == "inner"

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Pairs are never corrected if the inputs are not; runs are."""
        left, right = inputs
        return after_join(left, right) if self.how == "inner" else StreamProperties()

    def empty(self) -> "JoinState":
        """Nothing has happened."""
        from anabranch.operators.join.state import JoinState

        return JoinState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "JoinState":
        """The state that was saved; StateError if of another kind, version or schema."""
        state = self.empty()
        state.restore(parts)
        return state
