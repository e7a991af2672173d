"""Operators that wait, as an `Engine` runs them: align in front of a query's steps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.element import Element
from anabranch.operators.contract import (
    ControlEntry,
    Gap,
    Operator,
    Outcome,
    Port,
    Reached,
    Released,
)
from anabranch.operators.hold import HoldOperator, Release
from anabranch.operators.reference.hold import Hold

Options = Mapping[str, Any]

_OPTIONS: Final = ("wait", "wait_wall", "release", "beside")


@dataclass
class HoldReference:
    """The reference of align."""

    operator: Hold
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """Changes that are held."""
        return len(self.operator.arcs)

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The query has come further; inputs do not come and go."""
        return self.operator.reached(entry) if isinstance(entry, Reached) else ((), ())

    def check(self) -> None:
        """Assert its invariants."""
        self.operator.check()

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input."""
        return self.operator.push(name, element)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: the inputs are trusted."""
        del found
        return ()


def hold_of(schema: ElementSchema, options: Options) -> Operator:
    """Align; `beside` is the number of inputs that it is released together with."""
    given = _given(options)
    ports = (Port(schema),) * given.pop("beside", 0)
    return HoldOperator(schema, beside=ports, **given)


def hold_reference(options: Options) -> HoldReference:
    """What it means."""
    return HoldReference(Hold(**_given(options)))


def _given(options: Options) -> dict[str, Any]:
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        message = f"engine: hold has no option {unknown[0]!r}; it has {', '.join(_OPTIONS)}"
        raise UsageError(message)
    given = dict(options)
    if "release" in given:
        given["release"] = Release(given["release"])
    return given
