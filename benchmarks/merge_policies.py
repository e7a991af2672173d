"""Merge R3 under each policy, against the default one in the same run.

    make bench FIG=merge_policies      about three minutes

The default runs in columns (`r3_kernel`); the others, and the default again as `default, by
element` and as `default, with the loop of policies`, element by element in one compiled loop
(`r3_policy_kernel`).  Three replicas, 10,000 live events, steps of 1,000 elements of each
replica.  `visits` are events that stables and changes of view looked at, per element.
"""

from merging.clock import best, machine, report
from merging.steps import Step, count, steps

from anabranch.operators.merge import r3_kernel, r3_policy_kernel
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.sources.generate import Workload

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


def plain(workload: Workload, some: list[Step], granularity: str = "batch") -> R3State:
    state = R3State.empty(workload.schema)
    for arrivals in some:
        r3_kernel.step(state, arrivals, granularity=granularity)
    return state


def governed(workload: Workload, some: list[Step], policy: Policy) -> R3PolicyState:
    state = R3PolicyState.empty(workload.schema, policy=policy)
    for arrivals in some:
        r3_policy_kernel.step(state, arrivals)
    return state


def measure(workload: Workload, some: list[Step], policy: Policy) -> dict[str, float]:
    elements = count(some)
    rate = elements / best(lambda: governed(workload, some, policy), turns=2)
    visits = governed(workload, some, policy).work.visits
    return {"per_second": round(rate), "visits": round(visits / elements, 2)}


def main() -> None:
    facts = machine()
    workload = Workload(replicas=3, events=EVENTS, payload_bytes=100, seed=3)
    some = list(steps(workload, run=RUN))
    plain(workload, some[:2]), plain(workload, some[:2], "element")  # compiles
    governed(workload, some[:2], DEFAULT)
    elements = count(some)
    first = elements / best(lambda: plain(workload, some))
    each = elements / best(lambda: plain(workload, some, "element"), turns=2)
    found = {
        "default": {"per_second": round(first)},
        "default, by element": {"per_second": round(each)},
        "default, with the loop of policies": measure(workload, some, DEFAULT),
        **{text: measure(workload, some, Policy.parse(text)) for text in POLICIES},
    }
    for one in found.values():
        one["to_default"] = round(one["per_second"] / first, 2)
    report(NAME, {"machine": facts, "elements": elements, "policies": found})


if __name__ == "__main__":
    main()
