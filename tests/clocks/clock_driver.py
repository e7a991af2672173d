"""What the tests of clocks share: random bounds, and rows fed to both forms of a clock."""

from collections.abc import Sequence

from hypothesis import strategies as st

from anabranch.clocks import Bounds, Clock, ClockState, Heartbeats, Pair, summarise
from anabranch.model.time import NEVER
from anabranch.testing.clocks import SentRow, instants

NAMES = ("a", "b", "c")


def pair_sets(*, rows: bool) -> st.SearchStrategy[list[Pair]]:
    timed = st.builds(Pair, st.integers(0, 6), st.integers(0, 6))
    counted = st.builds(Pair, st.integers(0, 3), st.integers(0, 6), st.just(True))
    return st.lists(st.one_of(timed, counted) if rows else timed, max_size=2)


@st.composite
def matrices(
    draw: st.DrawFn, *, rows: bool = False, meaning: str = "observed", latency: int = 4
) -> Bounds:
    names = NAMES[: draw(st.integers(1, 3))]
    pairs = {(one, to): draw(pair_sets(rows=rows)) for one in names for to in names}
    return Bounds.of(
        pairs,
        latency={name: draw(st.integers(0, latency)) for name in names},
        fifo={name: draw(st.booleans()) for name in names} if rows else False,
        meaning=meaning,
        sources=names,
    )


def rows(*given: tuple[str, int, int]):
    """The lines of rows (source, time, arrival)."""
    sources, times, arrivals = zip(*given, strict=True)
    return summarise(list(sources), times, arrivals)


def feed(state: ClockState, rows: Sequence[SentRow], now: int, **more: object):
    lines = summarise(
        [row.source for row in rows],
        [row.time for row in rows],
        [row.arrived for row in rows],
        resolution=state.clock.resolution,
        histogram=state.clock.needs_histogram,
    )
    beat = state.step(lines, now, **more)
    state.check()
    return beat


def by_reference(bounds: Bounds, rows: Sequence[SentRow], *, until: int = 40):
    """(now, heartbeats) at every instant, row by row."""
    clock = Heartbeats(bounds)
    last = 0
    for now, some in instants(rows):
        for row in some:
            clock.arrive(row.source, row.time, at=row.arrived)
        clock.advance(now)
        last = now
        yield now, clock.heartbeats
    for now in range(last + 1, last + until):
        clock.advance(now)
        yield now, clock.heartbeats


def by_columns(bounds: Bounds, rows: Sequence[SentRow], *, until: int = 40):
    """The same from summaries."""
    state = Clock(bounds).empty()
    last = 0
    for now, some in instants(rows):
        last = now
        yield now, shown(feed(state, some, now))
    for now in range(last + 1, last + until):
        yield now, shown(feed(state, [], now))


def shown(beat) -> dict[str, float]:
    return {name: NEVER if h is None else h for name, h in beat.heartbeats.items()}
