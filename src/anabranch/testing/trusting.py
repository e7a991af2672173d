"""The references of operators inside a query, as an `Engine` runs them.

An engine has one payload schema.  The left side of a join has it; the right side has the first
column, on which they are joined, and the others by the names `right_NAME`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.element import Element
from anabranch.operators.contract import ControlEntry, Gap, Operator, Outcome, Released
from anabranch.operators.join.operator import HOWS, JoinOperator
from anabranch.operators.reference.join import Join
from anabranch.operators.reference.levels import Levels
from anabranch.operators.reference.union import UnionOf
from anabranch.operators.union_of import UnionOfOperator

Options = Mapping[str, Any]

SIDES: Final = ("left", "right")


@dataclass
class TrustingReference:
    """The reference of an operator whose inputs are always there."""

    operator: Join | Levels | UnionOf
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """Events that may still change."""
        return self.operator.live

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The inputs do not come and go."""
        del entry
        return (), ()

    def check(self) -> None:
        """These references state no invariant."""

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""
        return self.operator.push(name, element)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: the inputs are trusted."""
        del found
        return ()


def join_of(schema: ElementSchema, options: Options) -> Operator:
    """A join of two such inputs on the first column."""
    key, *others = schema.payload
    renamed = [field.with_name(f"right_{field.name}") for field in others]
    right = ElementSchema(schema.time, pa.schema([key, *renamed]))
    return JoinOperator(schema, right, ((key.name, key.name),), _how(options))


def join_reference(options: Options) -> TrustingReference:
    """What it means."""
    how = _how(options)
    key_of = dict.fromkeys(SIDES, key_of_payload)
    return TrustingReference(Join(key_of, left_alone if how in HOWS[2:] else combined, how))


def union_of(schema: ElementSchema) -> Operator:
    """The union of two such inputs inside a query."""
    return UnionOfOperator(schema, SIDES)


def union_of_reference() -> TrustingReference:
    """What it means."""
    return TrustingReference(UnionOf(SIDES))


def distinct_reference() -> TrustingReference:
    """What distinct means."""
    return TrustingReference(Levels(("input",), one_of))


def difference_reference() -> TrustingReference:
    """What difference means."""
    return TrustingReference(Levels(SIDES, more_of))


def key_of_payload(payload: Any) -> Any:
    """The first column; the payload of one column is its value."""
    return payload[0] if isinstance(payload, tuple) else payload


def left_alone(left: Any, right: Any) -> Any:
    """The columns of the left side."""
    del right
    return left


def combined(left: Any, right: Any) -> Any:
    """The columns of the left side and those of the right side that are no key."""
    if not isinstance(left, tuple):
        return left
    # Both sides have as many columns.
    return (*left, *(right[1:] if right is not None else (None,) * (len(left) - 1)))


def one_of(alive: Mapping[str, int]) -> int:
    """The level of distinct."""
    return min(1, alive["input"])


def more_of(alive: Mapping[str, int]) -> int:
    """The level of difference."""
    return alive["left"] - alive["right"]


def _how(options: Options) -> Any:
    unknown = sorted(options.keys() - {"how"})
    if unknown:
        message = f"engine: join has no option {unknown[0]!r}; it has how"
        raise UsageError(message)
    return options.get("how", "inner")
