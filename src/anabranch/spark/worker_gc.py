"""Memory of a Python worker between two tasks: what is collected, and what is returned.

PySpark runs `gc.collect()` between tasks.  Scanning the hundred thousand objects of the
imported libraries, which stay for the worker's life, costs more than a small step: they are
frozen once.  Arrow keeps what a task has freed for the next one; while this worker waits,
others need it.
"""

import gc
from functools import cache


def settle() -> None:
    """Exclude what exists now from later collections, return free memory; in a task only."""
    from pyspark import TaskContext

    if TaskContext.get() is None:
        return
    _freeze()
    import pyarrow as pa

    pa.default_memory_pool().release_unused()


@cache
def _freeze() -> None:
    gc.collect()
    gc.freeze()
