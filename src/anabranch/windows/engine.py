"""An engine as SECRET sees it: four dimensions, each with its source.

* `start`: where windows start (scope); `report`; `tick`.
* `windows`: `active` looks at one window at a time, as the paper does; `every` keeps all
  windows that hold a tuple, as Spark, Flink, Kafka Streams and Beam do (erratum D18).
* `progress`: how an engine of the second kind knows that time has passed, and what it does
  with tuples that come after that.  The first kind takes tuples in order and needs none.

With `every`, a window is `[start, start + size)`; it is closed when its end is not above the
frontier, which is the greatest time seen less `delay`, or the time of a stable.  A tuple is
taken into a window while `end + lateness` is above the frontier; a closed window that takes one
is reported again, late.

Papers: SECRET 3.2, Table 2; errata D18, D19 and the table of current engines.
"""

from dataclasses import dataclass, field, replace
from typing import Final, Literal

from anabranch.errors import UsageError
from anabranch.windows.report import Report
from anabranch.windows.scope import Start
from anabranch.windows.stream import whole
from anabranch.windows.tick import TICKS, Tick


@dataclass(frozen=True, slots=True)
class Progress:
    """How an engine knows that time has passed, and how long it still takes the late."""

    delay: int | None = 0
    """The frontier is the greatest time seen less this; None: only stables move it."""
    known: Literal["before", "after", "next"] = "after"
    """A tuple moves the frontier before it is judged itself (Kafka Streams), after that
    (Flink), or for the batches after its own (Spark)."""
    lateness: int | None = 0
    """How long after its end a window takes tuples; None: for ever."""
    late_at_limit: bool = False
    """Whether a tuple is still taken when `end + lateness` is exactly the frontier (Beam)."""
    idle_batches: bool = True
    """With `next`: whether a batch without data follows, so that closes are seen (Spark)."""
    keeps: Literal["accumulating", "discarding"] = "accumulating"
    """Whether a repeated report of a window has all its tuples or only the new ones."""
    latest_first: bool = False
    """Whether windows that one late tuple changes are reported from the last to the first."""
    starts: int | None = field(default=None, repr=False)
    """The frontier before anything came; None: there is none yet.  Spark's is 0, which is 1970:
    what was before is late.  Not shown: a state that was kept is beyond it."""

    def __post_init__(self) -> None:
        for name, value in (("delay", self.delay), ("lateness", self.lateness)):
            if value is not None:
                whole(value, name, 0)
        if self.starts is not None:
            whole(self.starts, "starts")
        if self.known not in {"before", "after", "next"}:
            message = f"known is {self.known!r}; expected before, after or next"
            raise UsageError(message)
        if self.keeps not in {"accumulating", "discarding"}:
            message = f"keeps is {self.keeps!r}; expected accumulating or discarding"
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a parameter of an engine comes from, and how sure that is."""

    parameter: str
    where: str
    kind: Literal["paper", "documentation", "run", "inference"]


OPTIONS: Final = ("delay", "lateness", "offset", "keeps", "idle_batches")
"""What `with_options` can set on some engine."""


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine, or one mode of it."""

    name: str
    start: Start
    report: Report
    tick: Tick
    windows: Literal["active", "every"] = "active"
    progress: Progress | None = None
    gaps: bool = True
    """Whether it takes a slide above the size."""
    sources: tuple[Source, ...] = ()
    options: tuple[str, ...] = OPTIONS
    """Which settings its users have."""

    def __post_init__(self) -> None:
        if self.tick not in TICKS:
            message = f"engine {self.name}: tick is {self.tick!r}; expected {', '.join(TICKS)}"
            raise UsageError(message)
        if self.windows not in {"active", "every"}:
            message = (
                f"engine {self.name}: windows is {self.windows!r}; expected active or every"
            )
            raise UsageError(message)
        if self.windows == "every":
            self._check_every()

    def _check_every(self) -> None:
        if self.progress is None:
            message = f"engine {self.name} keeps every window: it needs progress=Progress(...)"
            raise UsageError(message)
        if not self.report.non_empty or self.report.period not in {None, 1}:
            message = (
                f"engine {self.name} keeps every window: its report must be non_empty, "
                "and without a period"
            )
            raise UsageError(message)
        if self.tick == "time":
            message = f"engine {self.name} keeps every window: its tick is tuple or batch"
            raise UsageError(message)
        if self.progress.known == "next" and self.tick != "batch":
            message = f"engine {self.name}: a frontier for the next batch needs tick='batch'"
            raise UsageError(message)

    def with_options(
        self,
        *,
        delay: int | None = None,
        lateness: int | None = None,
        offset: int | None = None,
        keeps: Literal["accumulating", "discarding"] | None = None,
        idle_batches: bool | None = None,
    ) -> "Engine":
        """The same engine with other settings, which its name shows; None keeps one."""
        settings: dict[str, object] = {
            name: value
            for name, value in (
                ("delay", delay),
                ("lateness", lateness),
                ("keeps", keeps),
                ("idle_batches", idle_batches),
            )
            if value is not None
        }
        self._require_options([*settings, *(["offset"] if offset is not None else [])])
        progress = self.progress
        if settings and progress is not None:
            progress = replace(progress, **settings)  # type: ignore[arg-type]
        start = self.start
        if offset is not None:
            start, settings = replace(start, offset=offset), {**settings, "offset": offset}
        named = [f"{name} {value}" for name, value in settings.items()]
        return replace(
            self, name=", ".join([self.name, *named]), progress=progress, start=start
        )

    def _require_options(self, names: list[str]) -> None:
        lacking = [
            name
            for name in names
            if name not in self.options or (self.progress is None and name != "offset")
        ]
        if not lacking:
            return
        why = "it has no settings"
        if self.progress is None:
            why = "it takes tuples in order and shows one window at a time"
        elif self.options:
            why = f"its settings are {', '.join(self.options)}"
        message = f"{self.name} has no {' or '.join(lacking)}: {why}"
        raise UsageError(message)

    def without_source_delay(self) -> "Engine":
        """The same engine, but only stables move its frontier (a watermark set by hand)."""
        if self.progress is None:
            message = f"{self.name} has no frontier: it takes tuples in order"
            raise UsageError(message)
        progress = replace(self.progress, delay=None, starts=None)
        return replace(self, name=f"{self.name}, frontier by stables", progress=progress)
