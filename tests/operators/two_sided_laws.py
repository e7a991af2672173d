"""Streams of two sides, and the laws of operators that trust what they read.

`judge(left, right)` is what the output's history must be; of one input, `right` is empty.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import pyarrow as pa
from hypothesis import strategies as st

from anabranch import testing
from anabranch.model.element import Element, Stable
from anabranch.model.history import History, replay
from anabranch.model.properties import MergeCase
from anabranch.model.time import NEVER
from anabranch.testing.strategies import histories, presentations

COLUMNS = pa.schema({"k": pa.string(), "v": pa.int64()})
PAYLOADS = st.tuples(st.sampled_from(["a", "a", "b", None]), st.integers(0, 1))
Judge = Callable[[History, History], History]
Arrived = list[tuple[str, Element]]


@st.composite
def sides(draw, names: Sequence[str]) -> Arrived:
    """Valid streams of bags, one for each name, interleaved; they stop anywhere."""
    streams = {}
    for name in names:
        truth = draw(histories(case=MergeCase.R4, max_events=6, max_time=9, payloads=PAYLOADS))
        streams[name] = draw(
            presentations(truth, case=MergeCase.R4, payloads=PAYLOADS, truncated=True)
        )
    order = draw(st.permutations([name for name in names for _ in streams[name]]))
    left = {name: iter(stream) for name, stream in streams.items()}
    return [(name, next(left[name])) for name in order]


def any_cut_any_restart(
    operator: str, data: st.DataObject, judge: Judge, names: Sequence[str], **options
) -> None:
    """However the inputs are cut: reference and kernel have the history of the model."""
    arrived = data.draw(sides(names))
    ends = [
        *sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=6))),
        len(arrived),
    ]
    engines = [
        testing.engine(name, operator, payload=COLUMNS, **options)
        for name in ("reference", "kernel")
    ]
    for begin, end in pairwise([0, *ends]):
        again = data.draw(st.booleans())
        past = [[e for who, e in arrived[:end] if who == name] for name in names]
        wanted = judge(*(History.of(stream) for stream in past))
        frontier = min(frontier_of(stream) for stream in past)
        for engine in engines:
            for name, element in arrived[begin:end]:
                engine.push(name, [element])
            engine.restart() if again else engine.cut()
            seen = replay(engine.output)
            assert seen.violations == ()
            assert (seen.history, seen.frontier) == (wanted, frontier)


def frontier_of(stream: Sequence[Element]):
    return max((e.time for e in stream if isinstance(e, Stable)), default=NEVER)


def emits_the_fewest_elements(
    operator: str, data: st.DataObject, names: Sequence[str], **options
) -> None:
    """Element by element the kernel emits what the reference emits, but for the order."""
    reference, kernel = (
        testing.engine(name, operator, payload=COLUMNS, **options)
        for name in ("reference", "kernel")
    )
    for name, element in data.draw(sides(names)):
        for engine in (reference, kernel):
            engine.push(name, [element])
        wanted, emitted = reference.cut(), kernel.cut()
        assert sorted(map(repr, emitted)) == sorted(map(repr, wanted))


def forgets_all(operator: str, data: st.DataObject, names: Sequence[str], **options) -> None:
    """When all frontiers are beyond all ends, nothing is left."""
    arrived = data.draw(sides(names))
    for name in ("reference", "kernel"):
        engine = testing.engine(name, operator, payload=COLUMNS, **options)
        for who, element in arrived:
            engine.push(who, [element])
            engine.cut()
        for stable in (50, float("inf")):
            open_ends = [
                e
                for who in names
                for e in History.of([x for w, x in arrived if w == who])
                if e.end > stable
            ]
            for who in names:
                engine.push(who, [Stable(stable)])
                engine.cut()
            assert engine.counts["live"] == 0 or (open_ends and stable == 50)
