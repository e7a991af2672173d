"""What `infer` asked: each probe, its answer, and the settings that it ruled out.

A setting that has no answer to a probe which the engine accepted is out, and the reason is
kept as an `Unanswered`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anabranch.model import Stable
from anabranch.windows.candidates import profiles_like
from anabranch.windows.engine import Engine
from anabranch.windows.predict import show_value
from anabranch.windows.probes import Probe, Shown

Reply: TypeAlias = tuple[Shown, ...] | None
"""What one run showed; None if the engine refused the probe."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """Settings that are out because they have no answer to a probe that the engine accepted."""

    reason: str
    settings: int
    """How many."""
    like: tuple[str, ...]
    """Known engines of which all settings that were left before the probe had no answer."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One probe, its answer, and what it did to the engines that were left."""

    number: int
    probe: Probe
    purpose: Literal["split", "confirm", "recorded"]
    answer: Reply
    """The most frequent answer; None if the engine does not take the query."""
    runs: int
    agreeing: int
    """How many runs gave that answer."""
    before: int
    after: int
    """How many engines were left before and after."""
    told: tuple[str, ...]
    """The parameters of which it ruled out a value."""
    unanswered: tuple[Unanswered, ...] = ()
    """Those of the engines ruled out that had no answer, by reason."""

    @property
    def decided(self) -> bool:
        """Whether more than half of the runs agree; otherwise it tells nothing."""
        return 2 * self.agreeing > self.runs

    @property
    def confirms(self) -> bool:
        """Whether it was drawn by chance, and answered."""
        return self.purpose == "confirm" and self.decided and self.answer is not None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "number": self.number,
            **probe_dict(self.probe),
            "purpose": self.purpose,
            "answer": answer_dict(self.answer),
            "runs": self.runs,
            "agreeing": self.agreeing,
            "before": self.before,
            "after": self.after,
            "told": list(self.told),
            "unanswered": [
                {"reason": one.reason, "settings": one.settings, "like": list(one.like)}
                for one in self.unanswered
            ],
        }


def unanswered(
    engines: Sequence[Engine], why: Callable[[Engine], str | None]
) -> tuple[Unanswered, ...]:
    """Those of the engines that have no answer, by reason; `why` is None for the others."""
    reasons = [(one, why(one)) for one in engines]
    if all(reason is None for _, reason in reasons):
        return ()
    found: dict[str, list[Engine]] = {}
    answering: set[str] = set()
    for one, reason in reasons:
        if reason is None:
            answering.update(profiles_like(one))
        else:
            found.setdefault(reason, []).append(one)
    return tuple(
        Unanswered(
            reason,
            len(silent),
            tuple(
                dict.fromkeys(
                    name
                    for one in silent
                    for name in profiles_like(one)
                    if name not in answering
                )
            ),
        )
        for reason, silent in found.items()
    )


def show_answer(answer: Reply) -> str:
    """An answer in words.

    >>> show_answer((Shown(3, 0, 4), Shown(5, 4, 8, 2)))
    '3 [0, 4), 5 [4, 8) at step 2'
    """
    if answer is None:
        return "a refusal"
    return ", ".join(map(_show, answer)) or "nothing"


def _show(shown: Shown) -> str:
    told = show_value(shown.value)
    if shown.start is not None or shown.end is not None:
        start, end = (show_value(one) for one in (shown.start, shown.end))
        told += f" [{start}, {end})"
    return told if shown.step is None else f"{told} at step {shown.step}"


def answer_dict(answer: Reply) -> list[dict[str, Any]] | None:
    """An answer in plain values; None for a refusal."""
    if answer is None:
        return None
    return [
        {name: value for name, value in one._asdict().items() if value is not None}
        for one in answer
    ]


def probe_dict(probe: Probe) -> dict[str, Any]:
    """A probe in plain values."""
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
