"""A window query that is fed piece by piece: `predict`, without the whole stream.

    machine = Machine(engine, query)
    shown = machine.feed(items)          # what these arrivals made visible, and what was late
    machine = Machine.from_bytes(machine.to_bytes(), engine, query)

The law: fed in any cuts, saved and loaded between any two of them, it shows what `predict`
shows for the whole, with the same windows, instants and steps.  It keeps only what may still
matter: open tuples (one window at a time) or one sum per open window (every window); its
results have the number of tuples, not their names.

* A batch ends with the piece it is in, unless `more=True`: it may continue then: engines that
  take batch by batch then wait for its end.
* Engines that look at one window at a time need tuples in order.  One that is earlier than what
  was there before is not taken and is returned as `Late`; a stable that goes back has no
  effect.
* Tuples that an engine drops by its own rules, or that are in no window, are `Late` too.

The state is JSON, versioned, and has the engine and the query; another is rejected.

>>> from anabranch.windows.profiles.known import engine
>>> machine = Machine(engine("streambase"), Query(5, 5, "sum"))
>>> machine.feed([Arrival(1, 10), Arrival(3, 20)])
Fed(shown=(), late=())
>>> machine.feed([Arrival(6, 40)]).shown[0].value
30
"""

import json
from collections.abc import Iterable
from typing import Any, Final

from anabranch.errors import StateError, UsageError
from anabranch.model import Stable
from anabranch.windows.aggregate import aggregate
from anabranch.windows.engine import Engine
from anabranch.windows.machine.active import ActiveMachine
from anabranch.windows.machine.every import EveryMachine
from anabranch.windows.machine.reported import Fed, Late, Reported
from anabranch.windows.predict import require_fit
from anabranch.windows.stream import Arrival
from anabranch.windows.trace import Query

__all__ = ["Arrival", "Fed", "Late", "Machine", "Reported"]

VERSION: Final = 1


class Machine:
    """One window query at work; see the module."""

    def __init__(self, engine: Engine, query: Query) -> None:
        aggregate(query.agg)
        require_fit(engine, query)
        if query.by != "time":
            message = (
                f"a machine has windows of time, this query has by={query.by!r}; for windows "
                "of arrival give the time of arrival as the time"
            )
            raise UsageError(message)
        self.engine, self.query = engine, query
        self._inner: ActiveMachine | EveryMachine = (
            EveryMachine(engine, query)
            if engine.windows == "every"
            else ActiveMachine(engine, query)
        )

    def feed(self, items: Iterable[Arrival | Stable], *, more: bool = False) -> Fed:
        """Take these arrivals; `batch` numbers the batches; without it each tuple is one."""
        return self._inner.feed(items, more=more)

    @property
    def steps(self) -> int:
        """How many steps there were: arrivals that were taken, or batches of them."""
        return self._inner.steps

    @property
    def last_batch(self) -> int | None:
        """What the last batch was called; None if there was none."""
        return self._inner.batches.given

    def to_bytes(self) -> bytes:
        """All that it remembers."""
        state = {"version": VERSION, "of": self._identity(), **self._inner.to_state()}
        return json.dumps(state, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, kept: bytes, engine: Engine, query: Query) -> "Machine":
        """The machine that was saved, for the same engine and query."""
        state: dict[str, Any] = json.loads(kept)
        if state.get("version") != VERSION:
            message = (
                f"this window state has version {state.get('version')!r}, this program reads "
                f"version {VERSION}; start with a new checkpoint"
            )
            raise StateError(message)
        machine = cls(engine, query)
        if state["of"] != machine._identity():
            message = (
                f"this window state is of {state['of']}, the query is {machine._identity()}; "
                "start with a new checkpoint, or run the query it was made by"
            )
            raise StateError(message)
        machine._inner.from_state(state)
        return machine

    def _identity(self) -> str:
        engine, query = self.engine, self.query
        dimensions = (engine.start, str(engine.report), engine.tick, engine.progress)
        return (
            f"{query.agg} over {query.size} by {query.slide}, "
            f"{', '.join(str(one) for one in dimensions)}"
        )
