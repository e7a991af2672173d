"""The case files, and how each of their pictures is played.

A file's name begins with its operator, as `testing.engine` calls it.
"""

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.testing import load_cases, run_case

FOLDER = Path(__file__).parents[1] / "cases"
NUMBERS = pa.schema({"x": pa.int64()})
FILES = {
    **{f"merge_{case}": ("merge", {"case": case}) for case in ("r0", "r1", "r2", "r3", "r4")},
    "merge_gaps": ("merge", {"case": "r3", "policy": "gaps=true"}),
    "merge_policies": ("merge", {"case": "r3"}),
    "keyed": ("keyed", {}),
    "normalise": ("normalise", {}),
    "cleanse": ("cleanse", {"lanes": 1}),
    "align": ("align", {"lanes": 1}),
    "final": ("final", {}),
    "finalize": ("finalize", {}),
    "hold": ("hold", {}),
    "hold_final": ("hold", {"lanes": 1, "release": "final"}),
    "promised": ("promised", {"lanes": 1, "origin": 0}),
    "promised_remember": ("promised", {"lanes": 1, "origin": 0}),
    "alter_lifetime": ("alter_lifetime", {}),
    "hop": ("hop", {}),
    "window": ("window", {}),
    "replaced_by": ("replaced_by", {}),
    "inserts": ("inserts", {}),
    "deletes": ("deletes", {}),
    "union": ("union", {}),
    "union_of": ("union_of", {}),
    "aggregate": ("aggregate", {"payload": NUMBERS}),
    "aggregate_emit": ("aggregate", {"payload": NUMBERS}),
    "panes": ("panes", {"payload": NUMBERS}),
    "distinct": ("distinct", {}),
    "difference": ("difference", {}),
    "join": ("join", {}),
    "session": ("session", {}),
    "sessions": ("sessions", {"payload": NUMBERS}),
    "top_k": ("top_k", {"payload": pa.schema({"x": pa.string()})}),
}
CASES = [
    pytest.param(operator, {**options, **case.options}, case, id=case.name)
    for name, (operator, options) in FILES.items()
    for case in load_cases(FOLDER / f"{name}.case")
]

PACED = {"finalize", "hold", "promised"}
"""Operators that go by how far a query is: on Spark they are steps of one."""
ON_SPARK = [one for one in CASES if one.values[0] not in PACED]


def play(case, engine):
    """Run a picture; every element of it is in one bucket."""
    run_case(case, engine)
    pushed = {row.name: sum(map(len, row.cells)) for row in case.replicas}
    account = {name: sum(buckets.values()) for name, buckets in engine.account.items()}
    assert account == {name: count for name, count in pushed.items() if count}
