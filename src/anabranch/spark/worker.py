"""What a Python worker of Spark does once: `settle`.

Between two tasks Spark's worker looks through all its objects for garbage.  Those of the
libraries that a merge needs stay for the worker's life, and are a hundred thousand: looking at
them takes longer than a small step.  `settle` tells Python that they stay.
"""

import gc
from functools import cache


def settle() -> None:
    """Leave what is imported by now out of every later search for garbage; in a task only."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
