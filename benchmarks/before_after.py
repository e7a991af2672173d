"""This checkout against another one: elements per second of merges, and bytes per live event.

    python benchmarks/before_after.py OTHER_CHECKOUT        about eight minutes

Both run the same streams in processes of their own, taking turns: before, after, before, ...
Each turn is the best of three within its process (CPU seconds); the figure is the median of the
ratios after / before over five pairs, with the least and the greatest beside it.  Above 1 this
checkout is faster (`speed`) or larger (`bytes`).

The other checkout may be of an earlier layout: `_NAMES` lists where each name was.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from merging.clock import best, machine, report, use_one_core

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


def measure(spec: dict[str, Any], case: str, policy: str = "default", run: int = 10_000) -> Any:
    """A merge of the whole stream: elements per CPU second."""
    workload = find("Workload")(**spec)
    some = steps(workload, run)
    open_merge = find("open_merge")
    asked, chosen = find("MergeCase")[case], find("Policy").parse(policy)

    def turn() -> None:
        merge = open_merge(asked, workload.schema, chosen)
        for arrivals in some:
            merge.step(arrivals)

    turn()  # compiles
    elements = sum(len(one.batch) for arrivals in some for one in arrivals)
    return elements / best(turn)


def sizes(inputs: int) -> dict[str, float]:
    """Bytes that a save writes per live event, all of them alive."""
    live = 20_000
    spec = {"events": live, "replicas": inputs, "payload_bytes": 100, "revisions": 0}
    workload = find("Workload")(**spec, duration=100 * live)
    merge = find("open_merge")(find("MergeCase")["R3"], workload.schema)
    for arrivals in steps(workload, 5_000)[:-1]:
        merge.step(arrivals)
    saved = sum(map(len, merge.parts().written.values()))
    return {f"saved bytes per event, {inputs} inputs": saved / merge.live}


def probe() -> dict[str, dict[str, float]]:
    """All figures of the checkout that is on the path."""
    r4 = find("MergeCase").R4
    plain = {"events": 100_000, "payload_bytes": 100, "seed": 3}
    many = {"events": 200_000, "payload_bytes": 100, "duration": 1_000_000, "seed": 3}
    bags = {**plain, "events": 50_000, "case": r4}
    speed = {
        "R3, 10,000 live": measure(plain, "R3"),
        "R3, 100,000 live": measure(many, "R3"),
        "R3, 1000 bytes": measure({**plain, "events": 50_000, "payload_bytes": 1_000}, "R3"),
        "R3, steps of 1,000": measure(plain, "R3", run=1_000),
        "R4, one event per identity": measure(plain, "R4"),
        "R4, three": measure({**bags, "duplicates": 2 / 3}, "R4"),
        "R4, ten": measure({**bags, "duplicates": 0.9}, "R4"),
    }
    ordered = find("MergeCase")
    for case in (ordered.R0, ordered.R1, ordered.R2):
        speed[case.name] = measure({**plain, "case": case}, case.name)
    for policy in POLICIES:
        speed[f"R3, {policy}"] = measure({**plain, "events": 50_000}, "R3", policy, 1_000)
    return {"speed": speed, "bytes": {**sizes(2), **sizes(10)}}


def run_in(checkout: Path) -> dict[str, dict[str, float]]:
    """The figures of a checkout, in a process of its own."""
    here = Path(__file__).parent
    paths = os.pathsep.join((str(checkout / "src"), str(here)))
    done = subprocess.run(
        [sys.executable, __file__, "--probe"],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def ratios(pairs: list[tuple[Any, Any]]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Of each figure the median of after / before, the least and the greatest."""
    for kind, figures in pairs[0][0].items():
        for name in figures:
            each = [after[kind][name] / before[kind][name] for before, after in pairs]
            yield (
                kind,
                name,
                {
                    "median": round(statistics.median(each), 3),
                    "least": round(min(each), 3),
                    "greatest": round(max(each), 3),
                    "after": round(statistics.median(a[kind][name] for _, a in pairs)),
                },
            )


def main(other: Path, probing: Callable[[Path], Any] = run_in) -> None:
    facts = machine()
    pairs = []
    for number in range(PAIRS):
        pairs.append((probing(other), probing(Path(__file__).parents[1])))
        print(f"pair {number + 1} of {PAIRS}", file=sys.stderr)
    found: dict[str, dict[str, Any]] = {}
    for kind, name, one in ratios(pairs):
        found.setdefault(kind, {})[name] = one
    report("before_after", {"machine": facts, "pairs": PAIRS, **found})


if __name__ == "__main__":
    if sys.argv[1:] == ["--probe"]:
        use_one_core()
        print(json.dumps(probe()))
    elif len(sys.argv) == 2:
        main(Path(sys.argv[1]).resolve())
    else:
        raise SystemExit(__doc__)
