"""What `infer` found: settings, how sure, by which probes, and what nobody can tell apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import UsageError
from anabranch.model import Stable
from anabranch.windows.candidates import PARAMETERS, Space, settings
from anabranch.windows.engine import Engine
from anabranch.windows.probes import Probe, Shown

_BOUND = 0.95


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting: the values that are left."""

    name: str
    values: tuple[Any, ...]
    seen: Literal["settled", "narrowed", "unseen"]
    """One value is left; some are out; all that the space has are left."""
    probes: tuple[int, ...]
    """Numbers of the probes after which fewer values were left."""
    confidence: float
    """Of the runs of those probes, the share that gave the answer which was believed; 0 if
    the parameter was not seen."""

    def __str__(self) -> str:
        told = " or ".join("none" if value is None else str(value) for value in self.values)
        return f"{self.name}: {told} ({self.seen})"


@dataclass(frozen=True, slots=True)
class Asked:
    """One probe, its answer, and what it did to the engines that were left."""

    number: int
    probe: Probe
    purpose: Literal["split", "confirm", "recorded"]
    answer: tuple[Shown, ...] | None
    """The most frequent answer; None if the engine does not take the query."""
    runs: int
    agreeing: int
    """How many runs gave that answer."""
    before: int
    after: int
    """How many engines were left before and after."""
    told: tuple[str, ...]
    """The parameters of which it ruled out a value."""

    @property
    def decided(self) -> bool:
        """Whether more than half of the runs agree; otherwise it tells nothing."""
        return 2 * self.agreeing > self.runs

    @property
    def confirms(self) -> bool:
        """Whether it was drawn by chance, and answered."""
        return self.purpose == "confirm" and self.decided and self.answer is not None


@dataclass(frozen=True, slots=True)
class Inference:
    """What is known of a black-box engine."""

    engines: tuple[Engine, ...]
    """All settings of the space that give every answer: nothing tells them apart.  Empty:
    none fits."""
    parameters: tuple[Parameter, ...]
    like: tuple[str, ...]
    """Known engines, their own options set so, that are among them."""
    asked: tuple[Asked, ...]
    searched: int
    """So many inputs were generated at the end without one on which two of the engines
    differ."""
    refuted_by: Asked | None
    """If none fits: the probe whose answer ruled out the last ones."""
    complete: bool
    """Whether the search came to its end within `most` runs."""
    space: Space
    next_probe: Probe | None = None
    """With recordings alone: a run that would tell some of the engines apart."""

    @property
    def fits(self) -> bool:
        """Whether some setting gives every answer."""
        return bool(self.engines)

    @property
    def engine(self) -> Engine:
        """The first of those that fit, for `predict` and the others."""
        if not self.engines:
            message = "no setting fits this engine; see refuted_by for the probe that shows it"
            raise UsageError(message)
        return self.engines[0]

    @property
    def confirmed(self) -> int:
        """How many probes, drawn by chance and not chosen to split, were answered so."""
        return sum(one.confirms for one in self.asked)

    @property
    def differs_at_most(self) -> float:
        """On which share of such probes the engine may still differ, at 95 % confidence."""
        if not self.engines or not self.confirmed:
            return 1.0
        return float(1 - (1 - _BOUND) ** (1 / self.confirmed))

    def parameter(self, name: str) -> Parameter:
        """The parameter of that name, for example `report.window_close`."""
        for one in self.parameters:
            if one.name == name:
                return one
        names = ", ".join(one.name for one in self.parameters)
        message = f"no parameter is called {name!r}; there are {names}"
        raise UsageError(message)

    @property
    def ambiguous(self) -> tuple[str, ...]:
        """The parameters in which the engines that fit differ."""
        return tuple(one.name for one in self.parameters if len(one.values) > 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `alike` has each engine that fits, as far as they differ."""
        return {
            "fits": self.fits,
            "engines": len(self.engines),
            "like": list(self.like),
            "parameters": [
                {
                    "name": one.name,
                    "values": list(one.values),
                    "seen": one.seen,
                    "probes": list(one.probes),
                    "confidence": one.confidence,
                }
                for one in self.parameters
            ],
            "asked": [_asked_dict(one) for one in self.asked],
            "searched": self.searched,
            "confirmed": self.confirmed,
            "differs_at_most": self.differs_at_most,
            "complete": self.complete,
            "refuted_by": self.refuted_by.number if self.refuted_by else None,
            "alike": [_varying(one, self.ambiguous) for one in self.engines],
            "next_probe": None if self.next_probe is None else _probe_dict(self.next_probe),
        }

    def __str__(self) -> str:
        if self.refuted_by is not None:
            return (
                f"no setting fits: after {len(self.asked)} probes none is left; "
                f"probe {self.refuted_by.number} ruled out the last "
                f"{self.refuted_by.before} ({self.refuted_by.probe})"
            )
        fit = (
            "1 setting fits" if len(self.engines) == 1 else f"{len(self.engines)} settings fit"
        )
        lines = [f"{fit}, after {self._counted()}"]
        if self.like:
            lines.append(f"like {', '.join(self.like)}")
        lines += map(str, self.parameters)
        return "\n".join([*lines, *self._limits()])

    def _counted(self) -> str:
        recorded = sum(one.purpose == "recorded" for one in self.asked)
        counts = ((recorded, "recording"), (len(self.asked) - recorded, "probe"))
        return " and ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)

    def _limits(self) -> list[str]:
        """What was not found out, and how far that was looked for."""
        lines: list[str] = []
        if len(self.engines) > 1:
            names = ", ".join(self.ambiguous)
            lines.append(f"not told apart: {len(self.engines)} settings that differ in {names}")
        if not self.complete:
            lines.append("the search was cut short: allow more runs, and it goes on")
        elif self.next_probe is not None:
            lines.append(f"to tell more, run and record: {self.next_probe}")
        elif len(self.engines) > 1 and self.searched:
            lines.append(
                f"on none of {self.searched} more inputs would they differ; that is no proof"
            )
        if any(one.answer is None for one in self.asked):
            lines.append("it took no query of some kinds, so nothing is known of those")
        if self.confirmed:
            share = f"{100 * self.differs_at_most:.0f} %"
            lines.append(
                f"{self.confirmed} probes by chance agreed: at 95 % confidence it differs on "
                f"at most {share} of such"
            )
        return lines


def _varying(engine: Engine, names: tuple[str, ...]) -> dict[str, Any]:
    told = settings(engine)
    return {name: told[name] for name in names if name in told}


def _probe_dict(probe: Probe) -> dict[str, Any]:
    return {
        "size": probe.size,
        "slide": probe.slide,
        "tuples": [
            {"stable": item.time}
            if isinstance(item, Stable)
            else {"time": item.time, "value": item.value, "batch": item.batch}
            for item in probe.tuples
        ],
    }


def _asked_dict(one: Asked) -> dict[str, Any]:
    return {
        "number": one.number,
        **_probe_dict(one.probe),
        "purpose": one.purpose,
        "answer": None if one.answer is None else [_plain(result) for result in one.answer],
        "runs": one.runs,
        "agreeing": one.agreeing,
        "before": one.before,
        "after": one.after,
        "told": list(one.told),
    }


def _plain(shown: Shown) -> dict[str, Any]:
    return {name: value for name, value in shown._asdict().items() if value is not None}


def told_apart(before: Sequence[Engine], after: Sequence[Engine]) -> list[str]:
    """The parameters that have fewer values now."""
    if len(before) == len(after):
        return []
    old, new = values_of(before), values_of(after)
    return [name for name in PARAMETERS if len(new[name]) < len(old[name])]


def values_of(engines: Sequence[Engine]) -> dict[str, list[object]]:
    """The values that these engines have, parameter by parameter."""
    found: dict[str, dict[object, None]] = {name: {} for name in PARAMETERS}
    for engine in engines:
        for name, value in settings(engine).items():
            found[name][value] = None
    return {name: list(values) for name, values in found.items()}


def parameter(
    name: str, found: list[object], possible: list[object], asked: Sequence[Asked]
) -> Parameter:
    """One parameter, by the values that are left of those possible."""
    probes = [one for one in asked if name in one.told]
    runs = sum(one.runs for one in probes)
    narrowed: Literal["narrowed", "unseen"] = (
        "narrowed" if len(found) < len(possible) else "unseen"
    )
    return Parameter(
        name,
        tuple(found),
        "settled" if len(found) == 1 else narrowed,
        tuple(one.number for one in probes),
        sum(one.agreeing for one in probes) / runs if runs else 0.0,
    )
