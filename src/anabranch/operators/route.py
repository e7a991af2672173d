"""Which lane an element goes to: a function of the element alone, fixed for ever.

An operator states what decides (`contract.Route`): all elements that it must compare reach one
lane.  Lane numbers are written into checkpoints, so this function may never change; a test
holds it to known values.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from anabranch.batch.batch import STABLE, Batch, Ints
from anabranch.batch.hashing import hash_rows
from anabranch.errors import UsageError
from anabranch.operators.contract import Operator, Route

EVERY_LANE: Final = -1
"""Stables go to every lane."""


@dataclass(frozen=True)
class Routing:
    """What decides the lane of an element; it travels to the packers of a run."""

    by: Route = Route.IDENTITY
    columns: tuple[str, ...] = ()

    @classmethod
    def of(cls, operator: Operator) -> "Routing":
        """How an operator wants its elements routed."""
        return cls(operator.route, tuple(operator.route_columns))

    def hashed(self, batch: Batch) -> Batch:
        """The batch with the hashes of its payloads, if the lane is decided by them.

        An operator that is routed by them compares payloads, so it needs the same hashes.
        """
        if batch.hashes is not None or self.by not in _BY_HASH:
            return batch
        return replace(batch, hashes=hash_rows(batch.payload, len(batch)))

    def lanes_of(self, batch: Batch, lanes: int) -> Ints:
        """The lane of each element, from 0; EVERY_LANE for those that reach every lane."""
        return route(batch, lanes, self.by, self.columns)


BY_IDENTITY: Final = Routing()
_BY_HASH: Final = (Route.IDENTITY, Route.PAYLOAD)


def route(
    batch: Batch, lanes: int, by: Route = Route.IDENTITY, columns: Sequence[str] = ()
) -> Ints:
    """The lane of each element, from 0; EVERY_LANE for a stable.

    `columns` are the payload columns that decide, if `by` is KEY.
    """
    if lanes < 1:
        message = f"route: {lanes} lanes; there must be at least one"
        raise UsageError(message)
    if by is Route.ALL:
        return np.full(len(batch), EVERY_LANE, np.int64)
    lane = _lane(_word(batch, by, columns), lanes)
    lane[batch.kind == STABLE] = EVERY_LANE
    return lane


def lanes_of_names(start: Ints, low: Ints, lanes: int, by: Route) -> Ints:
    """The lane of each event by START or IDENTITY; `low` is the first word of its hash."""
    if by not in (Route.START, Route.IDENTITY):
        message = f"route: an event's start and hash do not give its lane by {by.value}"
        raise UsageError(message)
    word = _mix(_unsigned(start))
    return _lane(word if by is Route.START else _mix(_unsigned(low) ^ word), lanes)


def _lane(words: NDArray[np.uint64], lanes: int) -> Ints:
    return (words % np.uint64(lanes)).astype(np.int64)


def _unsigned(numbers: Ints) -> NDArray[np.uint64]:
    return np.ascontiguousarray(numbers).view(np.uint64)


def _word(batch: Batch, by: Route, columns: Sequence[str]) -> NDArray[np.uint64]:
    """The well-mixed word of each element whose remainder is its lane."""
    starts = batch.start.view(np.uint64)
    if by is Route.START:
        return _mix(starts)
    if by is Route.KEY:
        return _mix(hash_rows(batch.payload.select(list(columns)), len(batch))[:, 0])
    hashes = hash_rows(batch.payload, len(batch)) if batch.hashes is None else batch.hashes
    return _mix(hashes[:, 0] ^ _mix(starts)) if by is Route.IDENTITY else _mix(hashes[:, 0])


def _mix(bits: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: every input bit reaches every output bit."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@runtime_checkable
class HoldsStable(Protocol):
    """An operator whose stable may depend on the data of a lane, so that lanes differ.

    The stable of several lanes is their least one: a stage after them finds it.
    """

    @property
    def holds_stable(self) -> bool:
        """Whether it does, with its settings."""


def holds_stable(operator: Operator) -> bool:
    """Whether lanes of an operator may have different frontiers."""
    return isinstance(operator, HoldsStable) and operator.holds_stable
