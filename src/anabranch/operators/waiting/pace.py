"""How far an operator goes by the greatest start that the whole query has seen.

`wait` is application time: the limit is the greatest start less `wait`.  `wait_wall` is time by
the wall clock: the limit is the greatest start that the query had seen that long ago, so that
every row is over it once that time has passed.  The limit never falls, and is the same in all
lanes, since all lanes are given the same `Reached`.  No clock is read here.

Papers: CEDR *operators*, 4.5: `outputtime()`, which may be of application time or of system
time, and never falls.

>>> pace = Pace(wait=5)
>>> pace.take([Reached(20)])
>>> pace.limit
15
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.batch.batch import NEVER_UNITS
from anabranch.operators.contract import ControlEntry, NewSettings, Reached
from anabranch.operators.waiting.level import Level


@dataclass(eq=False)
class Pace:
    """What is kept of `Reached`: the greatest start, and by when it was which one.

    `known` are pairs (time, greatest start at that time) whose wait is not over.  A new level
    of the query brings another wait; if it `forgets`, that is what the level remembers.
    """

    wait: int | None = None
    wait_wall: int | None = None
    forgets: bool = False
    greatest: int = int(NEVER_UNITS)
    limit: int = int(NEVER_UNITS)
    known: list[tuple[int, int]] = field(default_factory=list)

    def take(self, control: Iterable[ControlEntry]) -> None:
        """Apply what the host handed in."""
        for one in control:
            if isinstance(one, NewSettings):
                self._follow(Level.parse(one.settings))
            if isinstance(one, Reached):
                self._reached(one)

    def _follow(self, level: Level) -> None:
        """Go by another level; the limit stays where it is until that passes it."""
        self.wait = level.remember if self.forgets else level.wait
        self.wait_wall = None if self.forgets else level.wait_wall
        self.known = self.known if self.wait_wall is not None else []

    def _reached(self, one: Reached) -> None:
        has_grown = one.start > self.greatest
        self.greatest = max(self.greatest, one.start)
        if self.greatest == NEVER_UNITS:
            return
        if self.wait is not None:
            self.limit = max(self.limit, self.greatest - self.wait)
        if self.wait_wall is None or one.time is None:
            return
        if has_grown:
            self.known.append((one.time, self.greatest))
        until = one.time - self.wait_wall
        self.limit = max([self.limit, *(start for time, start in self.known if time <= until)])
        self.known = [pair for pair in self.known if pair[0] > until]

    @property
    def due(self) -> int | None:
        """The time by the wall clock at which the limit moves; None: it waits for rows."""
        if self.wait_wall is None or not self.known:
            return None
        return self.known[0][0] + self.wait_wall

    def to_text(self) -> str:
        """As it is saved."""
        settings = [self.wait, self.wait_wall]
        return json.dumps([self.greatest, self.limit, self.known, *settings])

    def read(self, text: str) -> None:
        """As it was saved; the waits are those of the level that was in force."""
        self.greatest, self.limit, known, self.wait, self.wait_wall = json.loads(text)
        self.known = [(time, start) for time, start in known]
