"""R3-, the baseline of the benchmarks: it emits what R3 emits, and pays for every replica."""

from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, cuts, judge_prefix, runs
from merging.separate import SeparateState, step

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Arrival, Bucket, Reason
from anabranch.operators.reference.r3 import MergeR3
from anabranch.testing.cases import load_cases
from anabranch.testing.strategies import conflicting_arrivals, interleavings, replicas

CASES = load_cases(Path(__file__).parents[1] / "cases" / "merge_r3.case")


class Kernel:
    def __init__(self):
        self.state, self.output, self.refused = SeparateState.empty(SCHEMA), [], 0

    def step(self, arrived):
        result = step(self.state, [Arrival(name, batch_of(some)) for name, some in arrived])
        self.state.check()
        self.output += to_elements(result.output)
        self.refused += result.refused


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_pictures_of_r3_are_those_of_r3_separate(case):
    kernel, output = Kernel(), []
    for arrived, expected in case.steps():
        output += expected
        grouped = groupby(arrived, key=lambda one: one[0])
        kernel.step([(name, [e for _, e in some]) for name, some in grouped])
        assert replay(kernel.output) == replay(output), case.description


@given(st.data())
def test_kernel_equals_r3_after_every_element(data):
    streams = data.draw(replicas())
    merge, kernel = MergeR3(), Kernel()
    for number, element in data.draw(interleavings(streams)):
        expected, before = merge.push(f"r{number}", element).output, len(kernel.output)
        kernel.step([(f"r{number}", [element])])
        emitted = kernel.output[before:]
        # The kernel promises the net change of a step: its adjusts may come in any order (an
        # empty insert that names an event early changes it), its stable comes last.
        assert Counter(emitted) == Counter(expected)
        assert [e for e in emitted[:-1] if isinstance(e, Stable)] == []
    assert kernel.state.live == 0


def test_an_empty_insert_that_names_an_event_early_changes_no_element():
    story = parse(
        "insert c 5..5; insert a 4..forever; adjust a 4..forever->5; insert c 5..6; "
        "adjust c 5..6->7; stable forever"
    )
    merge, kernel = MergeR3(), Kernel()
    expected = [out for element in story for out in merge.push("r0", element).output]
    for element in story:
        kernel.step([("r0", [element])])
    assert Counter(kernel.output) == Counter(expected)
    assert kernel.output[-1] == expected[-1] == Stable(FOREVER)


@given(st.data())
def test_kernel_refuses_what_r3_refuses_and_stays_valid(data):
    merge, kernel, wrong = MergeR3(), Kernel(), 0
    for number, element in data.draw(conflicting_arrivals()):
        reason = merge.push(f"r{number}", element).reason
        wrong += reason.bucket in (Bucket.VIOLATION, Bucket.LATE) or reason is Reason.SETTLED
        kernel.step([(f"r{number}", [element])])
        assert kernel.refused == wrong
        assert replay(kernel.output).violations == ()
        assert replay(kernel.output).history == History.of(merge_output(merge, kernel))


def merge_output(merge, kernel):
    """The live part of both is compared; the final part is in the kernel's output."""
    live = {(i.start, i.payload): node.output_end for i, node in merge.nodes.items()}
    output = kernel.state.output
    rows = np.flatnonzero(output.end != np.iinfo(np.int64).min)
    ends = [FOREVER if e == np.iinfo(np.int64).max else e for e in output.end[rows].tolist()]
    names = output.interner.take(rows).column(0).to_pylist()
    starts = output.interner.start[rows].tolist()
    assert dict(zip(zip(starts, names, strict=True), ends, strict=True)) == live
    return kernel.output


@given(st.data())
def test_kernel_any_cut_is_compatible_and_equivalent_at_the_end(data):
    streams = data.draw(replicas())
    arrived, kernel = data.draw(interleavings(streams)), Kernel()
    for begin, end in pairwise([0, *data.draw(cuts(len(arrived)))]):
        kernel.step(runs(arrived[begin:end]))
        if end:
            judge_prefix(kernel.output, arrived[:end], len(streams))
    assert History.of(kernel.output) == History.of(streams[0])


def test_an_element_that_comes_again_is_refused_by_its_seq():
    state = SeparateState.empty(SCHEMA)
    elements = parse("insert a 1..3; insert a 1..3; stable 2")
    result = step(state, [Arrival("x", batch_of(elements, seq=[4, 4, 5]))])
    assert (result.refused, len(result.output)) == (1, 2)


def test_memory_grows_with_the_replicas():
    sizes = {}
    for count in (2, 10):
        state = SeparateState.empty(SCHEMA)
        live = [Insert(f"{n:1000d}", n, n + 10_000) for n in range(200)]
        step(state, [Arrival(f"r{number}", batch_of(live)) for number in range(count)])
        sizes[count] = state.nbytes
    assert 3.5 < sizes[10] / sizes[2] < 3.8


def test_final_events_leave_every_index():
    kernel = Kernel()
    for time in range(0, 10_000, 100):
        some = [*(Insert(f"p{n}", time + n, time + n + 50) for n in range(100)), Stable(time)]
        kernel.step([("r0", some), ("r1", some)])
    held = [kernel.state.output, *(s.index for s in kernel.state.sources.values())]
    assert kernel.state.live < 300
    assert all(len(index.interner) < 2_000 for index in held)
    kernel.step([])
    assert kernel.state.live < 300


def test_without_payload_columns_a_start_is_an_identity():
    schema = ElementSchema(TimeType.BIGINT, pa.schema({}))
    state = SeparateState.empty(schema)
    elements = [Insert((), 1, 3), Insert((), 2, 3), Stable(2)]
    result = step(state, [Arrival("x", from_elements(elements, schema))])
    assert to_elements(result.output) == elements
