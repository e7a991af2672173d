"""What `infer` found: settings, how sure, by which probes, and what nobody can tell apart."""

from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import UsageError
from anabranch.model import Stable
from anabranch.windows.candidates import Space
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
    purpose: Literal["split", "confirm"]
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
        }

    def __str__(self) -> str:
        if self.refuted_by is not None:
            return (
                f"no setting fits: after {len(self.asked)} probes none is left; "
                f"probe {self.refuted_by.number} ruled out the last "
                f"{self.refuted_by.before} ({self.refuted_by.probe})"
            )
        lines = [f"{len(self.engines)} settings fit, after {len(self.asked)} probes"]
        if not self.complete:
            lines[0] += " (the search was cut short)"
        if self.like:
            lines.append(f"like {', '.join(self.like)}")
        return "\n".join([*lines, *map(str, self.parameters)])


def _asked_dict(one: Asked) -> dict[str, Any]:
    return {
        "number": one.number,
        "size": one.probe.size,
        "slide": one.probe.slide,
        "tuples": [
            {"stable": item.time}
            if isinstance(item, Stable)
            else {"time": item.time, "value": item.value, "batch": item.batch}
            for item in one.probe.tuples
        ],
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
