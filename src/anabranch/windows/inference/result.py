"""The result of `infer`: settings, their certainty, the probes, and what stays ambiguous."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anabranch.errors import UsageError
from anabranch.windows.engine import Engine
from anabranch.windows.inference.asked import (
    Asked,
    Disagreement,
    Unanswered,
    probe_dict,
    show_answer,
)
from anabranch.windows.inference.candidates import PARAMETERS, Space, settings
from anabranch.windows.inference.probes import FIELDS, Probe, answer_of, foretold
from anabranch.windows.inference.recorded import Silent
from anabranch.windows.profiles.known import engine as engine_named
from anabranch.windows.trace import Query

_BOUND = 0.95
_MOST_NOISE = 3
_NUMBERS = ("start.offset", "report.period", "progress.delay", "progress.lateness")


SeenAs: TypeAlias = Literal["settled", "likely", "narrowed", "unseen"]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One setting: the values that are left."""

    name: str
    values: tuple[Any, ...]
    seen: SeenAs
    """One value is left of those tried; the same, but runs of the engine disagreed; some are
    out; all that were tried are left."""
    probes: tuple[int, ...]
    """Numbers of the probes after which fewer values were left."""
    confidence: float
    """Of the runs of those probes, the share that gave the answer which was believed; 0 if
    the parameter was not seen."""
    tried: tuple[Any, ...]
    """The values that the settings of the space have: nothing is known of any other."""

    def __str__(self) -> str:
        values = " or ".join(map(_shown, self.values))
        return f"{self.name}: {values} ({self.seen}{self._tried()})"

    def _tried(self) -> str:
        if self.seen == "unseen":
            return ""  # these are the values left
        if len(self.tried) == 1:
            return f"; only {_shown(self.tried[0])} was tried"
        return f"; tried {', '.join(map(_shown, self.tried))}"


@dataclass(frozen=True, slots=True)
class Inference:
    """What is known of a black-box engine."""

    engines: tuple[Engine, ...]
    """All settings of the space that give every answer; no probe distinguishes them.  One that
    has no answer to a probe which the engine accepted is not among them.  Empty: none fits."""
    parameters: tuple[Parameter, ...]
    like: tuple[str, ...]
    """Known engines, their own options set so, that are among them."""
    asked: tuple[Asked, ...]
    searched: int
    """The number of inputs generated at the end without one on which two of the engines
    differ."""
    refuted_by: Asked | None
    """If none fits: the probe whose answer ruled out the last ones."""
    complete: bool
    """Whether the search came to its end within `most` runs."""
    space: Space
    next_probe: Probe | None = None
    """With recordings alone: a run that would distinguish some of the engines."""
    agg: str = "sum"
    by: Literal["time", "rows"] = "time"
    compared: frozenset[str] = frozenset(FIELDS)
    """The fields that the engine shows for each result, which were compared."""
    disagreements: tuple[Disagreement, ...] = ()
    """Probes, and recordings, to which runs of the engine gave different answers.  If there is
    any, no parameter is settled."""

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

    def why_not(self, engine: str | Engine) -> str | None:
        """Why that engine is out: the first probe to which it has no answer, or another one.

        None if it gives every answer.  It need not be of the space.
        """
        found = engine_named(engine)
        for one in self.asked:
            if one.answer is None or not one.decided:
                continue  # it rules nothing out
            query = Query(one.probe.size, one.probe.slide, self.agg, self.by)
            silent = Silent(one.probe, query).why(found)
            if silent is not None:
                return f"no answer to probe {one.number}, which the engine accepted: {silent}"
            predicted = foretold(found, one.probe, self.agg, self.by) or ()
            if answer_of(predicted, self.compared) != answer_of(one.answer, self.compared):
                # Only what was compared: the model has more fields of a result than the engine.
                shown = (show_answer(some, self.compared) for some in (predicted, one.answer))
                return (
                    f"another answer to probe {one.number}: {' instead of '.join(shown)} "
                    f"({one.probe})"
                )
        return None

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
                    "tried": list(one.tried),
                }
                for one in self.parameters
            ],
            "asked": [one.to_dict() for one in self.asked],
            "disagreements": [one.to_dict() for one in self.disagreements],
            "searched": self.searched,
            "confirmed": self.confirmed,
            "differs_at_most": self.differs_at_most,
            "complete": self.complete,
            "refuted_by": self.refuted_by.number if self.refuted_by else None,
            "alike": [_varying(one, self.ambiguous) for one in self.engines],
            "next_probe": None if self.next_probe is None else probe_dict(self.next_probe),
        }

    def __str__(self) -> str:
        if self.refuted_by is not None:
            none = (
                f"no setting fits: after {len(self.asked)} probes none is left; "
                f"probe {self.refuted_by.number} ruled out the last "
                f"{self.refuted_by.before} ({self.refuted_by.probe})"
            )
            limits = (*self._unanswered(), *self._noise(), *self._numbers_tried())
            return "\n".join([none, *limits])
        fit = (
            "1 setting fits" if len(self.engines) == 1 else f"{len(self.engines)} settings fit"
        )
        lines = [f"{fit}, after {self._counted()}"]
        if self.like:
            lines.append(f"like {', '.join(self.like)}")
        lines += map(str, self.parameters)
        return "\n".join([*lines, *self._unanswered(), *self._limits()])

    def _counted(self) -> str:
        recorded = sum(one.purpose == "recorded" for one in self.asked)
        counts = ((recorded, "recording"), (len(self.asked) - recorded, "probe"))
        return " and ".join(f"{n} {what}{'s' * (n > 1)}" for n, what in counts if n)

    def _unanswered(self) -> list[str]:
        """Which settings are out without an answer: a line for each reason."""
        found: dict[str, list[tuple[int, Unanswered]]] = {}
        for one in self.asked:
            for out in one.unanswered:
                found.setdefault(out.reason, []).append((one.number, out))
        lines: list[str] = []
        for reason, some in found.items():
            names = ", ".join(dict.fromkeys(name for _, out in some for name in out.like))
            count = sum(out.settings for _, out in some)
            have = "1 setting has" if count == 1 else f"{count} settings have"
            lines.append(
                f"out: {have} no answer to what the engine accepted (first: probe "
                f"{some[0][0]}), since {reason}{f'; known: {names}' if names else ''}"
            )
        return lines

    def _noise(self) -> list[str]:
        """Runs that disagree: some of them, since a very noisy engine disagrees on all."""
        lines = list(map(str, self.disagreements[:_MOST_NOISE]))
        more = len(self.disagreements) - len(lines)
        return [*lines, f"and on {more} more probe{'s' * (more > 1)}"] if more else lines

    def _numbers_tried(self) -> list[str]:
        """The numbers of the space: all else is tried whole, so others may fit in these."""
        tried = [
            f"{one.name} {', '.join(_shown(value) for value in one.tried if value != '-')}"
            for one in self.parameters
            if one.name in _NUMBERS and set(one.tried) != {"-"}
        ]
        return [f"other numbers may fit; tried {'; '.join(tried)}"] if tried else []

    def _limits(self) -> list[str]:
        """What was not found out, and how far that was looked for."""
        lines = self._noise()
        if len(self.engines) > 1:
            names = ", ".join(self.ambiguous)
            lines.append(
                f"not distinguished: {len(self.engines)} settings that differ in {names}"
            )
        if not self.complete:
            lines.append("the search was cut short: allow more runs to continue it")
        elif self.next_probe is not None:
            lines.append(f"to narrow it down, run and record: {self.next_probe}")
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


def _shown(value: object) -> str:
    return "none" if value is None else str(value)


def _varying(engine: Engine, names: tuple[str, ...]) -> dict[str, Any]:
    found = settings(engine)
    return {name: found[name] for name in names if name in found}


def distinguished(before: Sequence[Engine], after: Sequence[Engine]) -> list[str]:
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


def seen_of(found: Sequence[object], possible: Sequence[object], *, noisy: bool) -> SeenAs:
    """How certain the remaining values are; runs that disagree settle nothing."""
    if len(found) == 1:
        return "likely" if noisy else "settled"
    return "narrowed" if len(found) < len(possible) else "unseen"


def parameter(
    name: str,
    found: list[object],
    possible: list[object],
    asked: Sequence[Asked],
    *,
    noisy: bool,
) -> Parameter:
    """One parameter, by the values that are left of those possible."""
    probes = [one for one in asked if name in one.narrowed]
    runs = sum(one.runs for one in probes)
    return Parameter(
        name,
        tuple(found),
        seen_of(found, possible, noisy=noisy),
        tuple(one.number for one in probes),
        sum(one.agreeing for one in probes) / runs if runs else 0.0,
        tuple(possible),
    )
