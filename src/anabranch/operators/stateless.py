"""The common part of operators that map each event by itself: nothing is remembered but time.

Such an operator is a function from the lifetime of an event to its new one (`moved`), or to
none, and from the input's frontier to the output's (`passed`).  An adjust takes the image of
the old event away and brings that of the new one, so an event that was emitted in an earlier
step need not be known.

A step emits the net change of the images of its elements: what one element brings and another
takes away does not show, and neither does an adjust whose images are equal (erratum C26).
Only steps with adjusts compare payloads, by their 128-bit hashes.

States of all lanes are equal, so another number of lanes needs no redistribution.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    FOREVER_UNITS,
    INSERT,
    NEVER_UNITS,
    Batch,
    Hashes,
    Ints,
)
from anabranch.batch.buffers import take
from anabranch.batch.hashing import hash_rows
from anabranch.batch.schema import ElementSchema
from anabranch.batch.stable_order import stable_order
from anabranch.errors import InputError
from anabranch.model.properties import StreamProperties
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.contract import INPUT, Route
from anabranch.operators.runs.normalise_runs import Runs, changes
from anabranch.operators.state.blocks import CONTROL, Saved, part_of
from anabranch.operators.state.codec import StateKind, to_table, write_tables
from anabranch.operators.state.reshape import Reshape, reshaped
from anabranch.operators.trusting import TrustingState
from anabranch.operators.unary import Changed


class Images(NamedTuple):
    """New lifetimes, and the row of the batch that each belongs to; empty ones are left out."""

    row: Ints
    start: Ints
    end: Ints

    def take(self, rows: Ints) -> "Images":
        """Some of them, in this order."""
        return Images(self.row[rows], self.start[rows], self.end[rows])


@dataclass(frozen=True)
class StatelessOperator(ABC):
    """The specification of an operator that maps each event by itself."""

    schema: ElementSchema

    @property
    @abstractmethod
    def name(self) -> str:
        """The word for it in messages and records."""

    @abstractmethod
    def moved(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        """The new lifetimes of events that live; an empty one where there is none."""

    @abstractmethod
    def passed(self, received: int) -> int:
        """The greatest stable that is true once the input has this frontier."""

    @abstractmethod
    def properties(self, *inputs: StreamProperties) -> StreamProperties:
        """What holds of a lane's output if this holds of its input."""

    @property
    def route(self) -> Route:
        """Any lane may have any event."""
        return Route.IDENTITY

    @property
    def route_columns(self) -> Sequence[str]:
        """None."""
        return ()

    @property
    def any_lane(self) -> bool:
        """Any lane may take any element."""
        return True

    @property
    def output(self) -> ElementSchema:
        """Elements with the columns of the input."""
        return replace(self.schema, has_seq=False, has_replica=False)

    def change(self, batch: Batch) -> Batch:
        """The net change of the output for these inserts and adjusts."""
        before, after = images(batch, self)
        return net(self.output, batch, before, after)

    def empty(self) -> "StatelessState":
        """Nothing has happened."""
        return StatelessState(self)

    def from_parts(self, parts: Mapping[str, bytes]) -> "StatelessState":
        """The state that was saved; StateError if of another kind, version or schema."""
        return StatelessState.restored(parts, self)

    def split(
        self, state: "StatelessState", lanes: int, by: Route, reshape: Reshape | None = None
    ) -> list["StatelessState"]:
        """Every lane knows the frontier."""
        del by, reshape
        return [state.copied(self) for _ in range(lanes)]

    def unite(
        self, states: Sequence["StatelessState"], reshape: Reshape | None = None
    ) -> "StatelessState":
        """All former lanes know the same."""
        schema = self.schema if reshape is None else reshaped(self.schema, reshape)
        return states[0].copied(replace(self, schema=schema))


class StatelessState(TrustingState):
    """The frontier of the input."""

    operator: StatelessOperator

    def __init__(self, operator: StatelessOperator) -> None:
        super().__init__(operator)
        self.kind = StateKind(f"anabranch {operator.name}", version=1)

    def __repr__(self) -> str:
        return f"StatelessState({self.operator.name}, received {self.received[INPUT]})"

    @property
    def live(self) -> int:
        """Nothing is remembered."""
        return 0

    def passed(self, received: int) -> int:
        """The output's frontier."""
        return self.operator.passed(received)

    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """The net change."""
        del before
        return Changed(self.operator.change(batches[INPUT]))

    def parts(self, *, since: int | None = None) -> Saved:
        """One small part."""
        del since
        schema = self.operator.schema
        header = self.kind.header(
            time=schema.time.value, mark=self.mark, received=self.received[INPUT]
        )
        none = schema.payload.empty_table().replace_schema_metadata(None)
        return Saved({CONTROL: write_tables(to_table({}, header), none)}, (), self.mark)

    @classmethod
    def restored(
        cls, parts: Mapping[str, bytes], operator: StatelessOperator
    ) -> "StatelessState":
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(operator)
        streams = state.kind.open(part_of(parts, CONTROL, state.kind))
        _, header = streams.first()
        state.kind.require_payload(header, streams.next(), operator.schema)
        state.mark, state.received[INPUT] = int(header["mark"]), int(header["received"])
        return state

    def copied(self, operator: StatelessOperator) -> "StatelessState":
        """The same for this operator, which may have other columns."""
        state = type(self)(operator)
        state.mark, state.received = self.mark, dict(self.received)
        return state

    def check(self) -> None:
        """Assert that the output's frontier is one of its times, and no row is kept."""
        frontier = self.frontier
        assert NEVER_UNITS <= frontier <= FOREVER_UNITS, f"frontier {frontier} is no time"


def images(batch: Batch, operator: StatelessOperator) -> tuple[Images, Images]:
    """What the elements take away and what they bring, without what stays the same."""
    start, end = moved_or_empty(operator, batch.start, batch.end)
    rows = np.flatnonzero(batch.kind == ADJUST)
    old_start, old_end = moved_or_empty(operator, batch.start[rows], batch.old_end[rows])
    differs = (old_start != start[rows]) | (old_end != end[rows])
    is_news = end > start
    is_news[rows[~differs]] = False
    is_old = differs & (old_end > old_start)
    after = np.flatnonzero(is_news)
    return (
        Images(rows[is_old], old_start[is_old], old_end[is_old]),
        Images(after, start[after], end[after]),
    )


def moved_or_empty(operator: StatelessOperator, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The new lifetimes; what does not live has an empty one, whatever the operator does."""
    begin, finish = operator.moved(start, end)
    return begin, np.where(end > start, finish, begin)


def net(schema: ElementSchema, batch: Batch, before: Images, after: Images) -> Batch:
    """The fewest elements that take `before` away and bring `after`, in the order of a step."""
    none = np.empty(0, np.int64)
    if not len(before.row):
        return emitted(schema, batch, Images(none, none, none), none, after)
    rows = np.unique(np.concatenate([before.row, after.row]))
    group, first = _groups(batch, rows)
    of = np.full(len(batch), -1, np.int64)
    of[rows] = group
    found = changes(_runs(before, of), _runs(after, of))
    adjusted, inserted = found.adjusted, found.inserted
    return emitted(
        schema,
        batch,
        Images(first[adjusted.group], adjusted.start, adjusted.end),
        found.old_end,
        Images(first[inserted.group], inserted.start, inserted.end),
    )


def emitted(
    schema: ElementSchema, batch: Batch, adjusts: Images, old_end: Ints, inserts: Images
) -> Batch:
    """Adjusts by sync time, then inserts by start, with the payloads of these rows."""
    by_sync = stable_order(np.minimum(old_end, adjusts.end))
    by_start = stable_order(inserts.start)
    adjusts, inserts = adjusts.take(by_sync), inserts.take(by_start)
    rows = np.concatenate([adjusts.row, inserts.row])
    counts = len(by_sync), len(by_start)
    is_same = len(rows) == len(batch) and bool((np.diff(rows) == 1).all())
    return Batch(
        schema,
        np.repeat(np.array([ADJUST, INSERT], np.int8), counts),
        np.concatenate([adjusts.start, inserts.start]),
        np.concatenate([adjusts.end, inserts.end]),
        np.concatenate([old_end[by_sync], np.zeros(counts[1], np.int64)]),
        batch.payload if is_same else take(batch.payload, rows),
        hashes=None if batch.hashes is None else batch.hashes[rows],
    )


def _groups(batch: Batch, rows: Ints) -> tuple[Ints, Ints]:
    """The number of each row's payload, and of each number one row that has it."""
    hashes: Hashes
    if batch.hashes is None:
        hashes = hash_rows(take(batch.payload, rows), len(rows))
    else:
        hashes = batch.hashes[rows]
    order = np.lexsort((hashes[:, 1], hashes[:, 0]))
    sorted_hashes = hashes[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (sorted_hashes[1:] != sorted_hashes[:-1]).any(axis=1)
    group = np.empty(len(order), np.int64)
    group[order] = np.cumsum(begins) - 1
    return group, rows[order[begins]]


def _runs(some: Images, of: Ints) -> Runs:
    """As the comparison of runs wants them: by group and start, the longest first."""
    group = of[some.row]
    order = np.lexsort((-some.end, some.start, group))
    return Runs(group[order], some.start[order], some.end[order])


def require_room(name: str, reach: int, *times: Ints) -> None:
    """Refuse times that a rule would move beyond all times; `reach` is how far it moves."""
    for some in times:
        real = some[some != FOREVER_UNITS]
        if not len(real):
            continue
        for time in (int(real.min()), int(real.max())):
            if not NEVER_UNITS < time - reach <= time + reach < FOREVER_UNITS:
                message = (
                    f"{name}: the time {time} cannot move by up to {reach} units, since times "
                    f"are whole numbers between {NEVER_UNITS} and {FOREVER_UNITS}; filter such "
                    "rows out before this step, or use smaller durations"
                )
                raise InputError(message)


def time_of(units: int) -> Time:
    """A frontier of a state as a time of the model."""
    if units == FOREVER_UNITS:
        return FOREVER
    return NEVER if units == NEVER_UNITS else units


def units_of(time: Time) -> int:
    """A time of the model as a frontier of a state.

    A stable beyond all times stays the last of them: no event can be there (`require_room`).
    """
    if time == FOREVER:
        return int(FOREVER_UNITS)
    if time == NEVER:
        return int(NEVER_UNITS)
    return max(int(NEVER_UNITS) + 1, min(int(time), int(FOREVER_UNITS) - 1))
