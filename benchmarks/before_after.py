"""This checkout against another one: elements per second of merges, bytes per live event.

    python benchmarks/before_after.py OTHER_CHECKOUT        about ten minutes

Either checkout has a process of its own, with the same streams.  They take turns figure by
figure: before, after, after, before, ...  A turn is one merge of the whole stream (CPU
seconds); a pair is two turns that follow one another, so that both meet the machine in the
same state.  A figure is the median of the ratios over five rounds of five pairs, with the least
and the greatest of the five rounds' medians beside it.  Above 1 this checkout is faster
(`speed`) or larger (`bytes`).

The other checkout may be of an earlier layout: `_NAMES` lists where each name was.
"""

import gc
import json
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from merging.checkouts import Checkout
from merging.clock import best, machine, report, use_one_core

ROUNDS = 5
PAIRS = 5
_NAMES = {
    "Workload": ("anabranch.generator.workload", "anabranch.sources.generate"),
    "Arrival": ("anabranch.operators.contract", "anabranch.operators.merge.contract"),
    "open_merge": ("anabranch.operators.merge.merge", "anabranch.operators.merge.start"),
    "MergeCase": ("anabranch.model.properties",),
    "Policy": ("anabranch.operators.merge.policy",),
    "decode": ("anabranch.batch.codec",),
}
POLICIES = (
    "adjusts=always",
    "adjusts=follow_leader",
    "inserts=leader",
    "inserts=half_frozen",
    "inserts=quorum(0.5)",
    "shrink_only=true",
    "stable_lag=1000",
)


def find(name: str) -> Any:
    """A name of the package, wherever this checkout has it."""
    for module in _NAMES[name]:
        try:
            return getattr(import_module(module), name)
        except (ModuleNotFoundError, AttributeError):
            continue
    message = f"{name} is in none of {', '.join(_NAMES[name])}"
    raise SystemExit(message)


def steps(workload: Any, run: int) -> list[list[Any]]:
    """Every replica gives its next `run` elements in each step."""
    arrival, decode = find("Arrival"), find("decode")
    batches = [
        decode(workload.replica(number), workload.schema).batch
        for number in range(workload.replicas)
    ]
    return [
        [
            arrival(f"r{number}", batch.slice(at, min(at + run, len(batch))))
            for number, batch in enumerate(batches)
            if at < len(batch)
        ]
        for at in range(0, max(map(len, batches)), run)
    ]


Turn = Callable[[], float]


def speed(spec: dict[str, Any], case: str, policy: str = "default", run: int = 10_000) -> Turn:
    """A merge of the whole stream: elements per CPU second."""
    workload = find("Workload")(**spec)
    some = steps(workload, run)
    open_merge = find("open_merge")
    asked, chosen = find("MergeCase")[case], find("Policy").parse(policy)
    elements = sum(len(one.batch) for arrivals in some for one in arrivals)

    def merge() -> None:
        merge = open_merge(asked, workload.schema, chosen)
        for arrivals in some:
            merge.step(arrivals)

    merge()  # compiles
    return lambda: elements / best(merge, turns=1)


def saved(inputs: int) -> Turn:
    """Bytes that a save writes per live event, all of them alive."""
    live = 20_000
    spec = {"events": live, "replicas": inputs, "payload_bytes": 100, "revisions": 0}
    workload = find("Workload")(**spec, duration=100 * live)
    merge = find("open_merge")(find("MergeCase")["R3"], workload.schema)
    for arrivals in steps(workload, 5_000)[:-1]:
        merge.step(arrivals)
    each = sum(map(len, merge.parts().written.values())) / merge.live
    return lambda: each


def held(inputs: int) -> Turn:
    """Bytes of memory per live event, all of them alive: arrays of NumPy, buffers of Arrow."""
    live = 50_000
    spec = {"events": live, "replicas": inputs, "payload_bytes": 100, "revisions": 0}
    workload = find("Workload")(**spec, duration=100 * live)
    some = steps(workload, 5_000)[:-1]

    def measure() -> float:
        gc.collect()
        arrow = pa.total_allocated_bytes()
        tracemalloc.start()
        merge = find("open_merge")(find("MergeCase")["R3"], workload.schema)
        for arrivals in some:
            merge.step(arrivals)
        gc.collect()
        traced = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return (traced + pa.total_allocated_bytes() - arrow) / merge.live

    each = measure()
    return lambda: each


def figures() -> dict[str, dict[str, partial[Turn]]]:
    """What is measured, by kind and name; a figure is prepared by calling it."""
    r4 = find("MergeCase").R4
    plain = {"events": 100_000, "payload_bytes": 100, "seed": 3}
    many = {"events": 200_000, "payload_bytes": 100, "duration": 1_000_000, "seed": 3}
    bags = {**plain, "events": 50_000, "case": r4}
    found = {
        "R3, 10,000 live": partial(speed, plain, "R3"),
        "R3, 100,000 live": partial(speed, many, "R3"),
        "R3, 1000 bytes": partial(
            speed, {**plain, "events": 50_000, "payload_bytes": 1_000}, "R3"
        ),
        "R3, steps of 1,000": partial(speed, plain, "R3", run=1_000),
        "R4, one event per identity": partial(speed, plain, "R4"),
        "R4, three": partial(speed, {**bags, "duplicates": 2 / 3}, "R4"),
        "R4, ten": partial(speed, {**bags, "duplicates": 0.9}, "R4"),
    }
    # The ends of what `merge_sweep` varies.
    found["R3, two inputs"] = partial(speed, {**plain, "replicas": 2}, "R3")
    found["R3, ten inputs"] = partial(speed, {**plain, "events": 30_000, "replicas": 10}, "R3")
    found["R3, a stable per ten events"] = partial(speed, {**plain, "stable_freq": 0.1}, "R3")
    found["R3, half in disorder"] = partial(speed, {**plain, "disorder": 0.5}, "R3")
    found["R3, 16 bytes"] = partial(speed, {**plain, "payload_bytes": 16}, "R3")
    ordered = find("MergeCase")
    for case in (ordered.R0, ordered.R1, ordered.R2):
        found[case.name] = partial(speed, {**plain, "case": case}, case.name)
    for policy in POLICIES:
        found[f"R3, {policy}"] = partial(
            speed, {**plain, "events": 50_000}, "R3", policy, 1_000
        )
    sizes = {
        f"{word} bytes per event, {inputs} inputs": partial(make, inputs)
        for word, make in (("saved", saved), ("held", held))
        for inputs in (2, 10)
    }
    return {"speed": found, "bytes": sizes}


def probe() -> None:
    """Prints the names of the figures; then for each line of input, a name, one turn of it."""
    known = {name: make for kind in figures().values() for name, make in kind.items()}
    print(json.dumps({kind: list(some) for kind, some in figures().items()}), flush=True)
    prepared: dict[str, Turn] = {}
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name not in prepared:  # one at a time: memory
            prepared = {name: known[name]()}
        print(prepared[name](), flush=True)


def compare(name: str, before: Checkout, after: Checkout) -> dict[str, float]:
    """The ratios after / before of one figure."""
    for side in (before, after):
        side.take(name)  # prepares it; not counted
    rounds, seen = [], []
    for _ in range(ROUNDS):
        ratios = []
        for turn in range(PAIRS):
            order = (before, after) if turn % 2 else (after, before)
            taken = {id(side): side.take(name) for side in order}
            ratios.append(taken[id(after)] / taken[id(before)])
            seen.append(taken[id(after)])
        rounds.append(ratios)
    medians = [statistics.median(ratios) for ratios in rounds]
    return {
        "median": round(statistics.median(one for ratios in rounds for one in ratios), 3),
        "least": round(min(medians), 3),
        "greatest": round(max(medians), 3),
        "after": round(statistics.median(seen)),
    }


def main(other: Path) -> None:
    facts = machine()
    script = Path(__file__).resolve()
    before, after = Checkout(other, script), Checkout(script.parents[1], script)
    names: dict[str, list[str]] = json.loads(after.greeting)
    found: dict[str, dict[str, Any]] = {}
    for kind, some in names.items():
        for name in some:
            found.setdefault(kind, {})[name] = compare(name, before, after)
            print(f"{name}: {found[kind][name]}", file=sys.stderr, flush=True)
    before.end()
    after.end()
    shape = {"rounds": ROUNDS, "pairs_of_a_round": PAIRS}
    report("before_after", {"machine": facts, **shape, **found})


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        use_one_core()
        probe()
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]).resolve())
    else:
        raise SystemExit(__doc__)
