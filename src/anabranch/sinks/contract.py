"""The contract of a sink: open, write, commit by trigger id, be notified of Spark's commit.

A query calls its sinks in this order; all of it may happen again after a crash, with the same
trigger id and the same rows:

    open(run)          once per start, before the first trigger
    write(trigger)     for a trigger that has rows for this sink
    commit(trigger)    after every sink has written, also for a trigger without rows
    committed(trigger) Spark has committed the trigger and all before it: none of them is
                       repeated any more

What other readers see should come from committed triggers alone: a repeated trigger may have
its rows in another order.  A sink is exactly once if `write` and `commit` of a trigger id
replace what an earlier attempt with this id left behind.  One that ignores the id is at least
once.

There are two ways to take rows.  A sink with a `folder` gets files: the lanes write Parquet
files into a staging folder there, where the rows are, and `write` gets their names.  A sink
without one gets a DataFrame.  Sinks are pickled where Spark's server is another process: they
keep what they must remember on disk, not in attributes.
"""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Sink(Protocol):
    """One place for one view of a query's output."""

    @property
    def folder(self) -> str | None:
        """The folder in which lanes stage files for this sink; None: it takes DataFrames."""

    def open(self, run: str) -> None:
        """Get ready for the triggers of one start; remove what an aborted one left staged."""

    def write(self, trigger: int, rows: Any, files: Mapping[str, int]) -> None:
        """Take what a trigger has: staged files and their lanes, or rows without a folder."""

    def commit(self, trigger: int) -> None:
        """Replace what an earlier attempt of this trigger has left."""

    def committed(self, trigger: int) -> None:
        """Spark repeats no trigger up to this one; called at least once for the last one."""
