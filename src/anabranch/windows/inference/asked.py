"""The record of `infer`: each probe, its answer, and the settings that it ruled out.

A setting that has no answer to a probe which the engine accepted is out, and the reason is
kept as an `Unanswered`.  Runs of one probe that gave different answers are a `Disagreement`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from anabranch.model import Stable
from anabranch.windows.engine import Engine
from anabranch.windows.inference.answers import fields_of
from anabranch.windows.inference.candidates import profiles_like
from anabranch.windows.inference.probes import FIELDS, Probe, Shown, answer_of
from anabranch.windows.predict import show_value

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
    narrowed: tuple[str, ...]
    """The parameters of which it ruled out a value."""
    unanswered: tuple[Unanswered, ...] = ()
    """Those of the engines ruled out that had no answer, by reason."""

    @property
    def decided(self) -> bool:
        """Whether more than half of the runs agree; otherwise it rules nothing out."""
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
            "told": list(self.narrowed),
            "unanswered": [
                {"reason": one.reason, "settings": one.settings, "like": list(one.like)}
                for one in self.unanswered
            ],
        }


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One probe to which runs of the engine gave different answers."""

    probe: Probe
    answers: tuple[Reply, ...]
    """Each one once, the most frequent first."""
    runs: tuple[int, ...]
    """How many runs gave each."""

    def __str__(self) -> str:
        shown = [
            f"{show_answer(answer)} ({count} run{'s' * (count > 1)})"
            for answer, count in zip(self.answers[:2], self.runs, strict=False)
        ]
        more = len(self.answers) - len(shown)
        others = f" and {more} other answer{'s' * (more > 1)}" if more else ""
        return f"runs of one probe disagree: {' but '.join(shown)}{others} on {self.probe}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            **probe_dict(self.probe),
            "answers": [
                {"answer": answer_dict(answer), "runs": count}
                for answer, count in zip(self.answers, self.runs, strict=True)
            ],
        }


def counted(answers: Sequence[Reply], fields: frozenset[str]) -> list[tuple[Reply, int]]:
    """Each different answer and how often it came, the most frequent first."""
    keys = [None if one is None else answer_of(one, fields) for one in answers]
    return [(answers[keys.index(key)], count) for key, count in Counter(keys).most_common()]


def disagreement(probe: Probe, found: Sequence[tuple[Reply, int]]) -> Disagreement | None:
    """The different answers to one probe, as they were counted; None if there is but one."""
    if len(found) <= 1:
        return None
    answers, runs = zip(*found, strict=True)
    return Disagreement(probe, answers, runs)


def contradicting(recorded: Sequence[tuple[Probe, Reply]]) -> tuple[Disagreement, ...]:
    """The recordings of one input with different results."""
    # Not by hash: the values of a recording may be lists.
    groups: list[tuple[Probe, list[Reply]]] = []
    for probe, answer in recorded:
        same = next((some for other, some in groups if other == probe), None)
        if same is None:
            groups.append((probe, [answer]))
        else:
            same.append(answer)
    found = (
        disagreement(probe, counted(answers, _fields_of_all(answers)))
        for probe, answers in groups
    )
    return tuple(one for one in found if one is not None)


def _fields_of_all(answers: Sequence[Reply]) -> frozenset[str]:
    fields = frozenset(FIELDS)
    for one in answers:
        fields &= fields_of(one) if one else fields
    return fields


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


def show_answer(answer: Reply, fields: frozenset[str] = frozenset(FIELDS)) -> str:
    """An answer in words, as far as these fields go.

    >>> show_answer((Shown(3, 0, 4), Shown(5, 4, 8, 2)))
    '3 [0, 4), 5 [4, 8) at step 2'
    """
    if answer is None:
        return "a refusal"
    return ", ".join(_show(one, fields) for one in answer) or "nothing"


def _show(shown: Shown, fields: frozenset[str]) -> str:
    start, end, step = (
        getattr(shown, name) if name in fields else None for name in ("start", "end", "step")
    )
    text = show_value(shown.value)
    if start is not None or end is not None:
        text += f" [{show_value(start)}, {show_value(end)})"
    return text if step is None else f"{text} at step {step}"


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
