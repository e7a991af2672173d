"""Merge R3 against a plain distinct of the same rows and against its own reference; R0 to R4;
R4 with several events per identity; normalise and cleanse.

    make bench FIG=merge_throughput

A distinct forgets nothing, orders nothing, corrects nothing and keeps no promises: it is the
least that has to be done to rows that come several times.  It sees all rows at once; merge sees
them in steps of 10,000 elements of each replica, keeps state, and writes output.  Every figure
is elements per CPU second, the best of several turns.  All sides have one thread on one core,
and take turns: the ratios are what counts.
"""

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import duckdb
import polars as pl
from merging.clock import best, machine, race, report, use_one_core
from merging.steps import Step, count, rows, steps

from anabranch.batch.codec import to_elements
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase
from anabranch.operators.cleanse import CleanseState
from anabranch.operators.contract import Inputs
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.merge import open_merge
from anabranch.operators.reference.r3 import MergeR3
from anabranch.operators.runs.normalise import NormaliseState

RUN = 10_000


def merge_all(workload: Workload, some: list[Step], case: MergeCase | None = None) -> MergeLane:
    """All steps; the case is the workload's, unless another is named."""
    merge = open_merge(case or workload.case, workload.schema)
    for arrivals in some:
        merge.step(arrivals)
    return merge


def refer(some: list[Step]) -> float:
    """Elements per second of the element-by-element form."""
    presented = [
        (arrival.input, to_elements(arrival.batch)) for step in some for arrival in step
    ]

    def turn() -> None:
        merge = MergeR3()
        for replica, elements in presented:
            for element in elements:
                merge.push(replica, element)

    return count(some) / best(turn, turns=1)


def against_distinct(payload: int, live: int, events: int) -> dict[str, float]:
    workload = Workload(events=events, payload_bytes=payload, duration=live * 10, seed=3)
    some = list(steps(workload, run=RUN))
    elements, table = count(some), rows(some)
    frame, connection = pl.from_arrow(table), duckdb.connect()
    connection.execute("set threads = 1")
    merge_all(workload, some)  # compiles
    query = "select count(*) from (select distinct * from tab)"
    connection.register("tab", table)
    seconds = race(
        merge=lambda: merge_all(workload, some),
        polars=frame.unique,
        duckdb=lambda: connection.execute(query).fetchall(),
    )
    merged = elements / seconds["merge"]
    distinct, duck = elements / seconds["polars"], elements / seconds["duckdb"]
    work = merge_all(workload, some).state.work
    # The reference looks at all events on every stable: the first step is enough of that.
    slow = refer(some[:1])
    return {
        "payload_bytes": payload,
        "live": live,
        "elements": elements,
        "r3_per_second": round(merged),
        "r3_to_polars_unique": round(merged / distinct, 2),
        "r3_to_duckdb_distinct": round(merged / duck, 2),
        "r3_to_reference": round(merged / slow, 1),
        "visits_per_element": round(work.visits / elements, 2),
        "probes_per_element": round(work.probes / elements, 2),
    }


def against_cases(events: int) -> dict[str, dict[str, float]]:
    speed = {}
    for case in MergeCase:
        workload = Workload(events=events, case=case, payload_bytes=100, seed=3)
        some = list(steps(workload, run=RUN))
        merge_all(workload, some)
        speed[case.name] = count(some) / best(lambda w=workload, s=some: merge_all(w, s))
    return {
        name: {"per_second": round(rate), "to_r3": round(rate / speed["R3"], 2)}
        for name, rate in speed.items()
    }


def against_multiplicity(events: int) -> list[dict[str, float]]:
    """R4 with 1, 3 and 10 events per identity on average, beside R3 where it can run."""
    unique = Workload(events=events, payload_bytes=100, seed=3)
    bags = [
        Workload(events=events, case=MergeCase.R4, duplicates=share, payload_bytes=100, seed=3)
        for share in (2 / 3, 0.9)
    ]
    streams = [list(steps(workload, run=RUN)) for workload in (unique, *bags)]
    runners = {
        "r3": lambda: merge_all(unique, streams[0]),
        **{
            f"r4_{mean}": lambda w=workload, s=some: merge_all(w, s, MergeCase.R4)
            for mean, workload, some in zip((1, 3, 10), (unique, *bags), streams, strict=True)
        },
    }
    for run in runners.values():
        run()  # compiles
    seconds = race(turns=3, **runners)
    rate = {
        mean: count(some) / seconds[f"r4_{mean}"]
        for mean, some in zip((1, 3, 10), streams, strict=True)
    }
    r3 = count(streams[0]) / seconds["r3"]
    return [
        {
            "events_per_identity": mean,
            "per_second": round(one),
            "to_r3": round(one / r3, 2),
            "to_one_event": round(one / rate[1], 2),
        }
        for mean, one in rate.items()
    ]


def against_operators(events: int) -> dict[str, dict[str, float]]:
    """Normalise and cleanse of one replica, beside merge R3 of three."""
    workload = Workload(events=events, payload_bytes=100, seed=3)
    some = list(steps(workload, run=RUN))
    one = [step[0] for step in some]

    def run(state: NormaliseState | CleanseState) -> None:
        for arrival in one:
            state.step(Inputs((arrival,)))

    runners = {
        "merge": lambda: merge_all(workload, some),
        "normalise": lambda: run(NormaliseState(workload.schema)),
        "cleanse": lambda: run(CleanseState(workload.schema)),
    }
    for each in runners.values():
        each()  # compiles
    seconds = race(turns=3, **runners)
    elements = sum(len(arrival.batch) for arrival in one)
    r3 = count(some) / seconds["merge"]
    return {
        name: {
            "per_second": round(elements / seconds[name]),
            "to_r3": round(elements / seconds[name] / r3, 2),
        }
        for name in ("normalise", "cleanse")
    }


def main() -> None:
    facts = machine()
    use_one_core()
    report(
        "merge_throughput",
        {
            "machine": facts,
            "polars": pl.__version__,
            "duckdb": duckdb.__version__,
            "r3": [
                against_distinct(100, 10_000, 300_000),
                against_distinct(1_000, 10_000, 100_000),
                against_distinct(100, 200_000, 500_000),
            ],
            "cases": against_cases(300_000),
            "r4_multiplicity": against_multiplicity(100_000),
            "operators": against_operators(100_000),
        },
    )


if __name__ == "__main__":
    main()
