"""Operations per element of the merges R0, R1 and R2, free of noise: O(1), as in Table IV."""

import numpy as np
import pyarrow as pa
import pytest
from merge_driver import SCHEMA

from anabranch.batch.batch import INSERT, Batch
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.ordered_state import CASES, OrderedState


def inserts(start, numbers):
    """Inserts with these starts and payloads."""
    zeros, payload = np.zeros(len(start), np.int64), [f"p{n}" for n in numbers]
    kind = np.full(len(start), INSERT, np.int8)
    return Batch(SCHEMA, kind, start, start + 10, zeros, pa.table({"p": payload}))


def run(case, *, elements, replicas, group, size):
    """Replicas in lockstep: steps of `size` elements of each, `group` of them per start."""
    state = OrderedState.empty(case, SCHEMA)
    total = {"visits": 0, "probes": 0, "compares": 0}
    for begin in range(0, elements, size):
        rows = np.arange(begin, begin + size)
        batch = inserts(rows // group, rows)
        arrivals = [Arrival(f"r{i}", batch) for i in range(replicas)]
        counts = state.step(arrivals).counts
        total = {name: total[name] + counts[name] for name in total}
    state.check()
    assert state.counts == total
    return {name: count / (elements * replicas) for name, count in total.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.value)
@pytest.mark.parametrize("replicas", [1, 2, 8])
@pytest.mark.parametrize("elements", [64, 4096])
def test_operations_per_element_are_bounded_whatever_the_size(case, replicas, elements):
    groups = (1,) if case is MergeCase.R0 else (1, 8, elements)
    for group in groups:
        per = run(case, elements=elements, replicas=replicas, group=group, size=32)
        assert per["visits"] == 1
        # The last start of a step that has several is looked up again, to be remembered alone.
        assert per["probes"] <= (2 if 1 < group < elements else 1)
        assert per["compares"] <= per["probes"] + (case is MergeCase.R0)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.value)
def test_payloads_alone_at_their_start_are_not_looked_up(case):
    per = run(case, elements=4096, replicas=1, group=1, size=1024)
    # Only the last of each step is looked up, since the next step may bring its copies.
    assert per["probes"] <= 4 / 4096
    assert per["compares"] == 0


def test_a_large_group_costs_no_more_than_its_elements():
    """The group of one start, over many steps: no step looks at all of it."""
    for case in (MergeCase.R1, MergeCase.R2):
        small = run(case, elements=128, replicas=2, group=128, size=16)
        large = run(case, elements=8192, replicas=2, group=8192, size=16)
        assert large == small == {"visits": 1, "probes": 1, "compares": 0.5}


def test_what_was_held_is_looked_at_twice():
    state = OrderedState.empty(MergeCase.R0, SCHEMA)
    state.add_replica("late", guarantee=5)
    held = state.step([Arrival("late", inserts(np.arange(10, 20), range(10)))])
    assert held.counts["visits"] == 10
    state.promote("late")
    assert state.step([]).counts["visits"] == 10
