"""How long a query waits and how long it remembers: one level for all of its inputs.

`wait` is how long an event is held back before it is answered, None: until a stable has passed
it.  `remember` is how far behind the greatest start an element still counts, None: for ever.
So a level is a place in the triangle of the papers; the names are of its corners.

>>> str(NAMED["weak"])
'wait=0, remember=0'
>>> Level.parse("wait=stable, remember=forever") == NAMED["strong"]
True

Papers: CEDR *theory* 2 and Figure 1, *operators* 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Self

from anabranch.errors import UsageError

STABLE: Final = "stable"
"""What a wait is called that only a stable ends."""
FOREVER: Final = "forever"
"""What `remember` is called where nothing limits it."""


class Release(Enum):
    """What align releases: all that is in order, or only what is final."""

    ORDERED = "ordered"
    FINAL = "final"


@dataclass(frozen=True, kw_only=True)
class Level:
    """How long a query waits, and how long it remembers.

    `wait` and `remember` are in units of application time, `wait_wall` is in microseconds; see
    `operators.hold` and `operators.finalize`.
    """

    wait: int | None = 0
    wait_wall: int | None = None
    remember: int | None = None
    release: Release = Release.ORDERED

    def __post_init__(self) -> None:
        for option in ("wait", "wait_wall", "remember"):
            value = getattr(self, option)
            if value is not None and value < 0:
                message = f"consistency: {option} is {value}; it must be 0 or greater"
                raise UsageError(message)
        if self.wait is not None and self.remember is not None and self.wait > self.remember:
            message = (
                f"consistency: wait={self.wait} is greater than remember={self.remember}: what "
                "is held back would be forgotten before it is answered; give a remember of at "
                "least wait, or a shorter wait"
            )
            raise UsageError(message)

    @property
    def needs_stables(self) -> bool:
        """Whether nothing but a stable ends its wait."""
        return self.wait is None and self.wait_wall is None

    @property
    def makes_final(self) -> bool:
        """Whether it makes events final without stables of its inputs."""
        return self.remember is not None

    @property
    def name(self) -> str:
        """Its name, if it is at a corner; else empty."""
        return next((name for name, one in NAMED.items() if one == self), "")

    @classmethod
    def parse(cls, text: str) -> Self:
        """The level of its text, as `str` writes it; UsageError for another text."""
        given = dict(part.split("=", 1) for part in text.split(", ") if "=" in part)
        try:
            wait, remember, wall = given["wait"], given["remember"], given.get("wait_wall")
            return cls(
                wait=None if wait == STABLE else int(wait),
                wait_wall=None if wall is None else int(wall),
                remember=None if remember == FOREVER else int(remember),
                release=Release(given.get("release", Release.ORDERED.value)),
            )
        except (KeyError, ValueError):
            message = f"'{text}' is no level, such as '{NAMED['weak']}'; start a new run"
            raise UsageError(message) from None

    def __str__(self) -> str:
        parts = [f"wait={STABLE if self.wait is None else self.wait}"]
        parts += [] if self.wait_wall is None else [f"wait_wall={self.wait_wall}"]
        parts.append(f"remember={FOREVER if self.remember is None else self.remember}")
        parts += [] if self.release is Release.ORDERED else [f"release={self.release.value}"]
        return ", ".join(parts)


NAMED: Final[Mapping[str, Level]] = {
    "strong": Level(wait=None),
    "ultra": Level(wait=None, release=Release.FINAL),
    "middle": Level(),
    "weak": Level(remember=0),
}
"""Levels with a name: they wait for stables, wait until all is final, answer and correct, or
answer and forget."""
