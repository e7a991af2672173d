"""Late tuples, judged by each engine's own rules, written in that engine's own terms.

The model has one frontier for all; Flink has a watermark that is one below it, Kafka Streams a
stream time and a close time, Spark two watermarks per micro-batch, Beam panes.  Each function
here is one engine alone, tuple by tuple.
"""

from collections.abc import Callable
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.windows import Arrival, engine, predict

Shown = list[tuple[int, tuple[int, ...]]]
NONE = -(10**9)

TUPLES = st.lists(
    st.tuples(st.integers(-6, 20), st.booleans()), min_size=1, max_size=14
)  # time, and whether a new batch begins


@st.composite
def queries(draw: st.DrawFn) -> tuple[int, int]:
    size = draw(st.integers(1, 7))
    return size, draw(st.integers(1, size))


def batched(drawn: list[tuple[int, bool]]) -> list[Arrival]:
    batch, found = 0, []
    for number, (time, new) in enumerate(drawn, start=1):
        batch += new
        found.append(Arrival(time, number, batch=batch))
    return found


def starts(time: int, size: int, slide: int) -> list[int]:
    return [s for s in range(-70, time + 1) if s % slide == 0 and s <= time < s + size]


def flink(tuples: list[Arrival], size: int, slide: int, bound: int, lateness: int) -> Shown:
    watermark, state, shown = NONE, {}, []
    for one in tuples:
        for start in reversed(starts(one.time, size, slide)):
            last = start + size - 1
            if last + lateness <= watermark:
                continue
            state.setdefault(start, []).append(one.value)
            if last <= watermark:
                shown.append((start, tuple(state[start])))
        new = max(watermark, one.time - bound - 1)
        due = [start for start in sorted(state) if watermark < start + size - 1 <= new]
        shown += [(start, tuple(state[start])) for start in due]
        watermark = new
    return shown


def kafka(tuples: list[Arrival], size: int, slide: int, grace: int, lateness: int) -> Shown:
    stream_time, state, shown = NONE, {}, []
    for one in tuples:
        stream_time = max(stream_time, one.time)
        close_time = stream_time - grace
        for start in starts(one.time, size, slide):
            if start >= 0 and start + size > close_time:
                state.setdefault(start, []).append(one.value)
                shown.append((start, tuple(state[start])))
    return shown


def suppressed(
    tuples: list[Arrival], size: int, slide: int, grace: int, lateness: int
) -> Shown:
    stream_time, buffer, shown = NONE, {}, []
    for one in tuples:
        stream_time = max(stream_time, one.time)
        for start in starts(one.time, size, slide):
            if start >= 0 and start + size > stream_time - grace:
                buffer.setdefault(start, []).append(one.value)
        due = [start for start in sorted(buffer) if start + size <= stream_time - grace]
        shown += [(start, tuple(buffer.pop(start))) for start in due]
    return shown


def micro_batches(tuples: list[Arrival]) -> list[list[Arrival]]:
    return [list(batch) for _, batch in groupby(tuples, key=lambda one: one.batch)]


def spark(mode: str, *, backlog: bool) -> Callable[..., Shown]:
    def run(tuples: list[Arrival], size: int, slide: int, delay: int, lateness: int) -> Shown:
        late, evict, state, shown = 0, 0, {}, []  # watermarks start in 1970
        queue: list[list[Arrival]] = micro_batches(tuples)
        seen = NONE
        while queue:
            batch = queue.pop(0)
            changed = {}
            for one in batch:
                for start in starts(one.time, size, slide):
                    if start + size > late:
                        state.setdefault(start, []).append(one.value)
                        changed[start] = True
            if mode == "update":
                shown += [(start, tuple(state[start])) for start in sorted(changed)]
            for start in sorted(state):
                if start + size <= evict:
                    if mode == "append":
                        shown.append((start, tuple(state[start])))
                    del state[start]
            seen = max([seen, *(one.time for one in batch)])
            late, moved = evict, max(evict, seen - delay)
            # The end of the input is idle also for a query that was behind until then,
            # but nothing here waits for that: both stop with the last batch of data.
            if moved > evict and batch and not backlog:
                queue.insert(0, [])
            evict = moved
        return shown

    return run


def beam(tuples: list[Arrival], size: int, slide: int, delay: int, lateness: int) -> Shown:
    watermark, state, closed, shown = NONE, {}, set(), []
    for bundle in micro_batches(tuples):
        touched = set()
        for one in bundle:
            for start in starts(one.time, size, slide):
                if start + size + lateness >= watermark:
                    state.setdefault(start, []).append(one.value)
                    touched.add(start)
        late = [start for start in sorted(touched) if start + size <= watermark]
        shown += [(start, tuple(state[start])) for start in late]
        closed |= set(late)
        watermark = max([watermark, *(one.time - delay for one in bundle)])
        for start in sorted(set(state) - closed):
            if start + size <= watermark:
                shown.append((start, tuple(state[start])))
                closed.add(start)
    return shown


NATIVE = {
    "flink": (flink, {}),
    "kafka-streams": (kafka, {}),
    "kafka-streams-suppress": (suppressed, {}),
    "spark-append": (spark("append", backlog=False), {}),
    "spark-update": (spark("update", backlog=False), {}),
    "spark-append, backlog": (spark("append", backlog=True), {"idle_batches": False}),
    "spark-update, backlog": (spark("update", backlog=True), {"idle_batches": False}),
    "beam": (beam, {}),
}
WITH_LATENESS = {"flink", "beam"}


@pytest.mark.parametrize("name", NATIVE)
@given(drawn=TUPLES, query=queries(), delay=st.integers(0, 5), lateness=st.integers(0, 5))
def test_the_model_is_the_engine_in_its_own_words(
    name: str, drawn: list[tuple[int, bool]], query: tuple[int, int], delay: int, lateness: int
) -> None:
    native, settings = NATIVE[name]
    tuples = batched(drawn)
    late = lateness if name in WITH_LATENESS else None
    system = engine(name.partition(",")[0], delay=delay, lateness=late, **settings)
    found = predict(system, *query, tuples, "collect").results
    expected = native(tuples, *query, delay, lateness)
    assert [(one.start, one.content) for one in found] == expected
