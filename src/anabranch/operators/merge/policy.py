"""Policies of a merge: its choices where the data permits several, as frozen values.

Whatever the policy, the output is valid, compatible with its inputs at every prefix, and has
their history in the end; a policy only decides when changes are emitted, and which replica is
believed meanwhile.  Each part states its own promise, which is a law in the tests:

    adjusts      when an end on the output changes before a stable forces it to
    inserts      when an event comes to the output before a stable forces it to
    stable_lag   how far the output's frontier stays behind the leader's
    violations   what becomes of a replica that breaks a promise
    shrink_only  for consumers that cannot lengthen an event (erratum L14)
    promote      whether a joining replica may lead when nobody else is left (D5)
    gaps, wait   whether replicas may lack events that others have, and how far the output
                 waits for the slowest of them
    remember     how far behind the frontier copies of final events are still recognised

Every policy yields at reconcile: what the deciding replica's stable needs is emitted just
before the stable, at the latest.  Only joined replicas lead, vote and are followed.

Which case has which choices is decided when a merge is built, never later (`require_support`).

Papers: LMerge V-A, V-B; errata D5, D8, L12, L14.

>>> policy = Policy(inserts=Quorum(0.5), adjusts=Adjusts.ALWAYS)
>>> str(policy)
'adjusts=always,inserts=quorum(0.5)'
>>> Policy.parse("inserts=quorum(0.5), adjusts=always") == policy
True
>>> Policy.from_dict(policy.to_dict()) == policy
True
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum, auto
from fractions import Fraction
from math import ceil
from typing import Any, Final

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import Choice, listed


class Adjusts(StrEnum):
    """When an end on the output changes before a stable forces it to; or `Follow`."""

    ON_STABLE = auto()
    """Ends change only when a stable would freeze a wrong one.

    Promise (the corrected bounds of erratum L12): adjusts out <= inserts in + adjusts in; and,
    without shrink_only, inserts out <= inserts in, stables out <= stables in.
    """
    ALWAYS = auto()
    """Every adjust is shown when it comes, from whichever replica.

    Promise: after an adjust that its replica could make, the output has its new end (or not
    the event, if it was a removal), if both its ends are not behind the output's frontier.  An
    event that was removed this way comes back with the next element of a replica that has it.
    """
    FOLLOW_LEADER = auto()
    """The output's ends are those of the leader.

    Promise: an event that the leader has is on the output with the leader's end, if it is
    there at all and that end is not behind the output's frontier; what the leader removed is
    not there, unless it is half frozen.
    """


@dataclass(frozen=True, slots=True)
class Follow:
    """The output's ends are those of one replica, while it is joined; else as ON_STABLE.

    Promise: that of FOLLOW_LEADER, about this replica.
    """

    replica: str

    def __post_init__(self) -> None:
        if not self.replica:
            message = "merge policy: follow() names no replica; write follow(east)"
            raise UsageError(message)

    def __str__(self) -> str:
        """The name is quoted where it would be misread."""
        is_plain = re.fullmatch(r"[\w.-]+", self.replica)
        return f"follow({self.replica if is_plain else json.dumps(self.replica)})"


class Inserts(StrEnum):
    """When an event comes to the output before a stable forces it to; or a `Quorum`."""

    FIRST = auto()
    """The first replica to have an event brings it to the output.

    Promise: an event that some replica has and that may still start is on the output, unless
    the policy for adjusts took it away.
    """
    LEADER = auto()
    """The leader brings events to the output: the joined replica with the greatest frontier.

    Promise: before reconcile an event comes only while the leader has it; and what the leader
    has and may still start is on the output, unless the policy for adjusts took it away.
    """
    HIGHEST_START = auto()
    """The joined replica whose inserts have reached the highest start brings events.

    Promise: that of LEADER, about this replica (the one before, while others are equal).
    """
    MOST_FREE = auto()
    """The joined replica with the most free events brings events to the output.

    Promise: that of LEADER, about this replica (the one before, while others are equal).
    """
    HALF_FROZEN = auto()
    """An event comes to the output when it is half frozen in the leader.

    Promise: an event that is on the output is never removed.
    """


@dataclass(frozen=True, slots=True)
class Quorum:
    """An event comes to the output when this fraction of the joined replicas have it.

    Promise: before reconcile it comes only while at least `needed(joined)` of them have it; and
    an event that a quorum has and that may still start is on the output, unless the policy for
    adjusts removed it.
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise _no_fraction(self.fraction)

    def __str__(self) -> str:
        return f"quorum({self.fraction})"

    def needed(self, joined: int) -> int:
        """How many must have an event, of this many; at least one.

        >>> Quorum(0.1).needed(30), Quorum(0.5).needed(3), Quorum(1).needed(0)
        (3, 2, 1)
        """
        # As it is written: the float 0.1 is a little more than a tenth of 30.
        return max(1, ceil(Fraction(repr(self.fraction)) * joined))


class Violations(StrEnum):
    """What becomes of a replica that breaks a promise."""

    IGNORE = auto()
    """A violation is counted and changes nothing; its replica goes on."""
    RAISE = auto()
    """A violation stops the merge with a `ViolationError`; the merge is as it was before."""
    DETACH = auto()
    """A violation detaches its replica, until it attaches with a greater number.

    Promise: no element of it is believed until then, and the first violation is the last that
    has a reason of its own; what follows is counted as a violation too.
    """


_TERMS: Final[Mapping[str, Mapping[str, Any]]] = {
    "adjusts": {**{one.value: one for one in Adjusts}, "follow": Follow},
    "inserts": {**{one.value: one for one in Inserts}, "quorum": Quorum},
    "violations": {one.value: one for one in Violations},
}
"""The words that each choice knows: values, and what takes an argument."""


def _require_distance(choice: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        message = (
            f"merge policy: {choice}={value!r} is not a distance in time; give a whole number "
            "of time units, 0 or more"
        )
        raise UsageError(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All choices together; the default is the paper's Algorithm R3.

    `stable_lag`: the output's frontier is the leader's less this many units (never going back;
    FOREVER passes at once).  `shrink_only`: where no input lengthens an event, the output does
    not either: an end that is too short is made right by a removal and a new insert, just
    before the event becomes half frozen.  `promote`: when the joined replicas have all left,
    the joining one with the smallest guarantee is joined early, and what may be wrong because
    of that is reported.  `gaps`: the output has an event if any joined replica has it when the
    output's frontier passes its start; so the frontier is the least of the joined replicas,
    but at least the leader's less `wait` units (None: no limit).  `remember`: the names of
    final events, by which the copies of a silent or slow replica are recognised, are kept until
    the frontier is this many units beyond their end (None: until every attached replica is).
    """

    adjusts: Adjusts | Follow = Adjusts.ON_STABLE
    inserts: Inserts | Quorum = Inserts.FIRST
    stable_lag: int = 0
    violations: Violations = Violations.IGNORE
    shrink_only: bool = False
    promote: bool = False
    gaps: bool = False
    wait: int | None = None
    remember: int | None = None

    def __post_init__(self) -> None:
        for choice, words in _TERMS.items():
            term = getattr(self, choice)
            kinds = {one if isinstance(one, type) else type(one) for one in words.values()}
            if type(term) not in kinds:
                message = (
                    f"merge policy: {choice}={term!r} is none of {', '.join(words)}; "
                    "give such a value, or parse a text: Policy.parse('adjusts=always')"
                )
                raise UsageError(message)
        _require_distance("stable_lag", self.stable_lag)
        if self.remember is not None:
            _require_distance("remember", self.remember)
        if self.wait is not None:
            _require_distance("wait", self.wait)
            if not self.gaps:
                message = (
                    f"merge policy: wait={self.wait} without gaps: only a merge of copies with "
                    "gaps waits for the slower ones; add gaps=true, or leave wait out"
                )
                raise UsageError(message)

    @classmethod
    def parse(cls, text: str) -> "Policy":
        """The policy of a text as `str` writes it; empty or `default` is the default one."""
        if text.strip() in ("", "default"):
            return DEFAULT
        values: dict[str, object] = {}
        for item in _split(text):
            choice, equals, value = (part.strip() for part in item.partition("="))
            if not equals or not value:
                message = (
                    f"merge policy: {item.strip()!r} in {text!r} is not a choice; write "
                    "CHOICE=VALUE with commas between, for instance "
                    "'inserts=quorum(0.5),adjusts=always'"
                )
                raise UsageError(message)
            if choice in values:
                message = f"merge policy: {choice} is chosen twice in {text!r}; choose once"
                raise UsageError(message)
            values[choice] = _plain(choice, value)
        return cls.from_dict(values)

    @classmethod
    def from_dict(cls, values: Mapping[str, object]) -> "Policy":
        """The policy of plain values as `to_dict` gives them; what is absent is default."""
        known = {one.name: None for one in fields(cls)}
        for choice in values:
            if choice not in known:
                message = (
                    f"merge policy: there is no choice {choice!r}{_suggest(choice, known)}; "
                    f"the choices are {', '.join(known)}"
                )
                raise UsageError(message)
        for choice in ("shrink_only", "promote", "gaps"):
            if not isinstance(values.get(choice, False), bool):
                message = (
                    f"merge policy: {choice}={values[choice]} is neither true nor false; "
                    "give one of these"
                )
                raise UsageError(message)
        terms = {
            choice: _parse_term(choice, str(value)) if choice in _TERMS else value
            for choice, value in values.items()
        }
        return cls(**terms)  # type: ignore[arg-type]  # __post_init__ looks at each

    def to_dict(self) -> dict[str, str | int | bool | None]:
        """All choices as plain values, for state and configuration."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            choice: str(value) if choice in _TERMS else value
            for choice, value in values.items()
        }

    @property
    def chosen(self) -> dict[str, str]:
        """The choices that are not the default, as they are written."""
        default = DEFAULT.to_dict()
        return {
            choice: str(value).lower() if isinstance(value, bool) else str(value)
            for choice, value in self.to_dict().items()
            if value != default[choice]
        }

    def __str__(self) -> str:
        return ",".join(f"{name}={value}" for name, value in self.chosen.items()) or "default"


DEFAULT: Final = Policy()
"""The paper's Algorithm R3."""


def _parse_term(choice: str, text: str) -> object:
    """The term that a text names, of those that this choice knows."""
    text = text.strip()
    shape = re.fullmatch(r"([^()]*)(?:\((.*)\))?", text, re.DOTALL)
    word = shape[1].strip() if shape else text
    term = _TERMS[choice].get(word)
    if shape is None or term is None:
        message = (
            f"merge policy: {choice} has no value {text!r}{_suggest(word, _TERMS[choice])}; "
            f"it is one of {', '.join(_TERMS[choice])}"
        )
        raise UsageError(message)
    argument = (shape[2] or "").strip()
    if isinstance(term, type) != bool(argument):
        wanted, example = {
            Follow: ("a replica's name", "follow(east)"),
            Quorum: ("a number above 0 and at most 1", "quorum(0.5)"),
        }.get(term, ("nothing", word))
        message = f"merge policy: {choice}={text}: {word} takes {wanted}; write {example}"
        raise UsageError(message)
    if term is Follow:
        return Follow(_name(argument))
    return Quorum(_fraction(argument)) if term is Quorum else term


def _suggest(word: str, known: Mapping[str, object]) -> str:
    """A close known word, as a part of a sentence; nothing if none is close.

    >>> _suggest("quorm", _TERMS["inserts"])
    " (did you mean 'quorum'?)"
    """
    close = get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _name(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        return str(json.loads(text))
    except ValueError as error:
        message = f"merge policy: follow({text}): the quoted name does not end as it should"
        raise UsageError(message) from error


def _fraction(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise _no_fraction(text) from error


def _no_fraction(what: object) -> UsageError:
    return UsageError(
        f"merge policy: quorum({what}) is not a fraction of the replicas; "
        "give a number above 0 and at most 1, for instance quorum(0.5)"
    )


def _split(text: str) -> list[str]:
    """The items between commas; commas in brackets or quotes do not separate.

    >>> _split('adjusts=follow("a, b)"),stable_lag=2')
    ['adjusts=follow("a, b)")', 'stable_lag=2']
    """
    items, depth, quoted, escaped = [""], 0, False, False
    for letter in text:
        if letter == '"' and not escaped:
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and depth == 0 and not quoted:
            items.append("")
        else:
            items[-1] += letter
        escaped = quoted and letter == "\\" and not escaped
    return items


def _plain(choice: str, value: str) -> object:
    """The plain value of a text; one that cannot be is left to be refused by its name."""
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    if choice in ("stable_lag", "wait", "remember") and re.fullmatch(r"-?\d+", value):
        return int(value)
    return value


_ORDERED: Final = frozenset({"violations", "stable_lag", "promote"})

CHOICES: Final[Mapping[MergeCase, frozenset[str]]] = {
    **dict.fromkeys((MergeCase.R0, MergeCase.R1, MergeCase.R2), _ORDERED),
    MergeCase.R3: frozenset(DEFAULT.to_dict()),
    MergeCase.R4: _ORDERED | {"shrink_only", "gaps", "wait", "remember"},
}
"""What each case lets one choose.

R3 has all: the two places of LMerge V-A at which a merge may wait or hurry (when an event
comes, when an end changes) are those of Algorithm R3, with one event per identity.  A stream
that declares nothing is merged as R4 (it may have to be), so it has R4's choices.
"""


def unsupported(case: MergeCase, policy: Policy) -> tuple[str, ...]:
    """The choices of this policy that this case has not, as they are written.

    >>> unsupported(MergeCase.R4, Policy.parse("adjusts=always,shrink_only=true"))
    ('adjusts=always',)
    """
    chosen = policy.chosen.items()
    return tuple(f"{name}={value}" for name, value in chosen if name not in CHOICES[case])


def require_support(case: MergeCase, policy: Policy) -> None:
    """Refuse a policy that this case has not, by its choices."""
    missing = unsupported(case, policy)
    if missing:
        why = "it emits each event at once and never changes it"
        if policy.gaps:
            why = "it remembers one start, so what another copy brings behind it is late"
        if case is MergeCase.R4:
            why = "with several events per identity V-A does not define which one is meant"
        message = (
            f"merge: case {case.name} has no {', '.join(missing)}: {why}; these are "
            f"choices of case R3: ask for it (--case r3) if identities are unique in every "
            f"replica, or leave them out ({case.name} has "
            f"{listed(sorted(CHOICES[case]))})"
        )
        raise UsageError(message)


def require_choice(choice: Choice, policy: Policy) -> None:
    """The same for a case that was chosen; names the way to one that has the policy."""
    missing = unsupported(choice.case, policy)
    if missing and choice.case is MergeCase.R4 and not choice.was_asked:
        message = (
            f"merge: {', '.join(missing)} needs case R3, but {choice.reason}, and case R4 "
            "does not support it; declare keyed for every replica, or ask for case R3 "
            "(--case r3), if identities are unique in every replica"
        )
        raise UsageError(message)
    require_support(choice.case, policy)
