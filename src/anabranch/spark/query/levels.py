"""How long a query waits and remembers, as methods of everything that is a stream of events.

`consistency` is of the whole query, once; `finalize`, and `align` of `aligned`, are steps that
are placed by hand.
"""

from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from anabranch.batch.schema import ElementSchema
from anabranch.batch.times import to_seconds
from anabranch.errors import UsageError
from anabranch.offered import Offered
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import FOREVER, NAMED, STABLE, Level, Release
from anabranch.plan.consistency import level_of, one_of
from anabranch.plan.node import Node

if TYPE_CHECKING:
    from anabranch.spark.query.query import Query

Name = Literal["strong", "ultra", "middle", "weak"]
_WHERE: Final = "consistency"
_SECOND: Final = 1_000_000


class Waits(Offered):
    """A stream of events for which a level of consistency can be asked."""

    def consistency(
        self,
        name: "Name | None" = None,
        *,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        remember: str | int | None = None,
    ) -> "Query":
        """The same query with a level: how long it waits for rows, and how long it remembers.

        A level is of the whole query: call it once, behind the last step.  `finalize`, then
        `align`, run in front of the first step with a state of each input.

        Args:
            name: "middle": answer at once, and correct for ever. "strong": wait for stables,
                results are in order. "ultra": wait until all is final, results are never
                corrected. "weak": answer at once, and forget all but the latest instant.
            wait: How far behind the greatest start a row may come before it is answered: a
                duration of application time, or "stable": until a stable passes it.
            wait_wall: The longest wait by the wall clock; alone, nothing else ends a wait.
            remember: How far behind the greatest start a row still counts; later ones are in
                `late()`.  A duration of application time, or "forever".
        """
        level = _level(self, name, wait, wait_wall, remember)
        known = level_of(self._node)
        one_of([level] if known is None else [known, level], self._node.schema.time)
        return _query(replace(self._node, level=level))

    def finalize(self, remember: str | int, *, id: str | None = None) -> "Query":  # noqa: A002
        """Make all final that is more than `remember` behind the greatest start.

        Rows that come later are in `late()`, with their distance.  `consistency(remember=)`
        does it for all inputs of a query.

        Args:
            remember: A duration of application time, or a number for bigint times.
            id: The name of the step.
        """
        units = _distance(self, remember, "finalize: remember")
        operator = FinalizeOperator(self._plain, units)
        return self._placed("finalize", operator, f"remember {self._span(units)}", id)

    def _placed(self, word: str, operator: Any, words: str, id_: str | None) -> "Query":
        """A step that changes neither payload nor lifetimes."""
        from anabranch.plan.node import Step

        node = self._node
        return _query(
            Step(
                id_ or word,
                operator,
                (("input", node),),
                words,
                final_at_start=node.final_at_start,
                in_windows=node.in_windows,
                is_named=id_ is not None,
            )
        )

    @property
    @abstractmethod
    def _node(self) -> Node:
        """The plan so far."""

    @property
    @abstractmethod
    def _plain(self) -> ElementSchema:
        """The columns of the output."""

    @abstractmethod
    def _units(self, given: str | int, what: str, *, least: int | None = 1) -> int:
        """A duration in units of the stream's times."""

    @abstractmethod
    def _span(self, units: int) -> str:
        """A duration as people read it."""


def aligned(
    of: Waits,
    *,
    wait: str | int | None = None,
    wait_wall: str | None = None,
    release: str = "ordered",
    id: str | None = None,  # noqa: A002
) -> "Query":
    """The step `align` on a stream."""
    try:
        how = Release(release)
    except ValueError:
        message = f"align: release={release!r} is unknown; give 'ordered' or 'final'"
        raise UsageError(message) from None
    units = None if wait is None else _distance(of, wait, "align: wait")
    wall = None if wait_wall is None else _wall(wait_wall, "align: wait_wall")
    operator = HoldOperator(of._plain, wait=units, wait_wall=wall, release=how)
    waits = ["until a stable passes them"] if how is Release.ORDERED else ["until all is final"]
    waits += [] if units is None else [f"or for {of._span(units)}"]
    waits += [] if wall is None else [f"or for {wait_wall} by the wall clock"]
    return of._placed("align", operator, f"hold events {' '.join(waits)}", id)


def level_given(
    last: Node,
    name: object,
    wait: str | int | None,
    wait_wall: str | None,
    remember: str | int | None,
) -> Level:
    """The level that is given for a query that ends with this node."""
    return _level(_query(last), name, wait, wait_wall, remember)


def _level(
    of: Waits,
    name: object,
    wait: str | int | None,
    wait_wall: str | None,
    remember: str | int | None,
) -> Level:
    """The level that was asked for; UsageError if it is none."""
    spans = {"wait": wait, "wait_wall": wait_wall, "remember": remember}
    given = [option for option, value in spans.items() if value is not None]
    if name is not None:
        if given:
            message = (
                f"{_WHERE}: got the name {name!r} and {given[0]}=; give a name, or wait=, "
                "wait_wall= and remember="
            )
            raise UsageError(message)
        if not isinstance(name, str) or name not in NAMED:
            message = (
                f"{_WHERE}: {name!r} is no level; it must be one of {', '.join(NAMED)}, or "
                "wait=, wait_wall= and remember="
            )
            raise UsageError(message)
        return NAMED[name]
    wall = None if wait_wall is None else _wall(wait_wall, f"{_WHERE}: wait_wall")
    held, kept = _wait(of, wait, has_wall=wall is not None), _remember(of, remember)
    if held is not None and kept is not None and held > kept:
        message = (
            f"{_WHERE}: wait={wait!r} is greater than remember={remember!r}: what is held back "
            "would be forgotten before it is answered; give a remember of at least wait, or a "
            "shorter wait"
        )
        raise UsageError(message)
    return Level(wait=held, wait_wall=wall, remember=kept)


def _wait(of: Waits, wait: str | int | None, *, has_wall: bool) -> int | None:
    if wait is None:
        return None if has_wall else 0
    return None if wait == STABLE else _distance(of, wait, f"{_WHERE}: wait")


def _remember(of: Waits, remember: str | int | None) -> int | None:
    if remember is None or remember == FOREVER:
        return None
    return _distance(of, remember, f"{_WHERE}: remember")


def _distance(of: Waits, given: str | int, what: str) -> int:
    """A duration of application time; 0 needs no unit."""
    return 0 if str(given).strip() == "0" else of._units(given, what, least=0)


def _wall(given: str, what: str) -> int:
    """A duration by the wall clock in microseconds."""
    return round(to_seconds(given, option=what) * _SECOND)


def _query(node: Node) -> "Query":
    from anabranch.spark.query.query import Query

    return Query(node)
