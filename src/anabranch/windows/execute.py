"""`run`: the query itself, on Spark, as another engine would answer it.

The work is done in `anabranch.spark.windows`, which is imported when `run` is called: this room
needs no Spark, and nothing here depends on it.
"""

from collections.abc import Sequence
from datetime import datetime
from importlib import import_module
from typing import Any, Literal, Protocol

from anabranch.windows.engine import Engine


class WindowRun(Protocol):
    """A window query on a DataFrame; all three views are DataFrames of Spark."""

    def results(self) -> Any:
        """What the engine shows: `start`, `end`, `instant`, `value`, `count`, and the order."""

    def late(self) -> Any:
        """Rows that were not taken, or not into one window, each with the reason."""

    def rows(self) -> Any:
        """Both in one, for one streaming query; `reported` tells them apart."""


def run(
    df: Any,
    *,
    like: str | Engine,
    time: str,
    size: int | str,
    slide: int | str,
    value: str | None = None,
    agg: str = "count",
    group_by: str | Sequence[str] | None = None,
    order: str | None = None,
    batch: str | None = None,
    until: int | datetime | None = None,
    late: Literal["keep", "raise"] = "keep",
) -> WindowRun:
    """A window aggregate over a DataFrame of Spark, streaming or batch, as `like` returns it.

    `time` is a column of whole numbers or timestamps; sizes are whole numbers, or texts such
    as "5 minutes" for timestamps.  `order` orders rows of one time, `batch` cuts a batch
    DataFrame into batches, and `until` says how far time has come at its end.
    """
    ran: WindowRun = import_module("anabranch.spark.windows").run(
        df,
        like=like,
        time=time,
        size=size,
        slide=slide,
        value=value,
        agg=agg,
        group_by=group_by,
        order=order,
        batch=batch,
        until=until,
        late=late,
    )
    return ran
