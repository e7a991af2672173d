"""The words of a merge policy: each a frozen value, with its promise.

Every one of them yields at reconcile: what the deciding replica's stable needs is said just
before the stable, at the latest.  Only joined replicas lead, vote and are followed.

Papers: LMerge V-A.

>>> show_term(Quorum(0.5)), parse_term("inserts", "quorum(0.5)")
('quorum(0.5)', Quorum(fraction=0.5))
"""

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from difflib import get_close_matches
from fractions import Fraction
from math import ceil
from typing import Final, TypeAlias

from anabranch.errors import UsageError


@dataclass(frozen=True, slots=True)
class OnStable:
    """Ends change only when a stable would freeze a wrong one.

    Promise (the corrected bounds of erratum L12): adjusts out <= inserts in + adjusts in; and,
    without shrink_only, inserts out <= inserts in, stables out <= stables in.
    """


@dataclass(frozen=True, slots=True)
class Always:
    """Every adjust is shown when it comes, from whichever replica.

    Promise: after an adjust that its replica could make, the output has its new end (or not
    the event, if it was a removal), if both its ends are not behind the output's frontier.  An
    event that was removed this way comes back with the next word of a replica that has it.
    """


@dataclass(frozen=True, slots=True)
class FollowLeader:
    """The output's ends are those of the leader.

    Promise: an event that the leader has is on the output with the leader's end, if it is
    there at all and that end is not behind the output's frontier; what the leader removed is
    not there, unless it is half frozen.
    """


@dataclass(frozen=True, slots=True)
class Follow:
    """The output's ends are those of one replica, while it is joined; else as `OnStable`.

    Promise: that of `FollowLeader`, about this replica.
    """

    replica: str

    def __post_init__(self) -> None:
        if not self.replica:
            message = "merge policy: follow() names no replica; write follow(east)"
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class First:
    """The first replica to have an event brings it to the output.

    Promise: an event that some replica has and that may still start is on the output, unless
    the policy for adjusts took it away.
    """


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader brings events to the output: the joined replica with the greatest frontier.

    Promise: before reconcile an event comes only while the leader has it; and what the leader
    has and may still start is on the output, unless the policy for adjusts took it away.
    """


@dataclass(frozen=True, slots=True)
class HighestStart:
    """The joined replica whose inserts have reached the highest start brings events.

    Promise: that of `Leader`, about this replica (the one before, while others are equal).
    """


@dataclass(frozen=True, slots=True)
class MostFree:
    """The joined replica with the most free events brings events to the output.

    Promise: that of `Leader`, about this replica (the one before, while others are equal).
    """


@dataclass(frozen=True, slots=True)
class HalfFrozen:
    """An event comes to the output when it is half frozen in the leader.

    Promise: an event that is on the output is never removed.
    """


@dataclass(frozen=True, slots=True)
class Quorum:
    """An event comes to the output when this fraction of the joined replicas have it.

    Promise: before reconcile it comes only while at least `needed(joined)` of them have it; and
    what so many have and may still start is on the output, unless the policy for adjusts took
    it away.
    """

    fraction: float

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            message = (
                f"merge policy: quorum({self.fraction}) is no fraction of the replicas; "
                "give a number above 0 and at most 1, for instance quorum(0.5)"
            )
            raise UsageError(message)

    def needed(self, joined: int) -> int:
        """How many must have an event, of this many; at least one.

        >>> Quorum(0.1).needed(30), Quorum(0.5).needed(3), Quorum(1).needed(0)
        (3, 2, 1)
        """
        # As it is written: the float 0.1 is a little more than a tenth of 30.
        return max(1, ceil(Fraction(repr(self.fraction)) * joined))


@dataclass(frozen=True, slots=True)
class Ignore:
    """A violation is counted and changes nothing; its replica goes on."""


@dataclass(frozen=True, slots=True)
class Raise:
    """A violation stops the merge with a `ViolationError`; the merge is as it was before."""


@dataclass(frozen=True, slots=True)
class Detach:
    """A violation detaches its replica, until it attaches with a greater number.

    Promise: nothing that it says until then is believed, and the first violation is the last
    that says why; what follows is counted as a violation too.
    """


Adjusts: TypeAlias = OnStable | Always | FollowLeader | Follow
Inserts: TypeAlias = First | Leader | HighestStart | MostFree | HalfFrozen | Quorum
Violations: TypeAlias = Ignore | Raise | Detach

Term: TypeAlias = Adjusts | Inserts | Violations

TERMS: Final[Mapping[str, Mapping[str, type[Term]]]] = {
    "adjusts": {
        "on_stable": OnStable,
        "always": Always,
        "follow_leader": FollowLeader,
        "follow": Follow,
    },
    "inserts": {
        "first": First,
        "leader": Leader,
        "highest_start": HighestStart,
        "most_free": MostFree,
        "half_frozen": HalfFrozen,
        "quorum": Quorum,
    },
    "violations": {"ignore": Ignore, "raise": Raise, "detach": Detach},
}
"""The words that each choice knows."""

_WORDS: Final = {kind: word for words in TERMS.values() for word, kind in words.items()}
_TAKES: Final = {Follow: "a replica's name", Quorum: "a number above 0 and at most 1"}
_PLAIN: Final[tuple[Term, ...]] = (
    *(OnStable(), Always(), FollowLeader()),
    *(First(), Leader(), HighestStart(), MostFree(), HalfFrozen()),
    *(Ignore(), Raise(), Detach()),
)
_SHAPE: Final = re.compile(r"(?P<word>[^()]*)(\((?P<argument>.*)\))?", re.DOTALL)
_PLAIN_NAME: Final = re.compile(r"[\w.-]+")


def show_term(term: Term) -> str:
    """The text of a term; a replica's name is quoted where it would be misread.

    >>> show_term(FollowLeader()), show_term(Follow("east")), show_term(Follow("a, b"))
    ('follow_leader', 'follow(east)', 'follow("a, b")')
    """
    word = _WORDS[type(term)]
    if isinstance(term, Follow) and not _PLAIN_NAME.fullmatch(term.replica):
        return f"{word}({json.dumps(term.replica)})"
    argument = "".join(str(value) for value in astuple(term))
    return f"{word}({argument})" if argument else word


def parse_term(choice: str, text: str) -> Term:
    """The term that a text names, of those that this choice knows."""
    shape = _SHAPE.fullmatch(text.strip())
    word = shape["word"].strip() if shape else text
    kind = TERMS[choice].get(word)
    if shape is None or kind is None:
        known = ", ".join(TERMS[choice])
        message = (
            f"merge policy: {choice} knows no {text.strip()!r}{suggest(word, TERMS[choice])}; "
            f"it is one of {known}"
        )
        raise UsageError(message)
    argument = shape["argument"]
    if (kind in _TAKES) != bool(argument and argument.strip()):
        wanted = f"takes {_TAKES[kind]}" if kind in _TAKES else "takes nothing"
        example = {Follow: "follow(east)", Quorum: "quorum(0.5)"}.get(kind, word)
        message = f"merge policy: {choice}={text.strip()}: {word} {wanted}; write {example}"
        raise UsageError(message)
    if kind is Follow:
        return Follow(_name(argument.strip()))
    if kind is Quorum:
        return Quorum(_number(argument.strip()))
    return next(term for term in _PLAIN if type(term) is kind)


def suggest(word: str, known: Mapping[str, object]) -> str:
    """A close known word, as a part of a sentence; nothing if none is close.

    >>> suggest("quorm", TERMS["inserts"])
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


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        message = (
            f"merge policy: quorum({text}) is no fraction of the replicas; "
            "give a number above 0 and at most 1, for instance quorum(0.5)"
        )
        raise UsageError(message) from error
