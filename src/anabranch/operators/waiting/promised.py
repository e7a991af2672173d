"""Finalize where a stream enters: promises become stables, and broken chains are repaired.

The elements of such a stream come in any order, an adjust also before the event that it
adjusts.  The stream has no stables, but promises (external CTIs): a promise [start, end) of
count n is that n elements have their sync time in it, in all lanes and replicas.

*Chains.*  Per identity there is a signed multiset of ends: an insert adds one, an adjust takes
one and adds one.  The identity is whole when no count is negative; then the output has what the
multiset has.  Until then it has what is known for sure: inserts, and adjusts of ends that the
output has; other adjusts are pending.  So adjusts that lengthen, and several events of one
identity, are repaired too, and what arrives in order is never held.  What was retracted before
it arrived does not show (C23).

*Promises.*  They come in any order too, must tile the time from `origin` on (C19, C20), and
count every element that arrives by its own sync time, also one that is late, but not one whose
`seq` was consumed before (C21, C24).  The output's frontier is the end of the last promise that
is complete without a hole before it, and at most the least sync time of what is pending (C22).
A promise whose end is FOREVER ends the stream.

*Forgetting.*  With `remember` stables are forced as in `waiting.finalize`; what is pending
behind one is late then, and what was late is counted, so that promises become complete.

What comes behind a promise that is complete, or beyond its count, is a violation; so is a
promise that overlaps another one.  Every event that is not final is remembered (C18), and the
seq of every element, as ranges.

It counts all that arrives, so all of a stream must reach one state: one lane.

Papers: CEDR *operators*, 4.6 and Table 5, with errata C18 to C25 and D14; the reference is
`anabranch.operators.reference.promised`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import INPUT, Port, Route
from anabranch.operators.waiting.finalize import require_remember
from anabranch.operators.waiting.promise_book import PROMISES, promises_schema
from anabranch.operators.waiting.promised_state import PromisedState


@dataclass(frozen=True)
class PromisedOperator:
    """Turn promises into stables, and repair broken chains.

    `schema` has the columns of the elements.

    `origin`: the start of the first promise; nothing may have its sync time before it.

    `remember`: as for `finalize`, None: nothing is forced, and it is not `abilities.Paced`.

    `promises_of`: the name of the input that brings promises; all others bring elements.
    """

    schema: ElementSchema
    origin: int
    remember: int | None = field(default=None, kw_only=True)
    promises_of: str = field(default=PROMISES, kw_only=True)
    name: str = field(default="promises", kw_only=True)
    route: Route = field(default=Route.IDENTITY, kw_only=True)
    route_columns: Sequence[str] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        if self.remember is not None:
            require_remember(self.remember)

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    @property
    def ports(self) -> Mapping[str, Port]:
        """Elements, and promises."""
        mine = Port(self.schema, self.route, tuple(self.route_columns))
        return {INPUT: mine, PROMISES: Port(promises_schema(self.schema.time), Route.ALL)}

    @property
    def is_paced(self) -> bool:
        """Whether it goes by the greatest start."""
        return self.remember is not None

    @property
    def needs_time(self) -> bool:
        """It goes by no wall clock."""
        return False

    @property
    def holds_stables(self) -> bool:
        """What is pending in a lane holds its frontier back."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """Identities stay what they are; chains that are repaired need adjusts."""
        known = shared(inputs)
        return StreamProperties(insert_only=known.insert_only, keyed=known.keyed)

    def empty(self) -> PromisedState:
        """Nothing has happened."""
        return PromisedState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> PromisedState:
        """The state that was saved; StateError if of another kind, version or schema."""
        return PromisedState.restored(parts, self)
