"""Aggregates by key and session: one event per group of a session, with its values.

The output is that of `operators.session` with the aggregate by the key and `window` behind it.
In one step it remembers less, and knows earlier what is final.  Two steps are connected by a
stream, whose stable waits at the start of the oldest open session, and so does what the
aggregate remembers of all sessions since.  Here the aggregate reads rows that live for one unit
at the end of their session: a session is a group of its own, so its values are the same, and
every stable passes.  A session leaves, and is final, when the input's frontier has passed its
end, whatever other sessions are open.

The stable of the output still waits for the oldest open session, since the events of one that
goes on are removed and inserted again.

Papers: none; these are aggregates by Spark's `session_window`.  The reference is
`anabranch.operators.reference.session`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, Batch, Ints, concat
from anabranch.batch.buffers import numbers, one_array, take
from anabranch.batch.events import inserts
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import StreamProperties, shared
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.aggregate.operator import AggregateOperator
from anabranch.operators.aggregate.state import AggregateState
from anabranch.operators.by_key.session import SessionOperator, SessionState
from anabranch.operators.contract import INPUT, Arrival, Inputs, Route, StepResult
from anabranch.operators.grid_windows import WINDOW
from anabranch.operators.state.blocks import Saved
from anabranch.operators.trusting import written
from anabranch.operators.unary import OneInput

_PREFIX: Final = "sessions/"
"""How the names of the parts with the rows begin; the others are those of the aggregate."""

_INT64: Final = np.dtype(np.int64)


@dataclass(frozen=True)
class SessionAggregateOperator:
    """Aggregate functions per group of equal keys and session.

    `keys` name the columns of the session's key, and `window`, at the place that it has in the
    output.
    """

    session: SessionOperator
    keys: tuple[str, ...]
    functions: tuple[Aggregate, ...]
    name: str = "aggregate"
    reports_final: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", tuple(self.keys))
        missing = [key for key in (*self.session.by, WINDOW) if key not in self.keys]
        if missing:
            message = (
                f"{self.name}: sessions are those of {', '.join(self.session.by)}, and the "
                f"keys {list(self.keys)} lack {', '.join(missing)}; group by these columns too"
            )
            raise UsageError(message)
        assert self.output is not None

    @cached_property
    def behind(self) -> AggregateOperator:
        """The aggregate over rows with their sessions."""
        return AggregateOperator(
            self.session.output,
            self.keys,
            self.functions,
            final_at_start=True,
            name=self.name,
            reports_final=self.reports_final,
        )

    @property
    def schema(self) -> ElementSchema:
        """The columns of the input."""
        return self.session.schema

    @cached_property
    def output(self) -> ElementSchema:
        """The keys and the window, then a column for each function."""
        return self.behind.output

    @property
    def route(self) -> Route:
        """All rows of a session are in one lane."""
        return Route.KEY

    @property
    def route_columns(self) -> Sequence[str]:
        """The key of the sessions."""
        return self.session.by

    @property
    def holds_stables(self) -> bool:
        """The frontier depends on which sessions a lane has open: lanes differ."""
        return True

    @property
    def output_final_at_start(self) -> bool:
        """A session is lifetime and part of the payload of its event, so ends do not change."""
        return True

    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """One event per group and session: keyed."""
        return self.behind.properties(shared(inputs))

    def reporting_final(self) -> "SessionAggregateOperator":
        """The same operator with the sessions that are closed in its results."""
        return replace(self, reports_final=True)

    def empty(self) -> "SessionAggregateState":
        """Nothing has happened."""
        return SessionAggregateState(self, self.session.empty(), self.behind.empty())

    def from_parts(self, parts: Mapping[str, bytes]) -> "SessionAggregateState":
        """The state that was saved; StateError if of another kind, version or schema."""
        theirs = {name: data for name, data in parts.items() if not name.startswith(_PREFIX)}
        ours = {n.removeprefix(_PREFIX): d for n, d in parts.items() if n not in theirs}
        behind = self.behind.from_parts(theirs)
        return SessionAggregateState(self, self.session.from_parts(ours), behind)


class SessionAggregateState(OneInput):
    """The rows of open sessions, and the values of these."""

    def __init__(
        self, operator: SessionAggregateOperator, rows: SessionState, values: AggregateState
    ) -> None:
        self.operator, self.rows, self.values = operator, rows, values

    def __repr__(self) -> str:
        return f"SessionAggregateState({self.rows!r}, {self.values!r})"

    @property
    def frontier(self) -> int:
        """The start of the oldest open session, or the frontier of the input."""
        return self.rows.frontier

    @property
    def live(self) -> int:
        """How many rows are remembered."""
        return self.rows.live

    @property
    def facts(self) -> Mapping[str, Any]:
        """Those of the aggregate."""
        return self.values.facts

    def step(self, inputs: Inputs) -> StepResult:
        """Put rows into sessions, and aggregate these."""
        before = self.rows.received[INPUT]
        changed = self.rows.step(inputs)
        received = self.rows.received[INPUT]
        rows = _at_their_ends(changed.output)
        if received > before:
            rows = concat([rows, _stable(rows.schema, received)])
        found = self.values.step(Inputs((Arrival(INPUT, rows),)))
        output = self._in_place(found.output)
        more = [] if changed.stable is None else [_stable(output.schema, changed.stable)]
        return replace(
            changed,
            output=concat([output, *more]),
            final=None if found.final is None else self._finished(found.final),
            added_adjusts=int(np.count_nonzero(output.kind == ADJUST)),
            added_inserts=int(np.count_nonzero(output.kind == INSERT)),
            counts={**found.counts, **changed.counts},
        )

    def _in_place(self, made: Batch) -> Batch:
        """Removals and inserts of the aggregate, with the sessions as lifetimes."""
        data = made.take(made.is_data)
        start, end = _windows(data)
        count = int(np.count_nonzero(data.kind == ADJUST))
        removed = start[:count], end[:count], start[:count]
        return written(data.schema, removed, (start[count:], end[count:]), data.payload)

    def _finished(self, final: Batch) -> Batch:
        """What is final, by start."""
        start, end = _windows(final)
        order = np.argsort(start, kind="stable")
        payload = take(final.payload, order)
        return inserts(final.schema, start[order], end[order], payload)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        ours, theirs = self.rows.parts(since=since), self.values.parts(since=since)
        # Both count the steps, so one mark is right for both.
        assert ours.mark == theirs.mark, f"{ours.mark} steps, and {theirs.mark} behind"
        named = {f"{_PREFIX}{name}": data for name, data in ours.written.items()}
        gone = tuple(f"{_PREFIX}{name}" for name in ours.deleted)
        return Saved({**theirs.written, **named}, (*theirs.deleted, *gone), ours.mark)

    def check(self) -> None:
        """Assert every invariant."""
        self.rows.check()
        self.values.check()
        mine, its = self.rows.received[INPUT], self.values.frontier
        assert mine == its, f"rows are final before {mine}, values before {its}"


def _at_their_ends(made: Batch) -> Batch:
    """Removals and inserts of sessions, each for one unit at the end of the session."""
    data = made.take(made.is_data)
    is_insert = data.kind == INSERT
    at = np.where(is_insert, data.end, data.old_end)
    later = at + 1
    return replace(
        data,
        start=at,
        end=np.where(is_insert, later, at),
        old_end=np.where(is_insert, 0, later),
    )


def _windows(batch: Batch) -> tuple[Ints, Ints]:
    """The starts and ends in the column with the session."""
    column = one_array(batch.payload.column(WINDOW))
    return numbers(column.field("start"), _INT64), numbers(column.field("end"), _INT64)


def _stable(schema: ElementSchema, time: int) -> Batch:
    none = np.empty(0, np.int64)
    return inserts(schema, none, none, schema.payload.empty_table(), time)
