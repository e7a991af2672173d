"""Call `gc.freeze()` once per Python worker.

PySpark runs `gc.collect()` between tasks.  Scanning the hundred thousand objects of the
imported libraries, which stay for the worker's life, costs more than a small step.
"""

import gc
from functools import cache


def settle() -> None:
    """Exclude all objects that exist now from later collections; in a task only."""
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        _freeze()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
