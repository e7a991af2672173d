"""The steps of a query, as methods of everything that is a stream of events.

`Stream` (`ab.events`, `ab.elements`), `Merged` (`ab.merge`, `ab.union`) and `Query` have them.
Each method returns a `Query` with one step more, and validates columns, keys, types and
durations at the call; nothing runs.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal

from anabranch.batch.schema import ElementSchema
from anabranch.batch.times import show_span, to_units
from anabranch.errors import SchemaError, UsageError
from anabranch.operators.abilities import KnowsEnds
from anabranch.plan.node import Native, Node, Step, sources
from anabranch.spark.query.levels import Waits
from anabranch.spark.query.native import sample_of, select_of, shown, where_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from anabranch.spark.query.grouped import Grouped
    from anabranch.spark.query.query import Query

_JAVA: Final = re.compile(r"\(columnnodeexpression\(.*\)\)")
"""The arguments of a user function, as Spark prints them: Java objects with their addresses."""

WINDOW = "window"
"""The column of grid windows."""


class Fluent(Waits, ABC):
    """A stream of events that steps can be added to."""

    @property
    @abstractmethod
    def _node(self) -> Node:
        """The plan so far; the same node for the same stream, so that it is read once."""

    @property
    def _columns(self) -> list[str]:
        return list(self._node.schema.payload.names)

    def where(self, condition: "Column | str", *, id: str | None = None) -> "Query":  # noqa: A002
        """Keep the events for which a condition on payload and `start` is true.

        Args:
            condition: A Column or a text of SQL; Spark evaluates it.
            id: The name of the step.
        """
        change = where_of(condition, self._sample(), "where")
        words, known = f"where {_shown(change.condition)}", self._node.in_windows
        schema = self._node.schema
        return self._native(
            "where", change, schema, words, id, one_to_one=True, in_windows=known
        )

    def select(
        self,
        *columns: "Column | str",
        one_to_one: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Replace the payload by these columns; lifetimes stay.

        Args:
            *columns: Columns or texts of SQL; Spark evaluates them.
            one_to_one: Declares that two payloads never become equal, so that identities stay
                unique.
            id: The name of the step.
        """
        change, payload = select_of(columns, self._sample(), "select")
        made = change.columns
        schema = ElementSchema(self._node.schema.time, payload)
        shown = ", ".join(_shown(one) for one in made)
        words = f"select {shown}{' one to one' if one_to_one else ''}"
        stays = self._node.in_windows and any(_is_column(one, WINDOW) for one in made)
        return self._native(
            "select", change, schema, words, id, one_to_one=one_to_one, in_windows=stays
        )

    def window(
        self,
        size: str | int,
        slide: str | int | None = None,
        *,
        offset: str | int = 0,
        gaps_between: bool = False,
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Replace lifetimes by windows.

        With `size` alone an event lives for `[start, start + size)`.  With `slide` there is one
        event for each window `[k * slide + offset, + size)` that contains its start; the window
        is its lifetime and a column `window`, which a later `group_by` adds to its keys.

        Args:
            size: How long a window is: a duration, or a number for bigint times.
            slide: The distance between the starts of two windows; `size` for tumbling windows.
            offset: Where the grid of windows begins.
            gaps_between: Permits a slide above the size: rows between two windows are dropped.
            id: The name of the step.
        """
        from anabranch.model.lifetimes import sliding
        from anabranch.operators.lifetimes import AlterLifetimeOperator

        length = self._units(size, "window: size")
        if slide is None:
            _require_grid("window", "slide", offset)
            rule = AlterLifetimeOperator(self._plain, sliding(length))
            return self._step("window", rule, f"window of {self._span(length)}", id=id)
        step = self._units(slide, "window: slide")
        if step > length and not gaps_between:
            message = (
                f"window: the slide {self._span(step)} is greater than the size "
                f"{self._span(length)}, so rows between two windows would be dropped; permit "
                "it with gaps_between=True"
            )
            raise UsageError(message)
        return self._grid(length, step, offset, id)

    def _grid(self, size: int, slide: int, offset: str | int, id_: str | None) -> "Query":
        from anabranch.model.lifetimes import GridWindows
        from anabranch.operators.grid_windows import GridWindowOperator

        if WINDOW in self._columns:
            message = (
                "window: the input has a column 'window' already, and windows need that name; "
                "rename it with select"
            )
            raise SchemaError(message)
        start = 0 if offset == 0 else self._units(offset, "window: offset", least=None)
        windows = GridWindows(size, slide, offset=start, gaps_between=slide > size)
        operator = GridWindowOperator(self._plain, windows)
        words = f"windows of {self._span(size)} every {self._span(slide)}"
        words += f", offset {self._span(start)}" if start else ""
        return self._step("window", operator, words, id=id_, in_windows=True)

    def session(
        self,
        gap: str | int,
        by: str | Sequence[str] = (),
        *,
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Replace lifetimes by sessions: of one key, rows whose starts are at most `gap` apart.

        A session lives from its first start until `gap` after its last one.  Each row is an
        event with its session as lifetime and as a column `window`, which a later `group_by`
        adds to its keys, as Spark's `session_window`.

        Args:
            gap: A duration, or a number for bigint times.
            by: The columns of the key: each key has sessions of its own.
            id: The name of the step.
        """
        from anabranch.operators.by_key.session import SessionOperator

        length = self._units(gap, "session: gap")
        keys = (by,) if isinstance(by, str) else tuple(by)
        operator = SessionOperator(self._plain, length, keys)
        words = f"sessions by {', '.join(keys)} with a gap of {self._span(length)}"
        return self._step("session", operator, words, id=id, in_windows=True)

    def hop(self, size: str | int, slide: str | int, *, id: str | None = None) -> "Query":  # noqa: A002
        """Replace lifetimes by a hopping window.

        There is one event per row; starts and ends are multiples of `slide`: the event starts
        at the first one at or after its start, and ends at the first one at which it is `size`
        old or older.  A row is dropped if that is the same one.

        Args:
            size: How old an event becomes: a duration, or a number for bigint times.
            slide: The distance between two hops.
            id: The name of the step.
        """
        from anabranch.model.lifetimes import Hop
        from anabranch.operators.lifetimes import AlterLifetimeOperator

        length, step = self._units(size, "hop: size"), self._units(slide, "hop: slide")
        operator = AlterLifetimeOperator(self._plain, Hop(length, step))
        words = f"hop of {self._span(length)} every {self._span(step)}"
        return self._step("hop", operator, words, id=id)

    def alter_lifetime(
        self,
        *,
        shift: str | int | None = None,
        round_to: str | int | None = None,
        offset: str | int = 0,
        lifetime: str | int | None = None,
        longer_by: str | int | None = None,
        at_most: str | int | None = None,
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Give events other lifetimes; what is not given stays.

        Args:
            shift: Moves starts (and ends) by a duration; a negative one moves them earlier.
            round_to: Rounds starts down to a multiple of this duration.
            offset: Where the grid of `round_to` begins.
            lifetime: Sets every lifetime to this duration.
            longer_by: Extends lifetimes by this duration.
            at_most: Shortens longer lifetimes to this duration.
            id: The name of the step.
        """
        from anabranch.model.lifetimes import lifetime_rule
        from anabranch.operators.lifetimes import AlterLifetimeOperator

        starts = {"shift": shift, "round_to": round_to}
        durations = {"lifetime": lifetime, "longer_by": longer_by, "at_most": at_most}
        given: dict[str, int] = {}
        for some in (starts, durations):
            named = {name: one for name, one in some.items() if one is not None}
            if len(named) > 1:
                message = f"alter_lifetime: give one of {', '.join(some)}, got {list(named)}"
                raise UsageError(message)
            least = None if "shift" in named else 0 if "longer_by" in named else 1
            given |= {
                name: self._units(one, f"alter_lifetime: {name}", least=least)
                for name, one in named.items()
            }
        if round_to is None:
            _require_grid("alter_lifetime", "round_to", offset)
        begin = 0 if offset == 0 else self._units(offset, "alter_lifetime: offset", least=None)
        rule = lifetime_rule(given, offset=begin)
        given |= {"offset": begin} if begin else {}
        known = self._node.final_at_start
        operator = AlterLifetimeOperator(self._plain, rule, final_at_start=known)
        shown = ", ".join(f"{name} {self._span(one)}" for name, one in given.items())
        return self._step("alter_lifetime", operator, shown or "lifetimes as they are", id=id)

    def distinct(self, *, id: str | None = None) -> "Query":  # noqa: A002
        """Each payload once at any time, in runs as long as possible."""
        from anabranch.operators.runs.distinct import DistinctOperator

        known = self._node.in_windows
        operator = DistinctOperator(self._plain)
        return self._step("distinct", operator, "distinct", id=id, in_windows=known)

    def normalise(self, *, id: str | None = None) -> "Query":  # noqa: A002
        """Normal form: two streams with equal snapshots get equal histories.

        So their copies can be merged.
        """
        from anabranch.operators.runs.normalise import NormaliseOperator

        known = self._node.in_windows
        operator = NormaliseOperator(self._plain)
        return self._step("normalise", operator, "normalise", id=id, in_windows=known)

    def inserts(self, *, id: str | None = None) -> "Query":  # noqa: A002
        """Extend every event to have no end."""
        from anabranch.operators.inserts import InsertsOperator

        return self._step("inserts", InsertsOperator(self._plain), "inserts", id=id)

    def deletes(self, *, id: str | None = None) -> "Query":  # noqa: A002
        """One event without an end, starting at each end of an event."""
        from anabranch.operators.inserts import DeletesOperator

        return self._step("deletes", DeletesOperator(self._plain), "deletes", id=id)

    def union(self, *others: "Fluent", id: str | None = None) -> "Query":  # noqa: A002
        """All events of both: two equal events stay two.  Columns are matched by name."""
        from anabranch.operators.union_of import UnionOfOperator

        given = [self, *(_fluent(one, "union") for one in others)]
        every = [one._in_order(self._plain, "union") for one in given]
        names = tuple(f"input_{number}" for number in range(len(every)))
        operator = UnionOfOperator(self._plain, names)
        reads = tuple(zip(names, (one._node for one in every), strict=True))
        known = all(one._node.final_at_start for one in every)
        stays = all(one._node.in_windows for one in every)
        return _made(
            "union", operator, reads, "union", id, final_at_start=known, in_windows=stays
        )

    def difference(self, other: "Fluent", *, id: str | None = None) -> "Query":  # noqa: A002
        """The events of this stream without those of another, as `exceptAll` does."""
        from anabranch.operators.runs.difference import DifferenceOperator

        right = _fluent(other, "difference")._in_order(self._plain, "difference")
        operator = DifferenceOperator(self._plain)
        reads = (("left", self._node), ("right", right._node))
        stays = self._node.in_windows and right._node.in_windows
        return _made("difference", operator, reads, "difference", id, in_windows=stays)

    def join(
        self,
        other: "Fluent",
        on: "str | Sequence[str] | Mapping[str, str]",
        how: Literal["inner", "left", "semi", "anti"] = "inner",
        *,
        where: "Column | str | None" = None,
        id: str | None = None,  # noqa: A002
    ) -> "Query":
        """Pairs of events with equal keys, while both live.

        Args:
            other: The right side.
            on: Key columns: names that both sides have, or `{left: right}`.  Null matches
                nothing.
            how: "inner": pairs; "left": also left events while they have no partner; "semi" and
                "anti": left events while they have a partner, or none.
            where: A further condition over the columns of both sides, for inner joins.
            id: The name of the step.
        """
        from anabranch.operators.join.operator import JoinOperator

        right = _fluent(other, "join")
        names = [on] if isinstance(on, str) else on
        pairs = tuple(
            names.items() if isinstance(names, Mapping) else ((name, name) for name in names)
        )
        if where is not None and how != "inner":
            message = (
                f"join: where= is for inner joins, and this is a {how} join: Spark evaluates "
                "conditions after the join; filter the sides before it"
            )
            raise UsageError(message)
        self._require_windows(right, dict(pairs))
        known = self._node.final_at_start and right._node.final_at_start
        operator = JoinOperator(self._plain, right._plain, pairs, how, final_at_start=known)
        reads = (("left", self._node), ("right", right._node))
        words = f"{how} join on {', '.join(a if a == b else f'{a} = {b}' for a, b in pairs)}"
        known = operator.output_final_at_start
        stays = self._node.in_windows and right._node.in_windows and (WINDOW, WINDOW) in pairs
        made = _made("join", operator, reads, words, id, final_at_start=known, in_windows=stays)
        return made if where is None else made.where(where)

    def _require_windows(self, right: "Fluent", pairs: Mapping[str, str]) -> None:
        """Reject a join of windows that does not compare them."""
        if WINDOW in self._columns and WINDOW in right._columns and WINDOW not in pairs:
            message = (
                "join: both sides have a column 'window', so overlapping windows would pair; "
                "name it in on=, or rename one with select"
            )
            raise SchemaError(message)

    def group_by(self, *keys: str) -> "Grouped":
        """Group events by columns; after windows and sessions also by `window`."""
        from anabranch.spark.query.grouped import Grouped

        for key in keys:
            if key not in self._columns:
                message = f"group_by: there is no column '{key}'; the input has {self._columns}"
                raise SchemaError(message)
        more = (WINDOW,) if self._node.in_windows else ()
        return Grouped(_query(self._node), tuple(dict.fromkeys((*keys, *more))))

    @property
    def _plain(self) -> ElementSchema:
        return replace(self._node.schema, has_seq=False, has_replica=False)

    def _sample(self) -> "DataFrame":
        entry = sources(self._node)[0].entry
        return sample_of(entry.spark, self._node.schema, is_ntz=entry.copies.is_ntz)

    def _units(self, given: str | int, what: str, *, least: int | None = 1) -> int:
        text = str(given).strip()
        sign = -1 if text.startswith("-") else 1
        units = sign * to_units(text.removeprefix("-"), self._node.schema.time, option=what)
        if least is not None and units < least:
            bound = "greater than 0" if least else "0 or greater"
            message = f"{what} is {given!r}; it must be {bound}"
            raise UsageError(message)
        return units

    def _span(self, units: int) -> str:
        return show_span(units) if self._node.schema.time.value == "timestamp" else str(units)

    def _native(
        self,
        word: str,
        change: Any,
        schema: ElementSchema,
        words: str,
        given: str | None,
        *,
        one_to_one: bool,
        in_windows: bool,
    ) -> "Query":
        return _query(
            Native(
                given or word,
                self._node,
                change,
                schema,
                words,
                self._node.final_at_start,
                in_windows=in_windows,
                is_named=given is not None,
                one_to_one=one_to_one,
            )
        )

    def _step(
        self,
        word: str,
        operator: Any,
        words: str,
        *,
        id: str | None,  # noqa: A002
        in_windows: bool = False,
    ) -> "Query":
        known = isinstance(operator, KnowsEnds) and operator.output_final_at_start
        reads = (("input", self._node),)
        return _made(
            word, operator, reads, words, id, final_at_start=known, in_windows=in_windows
        )

    def _in_order(self, wanted: ElementSchema, where: str) -> "Fluent":
        """The same columns in the order that is wanted."""
        columns, mine = wanted.payload.names, self._node.schema
        if sorted(self._columns) != sorted(columns):
            message = (
                f"{where}: both sides must have the same columns; got {list(columns)} and "
                f"{self._columns}; select them"
            )
            raise SchemaError(message)
        types = [
            (one.name, one.type, mine.payload.field(one.name).type) for one in wanted.payload
        ]
        types.append(("start", wanted.time.value, mine.time.value))
        for name, one, other in types:
            if one != other:
                message = (
                    f"{where}: column '{name}' is {one} on one side and {other} on the other; "
                    "cast one of them"
                )
                raise SchemaError(message)
        if self._columns == columns:
            return self
        from pyspark.sql import functions as F  # noqa: N812

        return self.select(*(F.col(f"`{name}`") for name in columns), one_to_one=True)


def _made(
    word: str,
    operator: Any,
    reads: tuple[tuple[str, Node], ...],
    words: str,
    given: str | None,
    *,
    final_at_start: bool = False,
    in_windows: bool = False,
) -> "Query":
    """The query with one more step; the end of a window is known when it begins."""
    known, named = final_at_start or in_windows, given is not None
    return _query(Step(given or word, operator, reads, words, known, in_windows, named))


def _require_grid(where: str, grid: str, offset: str | int) -> None:
    """Reject an offset of no grid."""
    if offset != 0:
        message = f"{where}: offset={offset!r} moves a grid; give {grid}= too, or no offset"
        raise UsageError(message)


def _query(node: Node) -> "Query":
    from anabranch.spark.query.query import Query

    return Query(node)


def _fluent(given: Any, where: str) -> Fluent:
    """A stream of events; anything else is rejected."""
    if isinstance(given, Fluent):
        return given
    message = (
        f"{where}: got {type(given).__name__}, expected a query, a merge, or a stream of "
        "ab.events or ab.elements"
    )
    raise UsageError(message)


def _is_column(column: Any, name: str) -> bool:
    """Whether a Column is a column of the input as it is."""
    return _shown(column).strip("` ") == name


def _shown(column: Any) -> str:
    """A Column as its text, without the addresses of objects."""
    return _JAVA.sub("(...)", shown(column))
