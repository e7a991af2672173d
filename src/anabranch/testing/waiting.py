"""Operators that wait and forget, as an `Engine` runs them: align and finalize."""

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
from anabranch.operators.reference.finalize import Finalize
from anabranch.operators.reference.hold import Hold
from anabranch.operators.reference.promised import Promised
from anabranch.operators.waiting.finalize import FinalizeOperator
from anabranch.operators.waiting.hold import HoldOperator
from anabranch.operators.waiting.level import Release
from anabranch.operators.waiting.promised import PromisedOperator

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


@dataclass
class FinalizeReference:
    """The reference of finalize."""

    operator: Finalize
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """Ends that the input has more often, or less often, than the output."""
        return len(self.operator.lost)

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The query has come further; inputs do not come and go."""
        return self.operator.reached(entry) if isinstance(entry, Reached) else ((), ())

    def check(self) -> None:
        """Assert its invariants."""
        self.operator.check()

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of the input."""
        del name
        return self.operator.push(element)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: the input is trusted."""
        del found
        return ()


def finalize_of(schema: ElementSchema, options: Options) -> Operator:
    """Finalize; `remember` must be given."""
    return FinalizeOperator(schema, _remember(options))


def finalize_reference(options: Options) -> FinalizeReference:
    """What it means."""
    return FinalizeReference(Finalize(remember=_remember(options)))


@dataclass
class PromisedReference:
    """The reference of the entry of a stream with promises."""

    operator: Promised
    conflicts: int = 0
    gaps: Sequence[Gap] = ()

    @property
    def live(self) -> int:
        """Events that are not final, adjusts that wait, and ends that were late."""
        one = self.operator
        return one.events.total() + len(one.waiting) + len(one.lost)

    def control(self, entry: ControlEntry) -> tuple[Sequence[Element], Sequence[Released]]:
        """The query has come further; who takes part does not matter."""
        return self.operator.reached(entry) if isinstance(entry, Reached) else ((), ())

    def check(self) -> None:
        """Assert its invariants."""
        self.operator.check()

    def push(self, name: str, element: Element) -> Outcome:
        """Take the next element of an input, or a promise."""
        return self.operator.push(name, element)

    def violators(self, found: Sequence[tuple[str, Element, Outcome]]) -> Sequence[str]:
        """None: it has no policy."""
        del found
        return ()


def promised_of(schema: ElementSchema, options: Options) -> Operator:
    """The entry of a stream with promises, of `origin` and perhaps `remember`."""
    return PromisedOperator(schema, **_promised(options))


def promised_reference(options: Options) -> PromisedReference:
    """What it means."""
    return PromisedReference(Promised(**_promised(options)))


def _promised(options: Options) -> dict[str, Any]:
    unknown = sorted(options.keys() - {"origin", "remember"})
    if unknown or "origin" not in options:
        message = f"engine: promised has origin and remember; got {sorted(options)}"
        raise UsageError(message)
    return {name: int(value) for name, value in options.items()}


def _remember(options: Options) -> int:
    if list(options) != ["remember"]:
        message = f"engine: finalize has one option, remember; got {sorted(options)}"
        raise UsageError(message)
    return int(options["remember"])


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
