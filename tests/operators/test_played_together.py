"""What shares one query on Spark: all pictures, and random streams of query operators.

Each run has an engine of its own.  A random stream must have the history and the frontier of
the reference after every trigger.
"""

import random
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import pytest
from case_files import ON_SPARK, play
from hypothesis import Phase, given, seed, settings
from two_sided_laws import COLUMNS, sides

from anabranch import testing
from anabranch.model.history import replay
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.join.operator import HOWS
from anabranch.testing.together import Run, run_together

pytestmark = pytest.mark.spark

BOTH = ("left", "right")
FUNCTIONS = [
    Aggregate("count", None, "n"),
    Aggregate("sum", "v", "total"),
    Aggregate("avg", "v", "mean"),
    Aggregate("max", "v", "most"),
    Aggregate("collect", "v", "all"),
]


@dataclass(frozen=True)
class Law:
    """An operator inside a query, with its options, and its inputs."""

    name: str
    operator: str
    options: dict
    inputs: tuple[str, ...] = ("input",)


LAWS = [
    *(Law(f"join {how}", "join", {"how": how}, BOTH) for how in HOWS),
    Law("difference", "difference", {}, BOTH),
    Law("union_of", "union_of", {}, BOTH),
    Law("distinct", "distinct", {}),
    Law("aggregate", "aggregate", {"keys": ["k"], "functions": FUNCTIONS}),
    Law("panes", "panes", {"size": 5, "slide": 2, "keys": ["k"], "functions": "sum(v)"}),
    Law("top_k", "top_k", {"keys": ["k"], "k": 2, "by": "-v"}),
    Law("replaced_by", "replaced_by", {"keys": "k", "columns": "k v"}),
    Law("window", "window", {"size": 5, "slide": 2}),
    Law("hop", "hop", {"size": 3, "slide": 2}),
    Law("alter_lifetime", "alter_lifetime", {"start": "rounded 4", "duration": "constant 4"}),
    Law("inserts", "inserts", {}),
    Law("deletes", "deletes", {}),
    Law("normalise", "normalise", {}),
    Law("keyed", "keyed", {"keys": "k", "policy": "adjusts=always"}),
]
SEEDS = [1, 2, 3]


def drawn(law, number):
    """A stream of each input, interleaved, in steps: the longest of a few, by seed."""
    found = []

    @seed(number)
    @settings(max_examples=8, phases=[Phase.generate], database=None, derandomize=False)
    @given(sides(law.inputs))
    def collect(arrived):
        found.append(arrived)

    collect()
    longest, chance = max(found, key=len), random.Random(number)
    cuts = sorted(chance.choices(range(len(longest) + 1), k=4))
    return [longest[begin:end] for begin, end in pairwise([0, *cuts, len(longest)])]


def follow_the_reference(law, steps, engine):
    reference = testing.engine("reference", law.operator, payload=COLUMNS, **law.options)
    for step in steps:
        for one in (engine, reference):
            for name, element in step:
                one.push(name, [element])
            one.cut()
        seen, wanted = replay(engine.output), replay(reference.output)
        assert seen.violations == ()
        assert (seen.history, seen.frontier) == (wanted.history, wanted.frontier)
    assert any(steps)


PLAYED = {(law.name, number): law for law in LAWS for number in SEEDS}


@pytest.fixture(scope="module")
def played(spark):
    """All runs in one query: what each of them raised."""
    runs = {}
    for one in ON_SPARK:
        operator, options, case = one.values
        own = {key: value for key, value in options.items() if key not in ("payload", "lanes")}
        columns = {key: options[key] for key in options.keys() & {"payload"}}
        runs[case.name] = Run(operator, own, partial(play, case), **columns)
    for which, law in PLAYED.items():
        play_it = partial(follow_the_reference, law, drawn(law, which[1]))
        runs[which] = Run(law.operator, law.options, play_it, COLUMNS)
    return dict(zip(runs, run_together(spark, list(runs.values())), strict=True))


@pytest.mark.parametrize("case", [one.id for one in ON_SPARK])
def test_the_pictures_come_true_on_spark(played, case):
    if played[case] is not None:
        raise played[case]


@pytest.mark.parametrize(("name", "number"), PLAYED)
def test_random_streams_follow_the_reference_on_spark(played, name, number):
    if played[name, number] is not None:
        raise played[name, number]
