"""What a merge does where the data leaves a choice: frozen values that compose.

Whatever the policy, the output is valid, compatible with its inputs at every prefix, and has
their history in the end; a policy only decides when things are said, and who is believed
meanwhile.  Each part states its own promise, which is a law in the tests:

    adjusts      when an end on the output changes before a stable forces it to
    inserts      when an event comes to the output before a stable forces it to
    stable_lag   how far the output's frontier stays behind the leader's
    violations   what becomes of a replica that breaks a promise
    shrink_only  for consumers that cannot lengthen an event (erratum L14)
    promote      whether a joining replica may lead when nobody else is left (D5)

Every policy yields at reconcile: what the deciding replica's stable needs is said just before
the stable, at the latest.  Only joined replicas lead, vote and are followed.

Papers: LMerge V-A, V-B; errata D5, D8, L12, L14.

>>> policy = Policy(inserts=Quorum(0.5), adjusts=Always())
>>> str(policy)
'adjusts=always,inserts=quorum(0.5)'
>>> Policy.parse("inserts=quorum(0.5), adjusts=always") == policy
True
>>> Policy.from_dict(policy.to_dict()) == policy
True
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from anabranch.errors import UsageError
from anabranch.operators.merge.policy_terms import (
    TERMS,
    Adjusts,
    Always,
    Detach,
    First,
    Follow,
    FollowLeader,
    HalfFrozen,
    HighestStart,
    Ignore,
    Inserts,
    Leader,
    MostFree,
    OnStable,
    Quorum,
    Raise,
    Violations,
    parse_term,
    show_term,
    suggest,
)

__all__ = [
    "DEFAULT",
    "Adjusts",
    "Always",
    "Detach",
    "First",
    "Follow",
    "FollowLeader",
    "HalfFrozen",
    "HighestStart",
    "Ignore",
    "Inserts",
    "Leader",
    "MostFree",
    "OnStable",
    "Policy",
    "Quorum",
    "Raise",
    "Violations",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """All choices together; the default is the paper's Algorithm R3.

    `stable_lag`: the output's frontier is the leader's less this many units (never going back;
    FOREVER passes at once).  `shrink_only`: where no input lengthens an event, the output does
    not either: an end that is too short is made right by a removal and a new insert, just
    before the event becomes half frozen.  `promote`: when the joined replicas have all left,
    the joining one with the smallest guarantee is joined early, and what may be wrong because
    of that is reported.
    """

    adjusts: Adjusts = field(default_factory=OnStable)
    inserts: Inserts = field(default_factory=First)
    stable_lag: int = 0
    violations: Violations = field(default_factory=Ignore)
    shrink_only: bool = False
    promote: bool = False

    def __post_init__(self) -> None:
        for choice, words in TERMS.items():
            term = getattr(self, choice)
            if type(term) not in words.values():
                message = (
                    f"merge policy: {choice}={term!r} is none of {', '.join(words)}; "
                    "give such a value, or parse a text: Policy.parse('adjusts=always')"
                )
                raise UsageError(message)
        lag = self.stable_lag
        if isinstance(lag, bool) or not isinstance(lag, int) or lag < 0:
            message = (
                f"merge policy: stable_lag={lag!r} is no distance in time; give a whole number "
                "of time units, 0 or more"
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
                    f"merge policy: {item.strip()!r} in {text!r} is no choice; write "
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
                    f"merge policy: there is no choice {choice!r}{suggest(choice, known)}; "
                    f"the choices are {', '.join(known)}"
                )
                raise UsageError(message)
        for choice in ("shrink_only", "promote"):
            if not isinstance(values.get(choice, False), bool):
                message = (
                    f"merge policy: {choice}={values[choice]} is neither true nor false; "
                    "give one of these"
                )
                raise UsageError(message)
        terms = {
            choice: parse_term(choice, str(value)) if choice in TERMS else value
            for choice, value in values.items()
        }
        return cls(**terms)  # type: ignore[arg-type]  # __post_init__ looks at each

    def to_dict(self) -> dict[str, str | int | bool]:
        """All choices as plain values, for state and configuration."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return {
            choice: show_term(value) if choice in TERMS else value
            for choice, value in values.items()
        }

    def __str__(self) -> str:
        default = DEFAULT.to_dict()
        chosen = [
            f"{choice}={str(value).lower() if isinstance(value, bool) else value}"
            for choice, value in self.to_dict().items()
            if value != default[choice]
        ]
        return ",".join(chosen) or "default"


DEFAULT: Final = Policy()
"""The paper's Algorithm R3."""


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
    if choice == "stable_lag" and re.fullmatch(r"-?\d+", value):
        return int(value)
    return value
