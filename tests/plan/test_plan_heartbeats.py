"""What labels do when rows come: latency and memory of section 7, errata H24, H25 and H27."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from heartbeat_runs import PlanRun
from hypothesis import given
from hypothesis import strategies as st
from test_plan_labels import figure_5, known, plans, source, step
from test_plan_stages import SCHEMA

from anabranch.batch.batch import STABLE, Batch
from anabranch.model.lifetimes import sliding
from anabranch.operators.contract import Arrival, Inputs, Operator
from anabranch.operators.lifetimes import AlterLifetimeOperator
from anabranch.operators.union_of import UnionOfOperator
from anabranch.plan.labels import Waiting, labels
from anabranch.plan.node import Step, reads_of, sources


def started(last: Step, waiting: Waiting, **how: object) -> PlanRun:
    return PlanRun(last, labels(last, waiting), known(last), **how)  # type: ignore[arg-type]


def silent_s3(waiting: Waiting, selectivity: float) -> PlanRun:
    """Figure 5: S1 and S2 are at 5, S3 has sent nothing."""
    run = started(figure_5(selectivity), waiting)
    for stream in ("S1", "S2"):
        run.take(stream, 1, 2, 3, 4, 5)
    return run


@pytest.mark.parametrize(
    ("waiting", "selectivity", "reached", "memory"),
    [
        (Waiting.QUERY, 0.5, 0, 10),  # all rows wait in front of O1
        (Waiting.OPERATOR, 0.5, 5, 5),  # O1 has run: its results wait in front of O2
        (Waiting.MEMORY, 0.5, 5, 5),
        (Waiting.QUERY, 4.0, 0, 10),
        (Waiting.OPERATOR, 4.0, 5, 40),  # O1 has multiplied rows that nothing can use yet
        (Waiting.MEMORY, 4.0, 0, 10),
    ],
)
def test_section_7_3_figure_5_latency_against_memory(
    waiting: Waiting, selectivity: float, reached: int, memory: int
) -> None:
    run = silent_s3(waiting, selectivity)
    assert (run.heartbeat["O1"], run.memory) == (reached, memory)
    assert run.heartbeat["O2"] == 0


def test_erratum_h24_the_least_of_a_label_is_an_upper_limit() -> None:
    """O1 releases nothing beyond 2 although its streams are at 5, and O2 must not pass it."""
    run = started(figure_5(), Waiting.MEMORY, silent=frozenset({"O1"}))
    for stream in ("S1", "S2", "S3"):
        run.take(stream, 5)
    of_label = min(run.streams[name] for name in run.labels["O2"].sources)
    assert (of_label, run.heartbeat["O1"], run.heartbeat["O2"]) == (5, 5, 0)


def test_erratum_h25_without_forwarded_heartbeats_all_above_blocks() -> None:
    """A filter needs no heartbeat to run; O1 above it needs one."""
    read = step("filter", source("S1"))
    last = step("O1", read, source("S2"))
    for silent, reached in ((frozenset({"filter"}), 0), (frozenset[str](), 3)):
        run = started(last, Waiting.OPERATOR, silent=silent)
        run.take("S1", 1, 2, 3)
        run.take("S2", 1, 2, 3)
        assert run.heartbeat["O1"] == reached
        assert len(run.output) == 2 * reached


@pytest.mark.parametrize(
    "operator",
    [AlterLifetimeOperator(SCHEMA, sliding(5)), UnionOfOperator(SCHEMA)],
    ids=lambda one: one.name,
)
def test_erratum_h25_operators_that_need_no_order_pass_stables_on(operator: Operator) -> None:
    none = np.zeros(1, np.int64)
    payload = pa.table([pa.nulls(1, one.type) for one in SCHEMA.payload], schema=SCHEMA.payload)
    stable = Batch(
        SCHEMA, np.array([STABLE], np.int8), np.array([7], np.int64), none, none, payload
    )
    result = operator.empty().step(Inputs((Arrival("input", stable),)))
    assert (result.stable, result.frontier) == (7, 7)


def test_erratum_h27_memory_is_not_greater_on_average_only() -> None:
    """O makes 4 rows of one, A keeps those of every 4th timestamp, S2 is silent.

    Right after a kept timestamp 4 rows wait, where one waits with labels of 7.1; over four
    timestamps the mean is not greater.
    """
    o = step("O", source("S1"), selectivity=4.0)
    a = step("A", o, selectivity=0.25)
    last = step("last", a, source("S2"))
    assert labels(last)["O"].sources == ("S1",)
    rules = {"A": lambda time, weight: weight if time % 4 == 1 else 0.0}
    waits: dict[Waiting, list[float]] = {Waiting.QUERY: [], Waiting.MEMORY: []}
    for waiting, found in waits.items():
        run = started(last, waiting, rules=rules)
        for time in range(1, 5):
            run.take("S1", time)
            found.append(run.memory)
    assert waits[Waiting.QUERY] == [1, 2, 3, 4]
    assert waits[Waiting.MEMORY] == [4, 4, 4, 4]


ARRIVALS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 4)), max_size=12)


def runs(last: Step, arrivals: list[tuple[int, int]]) -> Iterator[dict[Waiting, PlanRun]]:
    """The same arrivals with each way to wait; rows come in order in each stream."""
    names = [one.id for one in sources(last)]
    made = {one: started(last, one) for one in Waiting}
    times = dict.fromkeys(names, 0)
    for number, ahead in arrivals:
        name = names[number % len(names)]
        times[name] += ahead
        for run in made.values():
            run.take(name, times[name])
        yield made


@given(plans(), ARRIVALS)
def test_labels_change_what_steps_wait_for_and_never_the_result(
    last: Step, arrivals: list[tuple[int, int]]
) -> None:
    """The last step waits for all sources in any case, so the output is the same always."""
    for made in runs(last, arrivals):
        query, operator, memory = (made[one] for one in Waiting)
        for other in (operator, memory):
            assert len(query.output) == len(other.output)
            assert np.allclose(sorted(query.output), sorted(other.output))
        for one in operator.heartbeat:
            assert query.heartbeat[one] <= memory.heartbeat[one] <= operator.heartbeat[one]


@given(plans(), ARRIVALS)
def test_section_7_3_memory_is_never_greater_than_with_labels_of_7_1(
    last: Step, arrivals: list[tuple[int, int]]
) -> None:
    """In a tree where selectivity is exact, and not only a mean (erratum H27)."""
    for made in runs(last, arrivals):
        assert made[Waiting.MEMORY].memory <= made[Waiting.QUERY].memory + 1e-6


@given(plans(), ARRIVALS)
def test_erratum_h24_no_step_passes_its_label_or_the_steps_that_it_reads(
    last: Step, arrivals: list[tuple[int, int]]
) -> None:
    for made in runs(last, arrivals):
        for run in made.values():
            for one in run.steps:
                upper = [run.streams[name] for name in run.labels[one.id].sources]
                below = [run.heartbeat[r.id] for r in reads_of(one) if r.id in run.heartbeat]
                assert run.heartbeat[one.id] == min(upper + below)
