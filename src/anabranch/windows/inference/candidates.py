"""The engines that `infer` considers: every setting of a `Space`, first coarse, then fine.

An engine is a point in SECRET's dimensions, and there are too many points to try each on each
probe.  Most settings that deal with late tuples cannot be seen as long as none is late, so
there are two lists:

* `coarse`: one engine for all that behave alike while tuples come in order and each batch has
  one time (a law in the tests);
* `fine`: all engines that such a one stands for.

Settings that mean nothing beside others are left at their defaults: a frontier for engines
that look at one window at a time, `idle_batches` without `known="next"`, `late_at_limit` with
a lateness for ever, `latest_first` without window close.  An engine that keeps every window
and has no condition but non-empty is considered only with a lateness for ever: Spark's
complete mode.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any, Final, Literal

from anabranch.errors import UsageError
from anabranch.windows.engine import Engine, Progress
from anabranch.windows.profiles.known import ENGINES
from anabranch.windows.report import Report
from anabranch.windows.scope import Start
from anabranch.windows.stream import whole
from anabranch.windows.tick import TICKS, Tick

NAME: Final = "inferred"
_FLAGS: Final = (False, True)


@dataclass(frozen=True, slots=True)
class Space:
    """The values to consider in each dimension that is a number; all others are tried whole."""

    windows: tuple[Literal["active", "every"], ...] = ("active", "every")
    offsets: tuple[int, ...] = (0, 1, 2)
    """Of the grid, or the fixed t0."""
    periods: tuple[int, ...] = (1, 2, 3)
    """Of the report; 1 asks for nothing."""
    delays: tuple[int, ...] = (0, 2, 5)
    latenesses: tuple[int | None, ...] = (0, 2, None)

    def __post_init__(self) -> None:
        for name in ("windows", "offsets", "periods", "delays", "latenesses"):
            if not getattr(self, name):
                message = f"space: {name} is empty; give at least one value"
                raise UsageError(message)
        if unknown := set(self.windows) - {"active", "every"}:
            message = f"space: windows has {unknown.pop()!r}; expected active, every"
            raise UsageError(message)
        for offset in self.offsets:
            whole(offset, "an offset of the space")
        for period in self.periods:
            whole(period, "a period of the space", 1)
        for value in (*self.delays, *self.latenesses):
            if value is not None:
                whole(value, "a delay or lateness of the space", 0)

    def starts(self, windows: str) -> Iterator[Start]:
        """Where windows may start."""
        yield Start("first", "backward")
        yield Start("first", "forward")
        for offset in self.offsets:
            yield Start("fixed", offset=offset)
            for direction, other in product(("forward", "backward"), _FLAGS):
                if windows == "active":
                    # A leading empty window is all that `lead` adds.
                    yield Start("grid", direction, offset, lead=other)  # type: ignore[arg-type]
                else:
                    earliest = 0 if other else None
                    yield Start("grid", direction, offset, earliest=earliest)  # type: ignore[arg-type]

    def coarse(self, by: str = "time") -> list[Engine]:
        """One engine for each behaviour on tuples in order, in batches of one time."""
        found: list[Engine] = []
        if "active" in self.windows:
            found += self._active(by)
        if "every" in self.windows and by != "rows":
            found += self._every()
        return found

    def _active(self, by: str) -> Iterator[Engine]:
        # Windows of tuples start at the first one, whatever the rule for time.
        starts = list(self.starts("active"))[: 2 if by == "rows" else None]
        reports = [
            Report(change, close, filled, None if period == 1 else period)
            for change, close, filled, period in product(_FLAGS, _FLAGS, _FLAGS, self.periods)
        ]
        for start, report, tick in product(starts, reports, TICKS):
            yield Engine(NAME, start, report, tick)

    def _every(self) -> Iterator[Engine]:
        ticks: tuple[Tick, ...] = ("tuple", "batch")
        for start in self.starts("every"):
            for known, delay in product(_known(), self.delays):
                yield from self._final(start, known, delay)
            for tick, keeps in product(ticks, ("accumulating", "discarding")):
                progress = Progress(keeps=keeps, lateness=0)  # type: ignore[arg-type]
                yield _kept(start, Report(content_change=True, non_empty=True), tick, progress)
                if None in self.latenesses:
                    whole_table = replace(progress, lateness=None)
                    yield _kept(start, Report(non_empty=True), tick, whole_table)

    def _final(self, start: Start, known: "_Known", delay: int) -> Iterator[Engine]:
        """Engines that report at window close."""
        report = Report(window_close=True, non_empty=True)
        tick, moves, idle = known
        # With no state to expire, Spark runs no empty batch: that shows without late tuples.
        shows = moves == "next" and idle
        for lateness in (0, None) if shows and None in self.latenesses else (0,):
            progress = Progress(
                delay, moves, lateness, idle_batches=idle, starts=_starts(moves)
            )
            yield _kept(start, report, tick, progress)

    def fine(self, engine: Engine) -> Iterator[Engine]:
        """All engines of this space that the coarse one stands for, itself perhaps included."""
        if engine.progress is None:
            yield engine
        elif engine.report.window_close:
            yield from self._fine_final(engine, engine.progress)
        else:
            yield from self._fine_changes(engine, engine.progress)

    def _fine_final(self, engine: Engine, progress: Progress) -> Iterator[Engine]:
        shows = progress.known == "next" and progress.idle_batches
        for lateness in self.latenesses:
            if shows and (lateness is None) != (progress.lateness is None):
                continue
            for keeps, limit, latest, change in product(
                ("accumulating", "discarding"),
                _FLAGS if lateness is not None else (False,),
                _FLAGS,
                _FLAGS,
            ):
                late = replace(
                    progress,
                    lateness=lateness,
                    keeps=keeps,  # type: ignore[arg-type]
                    late_at_limit=limit,
                    latest_first=latest,
                )
                report = replace(engine.report, content_change=change)
                yield replace(engine, report=report, progress=late)

    def _fine_changes(self, engine: Engine, progress: Progress) -> Iterator[Engine]:
        latenesses = self.latenesses if engine.report.content_change else (None,)
        for (tick, moves, idle), delay, lateness in product(_known(), self.delays, latenesses):
            if tick != engine.tick:
                continue
            for limit in _FLAGS if lateness is not None else (False,):
                late = Progress(
                    delay, moves, lateness, limit, idle, progress.keeps, starts=_starts(moves)
                )
                yield replace(engine, progress=late)


_Known = tuple[Tick, Literal["before", "after", "next"], bool]


def _known() -> tuple[_Known, ...]:
    """How the frontier can be known, with the ticks that allow it."""
    return (
        ("tuple", "before", True),
        ("tuple", "after", True),
        ("batch", "before", True),
        ("batch", "after", True),
        ("batch", "next", True),
        ("batch", "next", False),
    )


def _starts(moves: str) -> int | None:
    """The one engine that we know to wait for the next batch has a clock from 0 on."""
    return 0 if moves == "next" else None


def _kept(start: Start, report: Report, tick: Tick, progress: Progress) -> Engine:
    return Engine(NAME, start, report, tick, "every", progress)


def settings(engine: Engine) -> dict[str, Any]:
    """The settings of an engine by name, one level deep; the name and sources left out.

    `-` where there is no frontier.

    >>> from anabranch.windows.profiles.known import engine as named
    >>> settings(named("stream"))["start.direction"]
    'backward'
    """
    found: dict[str, Any] = {"windows": engine.windows}
    for part in ("start", "report"):
        value = getattr(engine, part)
        found |= {f"{part}.{one.name}": getattr(value, one.name) for one in fields(value)}
    found["report.period"] = engine.report.period or 1
    found["tick"] = engine.tick
    for one in fields(Progress):
        if one.name == "starts":
            continue  # it follows from `known`; no probe is before 0
        value = "-" if engine.progress is None else getattr(engine.progress, one.name)
        found[f"progress.{one.name}"] = value
    return found


PARAMETERS: Final = tuple(settings(next(iter(ENGINES.values()))))


def _may_be(profile: Engine, engine: Engine) -> bool:
    """Whether they agree in what no option sets; cheap, since thousands are compared."""
    ours, theirs = profile.report, engine.report
    return (
        profile.windows == engine.windows
        and profile.tick == engine.tick
        and ours.content_change == theirs.content_change
        and ours.window_close == theirs.window_close
    )


def profiles_like(engine: Engine) -> Iterator[str]:
    """Names of the known engines that have these settings, their own options set so."""
    wanted = settings(engine)
    for name, profile in ENGINES.items():
        if not _may_be(profile, engine):
            continue
        progress = profile.progress
        if progress is not None and engine.progress is not None:
            if (progress.delay is None) != (engine.progress.delay is None):
                continue  # stables alone are another way to know the time, not another number
            has_lateness = "lateness" in profile.options
            progress = replace(
                progress,
                delay=engine.progress.delay,
                lateness=engine.progress.lateness if has_lateness else progress.lateness,
                idle_batches=engine.progress.idle_batches,
            )
        start = profile.start
        if "offset" in profile.options:
            start = replace(start, offset=engine.start.offset)
        if settings(replace(profile, start=start, progress=progress)) == wanted:
            yield name
