"""Union inside a query: all events of its ports in one stream, as they come.

At the end of every step the output's history is the bag sum of the histories of the ports, and
its frontier the least of theirs.  With one port it passes a stream on as it is: the last step
of a query that ends with a filter of Spark's.

Nothing is remembered but the frontiers.  `operators.union` is the union of inputs that come and
go, which it validates.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch.batch.batch import Batch, concat
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, positions_agree, shared
from anabranch.operators.contract import Port, Route
from anabranch.operators.state.blocks import CONTROL, Saved, part_of
from anabranch.operators.state.codec import StateKind, to_table, write_tables
from anabranch.operators.trusting import TrustingState
from anabranch.operators.unary import Changed, changes_nothing

_KIND: Final = StateKind("anabranch union_of", version=1)


def after_union(
    *inputs: StreamProperties, in_order: bool = False, disjoint: bool = False
) -> StreamProperties:
    """All events of all inputs, as they arrive.

    How the inputs interleave differs between replicas, so nothing is left of order, unless the
    operator waits and emits by start and, for equal starts, input after input (`in_order`).
    Two inputs may hold the same identity, unless their payloads are `disjoint`.
    """
    if not inputs:
        message = "union: no input; give the properties of at least one"
        raise UsageError(message)
    common = shared(inputs)
    if len(inputs) == 1:
        return common
    ordered = in_order and common.ordered
    return StreamProperties(
        insert_only=common.insert_only,
        ordered=ordered,
        ties_in_same_order=ordered and positions_agree(common),
        keyed=common.keyed and disjoint,
    )


@dataclass(frozen=True)
class UnionOfOperator:
    """All events of the ports `names`."""

    schema: ElementSchema
    names: tuple[str, ...] = ("input",)
    name: str = "union"
    route: Route = Route.IDENTITY
    route_columns: Sequence[str] = ()

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the inputs."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def any_lane(self) -> bool:
        """Any lane may take any element."""
        return True

    @property
    def ports(self) -> Mapping[str, Port]:
        """All are alike; any element may go to any lane."""
        port = Port(self.schema, self.route, tuple(self.route_columns))
        return dict.fromkeys(self.names, port)

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """One input stays as it is; of several only the absence of adjusts is left."""
        return after_union(*inputs)

    def empty(self) -> "UnionOfState":
        """Nothing has happened."""
        return UnionOfState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "UnionOfState":
        """The state that was saved; StateError if of another kind or version."""
        return UnionOfState.restored(self, parts)


class UnionOfState(TrustingState):
    """The frontiers of the ports."""

    live = 0

    @classmethod
    def restored(cls, operator: UnionOfOperator, parts: Mapping[str, bytes]) -> "UnionOfState":
        """The state that was saved last."""
        _, header = _KIND.open(part_of(parts, CONTROL, _KIND)).first()
        state = cls(operator)
        state.mark = int(header["mark"])
        state.received |= json.loads(header["received"])
        return state

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """All elements, port after port, as they came: an adjust may follow its insert."""
        del before
        some = [replace(one, seq=None, schema=self.output) for one in batches.values()]
        every = concat(some)
        return Changed(every.take(~changes_nothing(every)))

    def parts(self, *, since: int | None = None) -> Saved:
        """The frontiers."""
        del since
        header = _KIND.header(mark=self.mark, received=json.dumps(self.received))
        return Saved({CONTROL: write_tables(to_table({}, header))}, (), self.mark)

    def check(self) -> None:
        """Assert that each port has a frontier."""
        names = list(self.received)
        assert names == list(self.ports), f"frontiers of {names}, ports {list(self.ports)}"
