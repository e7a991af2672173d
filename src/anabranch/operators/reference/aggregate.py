"""The grouped snapshot aggregate, one element at a time, over a plain history.

At every prefix the table has, per group, one event between neighbouring end points of the
group's input events, with the values of the functions over what is alive there; nothing where
nothing is alive.  The output's history is the part of it that `emit` shows
(`model.emission`), cut on a grid if `cut_every` is given.  Everything is computed again for the
group of every element, from all events: slow, and obvious.

Values are computed with fractions and rounded once, so they do not depend on an order.

`operators.aggregate` does the same over batches and is compared with this.
`operators.reference.snapshots` has the paper's algorithms.

Papers: CEDR (theory) 3.1; CEDR (operators) 3.4 with errata C1 to C9.

>>> from anabranch.model.element import Insert
>>> counts = AggregateByElement(("x",), (), (Aggregate("count", None, "n"),))
>>> counts.push(Insert(7, 1, 5))
(Insert(payload=1, start=1, end=5),)
>>> counts.push(Insert(8, 3, 9))  # doctest: +NORMALIZE_WHITESPACE
(Adjust(payload=1, start=1, old_end=5, end=3),
 Insert(payload=2, start=3, end=5), Insert(payload=1, start=5, end=9))
"""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, TypeAlias

import pyarrow as pa

from anabranch.errors import RunError
from anabranch.model.element import Adjust, Element, Event, Insert, Stable
from anabranch.model.emission import Emit, cut_on_grid, shown, stable_of
from anabranch.model.history import History
from anabranch.model.time import FOREVER, NEVER, Time
from anabranch.operators.aggregate.functions import Aggregate, is_decimal, result_type
from anabranch.operators.reference.normalise import difference
from anabranch.operators.trusting import lost_event

_WIDE: Final = Context(prec=120, rounding=ROUND_HALF_UP)
_GREATEST: Final = 2**63
_NAME: Final = "aggregate"

Payload: TypeAlias = tuple[Hashable, ...]


class AggregateByElement:
    """The state of the reference: all events of the input.

    `columns` are the payload columns; with one column a payload is its value.  `payload` has
    their types, where a function depends on them.  `final_at_start` and `by_window` as for the
    operator.  `seen` has the greatest start of each group, `until` the last finite frontier.
    """

    def __init__(
        self,
        columns: Sequence[str],
        keys: Sequence[str],
        functions: Sequence[Aggregate],
        payload: pa.Schema | None = None,
        *,
        emit: Emit = Emit.AT_ONCE,
        cut_every: int | None = None,
        by_window: bool = False,
        final_at_start: bool = False,
    ) -> None:
        self.columns, self.keys, self.functions = tuple(columns), tuple(keys), tuple(functions)
        self.payload = payload
        self.emit, self.cut_every = emit, cut_every
        self.by_window, self.final_at_start = by_window, final_at_start
        self.frontier: Time = NEVER
        self.until: Time = NEVER
        self.stable: Time = NEVER
        self.events: dict[Payload, Counter[Event]] = {}
        self.seen: dict[Payload, Time] = {}

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        if isinstance(element, Stable):
            return self._pass(element.time) if element.time > self.frontier else ()
        key = tuple(self._value(element.payload, name) for name in self.keys)
        before = self.output(key)
        own = self.events.setdefault(key, Counter())
        if isinstance(element, Adjust):
            if own[element.old_event] < 1:
                raise lost_event(_NAME, f"{element}")
            own[element.old_event] -= 1
        if not element.event.is_empty:
            own[element.event] += 1
            self.seen[key] = max(self.seen.get(key, NEVER), element.start)
        return _net(before, self.output(key))

    def _pass(self, time: Time) -> tuple[Element, ...]:
        """Take a stable: what time has passed by it, and how far the output is final."""
        is_plain = self.emit is Emit.AT_ONCE and self.cut_every is None
        groups = [] if is_plain else list(self.events)
        before = History.from_events(e for key in groups for e in self.output(key))
        self.frontier = time
        self.until = self.until if time == FOREVER else time
        after = History.from_events(e for key in groups for e in self.output(key))
        held = time
        if self.emit is Emit.PASSED:
            held = min((self._stable(key) for key in self.events), default=time)
        found = _net(before, after)
        if held > self.stable:
            self.stable = held
            return (*found, Stable(held))
        return found

    def output(self, key: Payload) -> History:
        """The output's events of a group."""
        seen = self.seen.get(key, NEVER)
        passed = max(seen, self.frontier)
        if self.by_window:
            # All events of the group start together, so it is complete behind its start.
            passed = FOREVER if seen < self.frontier else seen
        return shown(self.table(key), self.emit, passed=passed)

    def table(self, key: Payload) -> History:
        """The results of a group, whether they are emitted or not."""
        own = self.events.get(key, Counter())
        table = History.from_events(
            Event(self._result(key, alive), start, end)
            for start, end in pairwise(self._points(key))
            if (alive := [e.payload for e in own.elements() if e.start <= start < e.end])
        )
        if self.cut_every is None:
            return table
        until = max(self.seen.get(key, NEVER), self.until)
        return cut_on_grid(table, self.cut_every, until=until)

    def _stable(self, key: Payload) -> Time:
        """How far the output of a group is final."""
        if self.by_window:
            return self.frontier
        fixed = self._fixed(key)
        table = History.from_events(
            e for e in self.table(key) if e.end > self.frontier or e.end not in fixed
        )
        return stable_of(table, self.emit, frontier=self.frontier, every=self.cut_every)

    def _fixed(self, key: Payload) -> set[Time]:
        """Ends that cannot move once the frontier has reached them."""
        return {e.end for e in self.events[key].elements()} if self.final_at_start else set()

    @property
    def live(self) -> int:
        """The end points that are still needed; of those that are passed, a group's last."""
        return sum(self._live(key) for key in self.events)

    def _live(self, key: Payload) -> int:
        if self.frontier == FOREVER:
            return 0
        points, own = self._points(key), self.events[key]
        cut = self.cut_every is not None and self.frontier % self.cut_every == 0
        cut = cut or self.frontier in self._fixed(key)
        needed = [
            t
            for t, after in pairwise([*points, FOREVER])
            if after >= self.frontier and not (cut and after == self.frontier)
        ]
        if self.by_window and self.emit is not Emit.AT_ONCE:
            return sum(t >= self.frontier for t in points)
        if needed and needed[0] < self.frontier:
            is_alive = any(n and e.start <= needed[0] < e.end for e, n in own.items())
            return len(needed) - (0 if is_alive else 1)
        return len(needed)

    def _points(self, key: Payload) -> list[Time]:
        own = self.events.get(key, Counter())
        return sorted({time for event in own.elements() for time in (event.start, event.end)})

    def _value(self, payload: Hashable, name: str) -> Any:
        row = payload if len(self.columns) > 1 else (payload,)
        assert isinstance(row, tuple), f"{payload!r} is no row of {self.columns}"
        return row[self.columns.index(name)]

    def _result(self, key: Payload, alive: Sequence[Hashable]) -> Hashable:
        found = [self._function(one, alive) for one in self.functions]
        row = (*key, *found)
        return row if len(row) > 1 else row[0]

    def _function(self, function: Aggregate, alive: Sequence[Hashable]) -> Hashable:
        if function.column is None:
            return len(alive)
        values = [self._value(payload, function.column) for payload in alive]
        values = [value for value in values if value is not None]
        if function.kind in ("count", "count_distinct"):
            return len(values if function.kind == "count" else set(values))
        if function.kind == "collect":
            return tuple(sorted(values, key=_order))
        if function.kind == "user" and function.user is not None:
            state = function.user.zero()
            for value in sorted(values, key=_order):
                state = function.user.add(state, value)
            result: Hashable = function.user.result(state)
            return result
        if not values:
            return None
        found = _VALUES[function.kind](function, values, self._type(function))
        # Every NaN is one object, as in payloads of the model.
        return math.nan if found != found else found  # noqa: PLR0124

    def _type(self, function: Aggregate) -> pa.DataType | None:
        return None if self.payload is None else result_type(function, self.payload)


def _net(before: History, after: History) -> tuple[Element, ...]:
    """Adjusts by sync time, then inserts by start."""
    found = list(difference(before, after))
    adjusts = [one for one in found if isinstance(one, Adjust)]
    inserts = [one for one in found if isinstance(one, Insert)]
    adjusts.sort(key=lambda one: min(one.old_end, one.end))
    return (*adjusts, *sorted(inserts, key=lambda one: one.start))


def _order(value: Any) -> tuple[bool, Any]:
    """NaN is greater than every number."""
    return (True, 0) if value != value else (False, value)  # noqa: PLR0124


def _is_finite(values: Iterable[Any]) -> bool:
    return all(not isinstance(value, float) or math.isfinite(value) for value in values)


def nearest(number: Fraction) -> float:
    """The double next to a fraction; infinite if it is beyond all of them."""
    try:
        return number.numerator / number.denominator
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _float_sum(values: Sequence[Any]) -> float:
    if _is_finite(values):
        return nearest(sum(map(Fraction, values), Fraction(0)))
    return float(sum(value for value in values if not math.isfinite(value)))


def _sum(_: Aggregate, values: Sequence[Any], kind: pa.DataType | None) -> Hashable:
    if isinstance(values[0], float):
        return _float_sum(values)
    if isinstance(values[0], Decimal):
        return _fits(_total(values), kind)
    total: int = sum(values)
    if not -_GREATEST <= total < _GREATEST:
        message = f"aggregate: a sum is {total}, beyond the range of bigint"
        raise RunError(message)
    return total


def _avg(_: Aggregate, values: Sequence[Any], kind: pa.DataType | None) -> Hashable:
    if isinstance(values[0], Decimal):
        scale = 6 if kind is None else kind.scale
        mean = Fraction(_total(values)) / len(values) * 10**scale
        whole = math.floor(abs(mean) + Fraction(1, 2))
        return _fits(Decimal(whole if mean > 0 else -whole).scaleb(-scale, _WIDE), kind)
    return _float_sum(values) / len(values)


def _total(values: Sequence[Decimal]) -> Decimal:
    total = Decimal(0)
    for value in values:
        total = _WIDE.add(total, value)
    return total


def _fits(value: Decimal, kind: pa.DataType | None) -> Decimal:
    if kind is not None and is_decimal(kind):
        limit = Decimal(10).scaleb(kind.precision - kind.scale - 1, _WIDE)
        if abs(value) >= limit:
            message = f"aggregate: a result is {value}, beyond the range of {kind}"
            raise RunError(message)
    return value


def _stddev(_: Aggregate, values: Sequence[Any], kind: pa.DataType | None) -> float | None:
    del kind
    count, doubles = len(values), [float(value) for value in values]
    if count < 2:
        return None
    if not _is_finite(doubles):
        return math.nan
    exact = [Fraction(value) for value in doubles]
    spread = count * sum(x * x for x in exact) - sum(exact) ** 2
    return math.sqrt(nearest(Fraction(spread)) / (float(count) * float(count - 1)))


def _quantile(function: Aggregate, values: Sequence[Any], kind: pa.DataType | None) -> float:
    del kind
    ordered = sorted((float(value) for value in values), key=_order)
    place = (function.p or 0.0) * (len(ordered) - 1)
    low = math.floor(place)
    one, other, part = ordered[low], ordered[min(low + 1, len(ordered) - 1)], place - low
    return one if part == 0 or one == other else one * (1 - part) + other * part


_VALUES: Final[
    dict[str, Callable[[Aggregate, Sequence[Any], pa.DataType | None], Hashable]]
] = {
    "sum": _sum,
    "avg": _avg,
    "stddev": _stddev,
    "quantile": _quantile,
    "min": lambda _, values, __: min(values, key=_order),
    "max": lambda _, values, __: max(values, key=_order),
}
