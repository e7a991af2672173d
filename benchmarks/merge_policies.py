"""Merge R3 under each policy, against the default one in the same run.

    make bench FIG=merge_policies      about three minutes

The default publishes new events at once; so do `stable_lag`, `shrink_only`, `violations` and
`promote`.  The others are asked when a step ends (`operators.merge.govern`).  Three replicas,
10,000 live events, steps of 1,000 elements of each replica.  `visits` are events that stables
and changes of view looked at, per element.
"""

from merging.clock import best, machine, report
from merging.steps import Step, count, steps

from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.lane import MergeLane
from anabranch.operators.merge.merge import open_merge
from anabranch.operators.merge.policy import DEFAULT, Policy

NAME = "merge_policies"
RUN = 1_000
EVENTS = 100_000
POLICIES = (
    *("adjusts=always", "adjusts=follow_leader", "adjusts=follow(r1)"),
    *("inserts=leader", "inserts=highest_start", "inserts=most_free"),
    *("inserts=half_frozen", "inserts=half_frozen,stable_lag=1000", "inserts=quorum(0.5)"),
    *("stable_lag=1000", "shrink_only=true", "violations=detach", "promote=true"),
    "inserts=quorum(0.5),adjusts=always,shrink_only=true",
)


def governed(workload: Workload, some: list[Step], policy: Policy) -> MergeLane:
    merge = open_merge(MergeCase.R3, workload.schema, policy)
    for arrivals in some:
        merge.step(arrivals)
    return merge


def measure(workload: Workload, some: list[Step], policy: Policy) -> dict[str, float]:
    elements = count(some)
    rate = elements / best(lambda: governed(workload, some, policy), turns=2)
    visits = governed(workload, some, policy).state.work.visits
    return {"per_second": round(rate), "visits": round(visits / elements, 2)}


def main() -> None:
    facts = machine()
    workload = Workload(replicas=3, events=EVENTS, payload_bytes=100, seed=3)
    some = list(steps(workload, run=RUN))
    for text in ("default", "adjusts=always"):
        governed(workload, some[:2], Policy.parse(text))  # compiles
    elements = count(some)
    first = elements / best(lambda: governed(workload, some, DEFAULT))
    found = {
        "default": {"per_second": round(first)},
        **{text: measure(workload, some, Policy.parse(text)) for text in POLICIES},
    }
    for one in found.values():
        one["to_default"] = round(one["per_second"] / first, 2)
    report(NAME, {"machine": facts, "elements": elements, "policies": found})


if __name__ == "__main__":
    main()
