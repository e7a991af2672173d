"""Finalize inside a query: what is further back than `remember` is final, whatever comes.

At the end of a trigger it emits a forced stable: the greatest start that the whole query has
seen, less `remember`, where that is beyond the frontier of the input.  So steps behind it
forget.  What comes behind a forced stable later is late, and with it every adjust of an event
that is not on the output as the input has it:

* of an insert that was late: it is an event that the output does not have;
* of an event whose last adjust was late: the output has it with an earlier end.

Everything else passes as it came, so that history(output) is at every prefix the history of the
input without what is late, and every stable of the output is true.

Remembered: per identity how many ends the input has more (or fewer) than the output, without
ends behind the frontier, which nothing can adjust any more.  Rows that are never adjusted and
have no open end cost nothing.

Promises and broken chains need all that arrives, and are of the operator that takes the input:
`operators.waiting.promised`.

Papers: CEDR *operators*, 4.6, `finalizetime()`, with errata C17, C18, C24 and D14; the
reference is `anabranch.operators.reference.finalize`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.contract import Route
from anabranch.operators.waiting.finalize_state import FinalizeState


@dataclass(frozen=True)
class FinalizeOperator:
    """Force a stable, and put aside what comes behind it.

    `schema` has the columns of the input.

    `remember`, in units of application time: how far behind the greatest start that the whole
    query has seen an element may be, and still count.  0 forgets all but the latest instant;
    None forgets nothing, until the level of the query changes (`abilities.Leveled`).

    `insert_only`: the input has no adjusts, so nothing of what was late is remembered.

    It is `abilities.Paced`: rows that are ahead of the host's guard do not move it.
    """

    schema: ElementSchema
    remember: int | None
    insert_only: bool = field(default=False, kw_only=True)
    name: str = field(default="finalize", kw_only=True)
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
    def keeps_payload(self) -> bool:
        """Events are compared with those of their identity, and stay as they are."""
        return True

    @property
    def is_paced(self) -> bool:
        """It goes by the greatest start."""
        return True

    @property
    def is_leveled(self) -> bool:
        """It forgets what the query's level forgets."""
        return True

    @property
    def needs_time(self) -> bool:
        """It goes by no wall clock."""
        return False

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """A subsequence: all but positions, which depend on what was late."""
        known = shared(inputs)
        return replace(known, ties_in_same_order=known.strictly_increasing)

    def empty(self) -> FinalizeState:
        """Nothing has happened."""
        return FinalizeState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> FinalizeState:
        """The state that was saved; StateError if of another kind, version or schema."""
        return FinalizeState.restored(parts, self)


def require_remember(remember: int) -> None:
    """Refuse a span that is none."""
    if remember < 0:
        message = f"finalize: remember is {remember}; it must be 0 or greater"
        raise UsageError(message)
