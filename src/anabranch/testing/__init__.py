"""Tools for tests of streams: random streams, readable asserts, and cases that are pictures.

* `histories`, `presentations`, `replicas`, `joiners`, `interleavings`: Hypothesis strategies.
  They need Hypothesis (`pip install hypothesis`) and are loaded at first use: without it
  the rest of this package works, and using one raises `SetupError`.
* `assert_valid`, `assert_equivalent`, `assert_consistent`, `assert_compatible`: show the
  difference as a table.
* `load_cases`: marble tables from `.case` files; `run_case`: one of them on an engine.
* `engine`: an operator to push elements to, run as its reference, compiled, in lanes or on
  Spark.
* `MergeR3`: the reference merge, one element at a time; slow and readable, for study and tests.
"""

from typing import TYPE_CHECKING

from anabranch.operators.reference.r3 import MergeR3
from anabranch.testing.asserts import (
    assert_compatible,
    assert_consistent,
    assert_equivalent,
    assert_valid,
)
from anabranch.testing.cases import Case, load_cases, run_case
from anabranch.testing.engine import ENGINES, Engine, engine

if TYPE_CHECKING:
    from anabranch.testing.strategies import (
        histories,
        interleavings,
        joiners,
        presentations,
        replicas,
    )

__all__ = [
    "ENGINES",
    "Case",
    "Engine",
    "MergeR3",
    "assert_compatible",
    "assert_consistent",
    "assert_equivalent",
    "assert_valid",
    "conflicting_arrivals",
    "engine",
    "histories",
    "interleavings",
    "joiners",
    "load_cases",
    "presentations",
    "replicas",
    "run_case",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from anabranch.testing import strategies

    return getattr(strategies, name)
