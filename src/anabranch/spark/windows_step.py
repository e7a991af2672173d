"""One group of a window query: rows in, results and late rows out; by triggers, or at once.

The work is `windows.Machine`'s; here are the order of rows, batches, and the columns.  A step
is a function of the saved state and the rows, so that Spark may run it again after a failure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

from anabranch.errors import InputError, ViolationError
from anabranch.model import Stable
from anabranch.windows.engine import Engine
from anabranch.windows.machine import Arrival, Fed, Machine
from anabranch.windows.trace import Query

if TYPE_CHECKING:
    import pandas as pd

Row = tuple[Any, ...]

_MOST: Final = 2**63 - 1

OUT: Final = (
    "reported", "start", "end", "instant", "value", "count", "late", "time", "given", "reason",
    "step", "seq",
)  # fmt: skip
"""What a step makes, after the columns of the group; `given` is the value of a late row."""


@dataclass(frozen=True, slots=True)
class StepSpec:
    """What a step must know; it travels to the workers."""

    engine: Engine
    query: Query
    keys: int
    ordered: bool
    late: Literal["keep", "raise"]
    until: int | None = None

    @property
    def names(self) -> list[str]:
        """The columns of what a step makes."""
        return [*(f"key_{number}" for number in range(self.keys)), *OUT]


def take(
    spec: StepSpec, machine: Machine, key: Row, frame: "pd.DataFrame", seq: int
) -> tuple[list[Row], int]:
    """What these rows of one group bring, numbered on from `seq`."""
    rows: list[Row] = []
    for flaw, time, value in _flawed(frame):
        what = f"a row with {flaw}" if time is None else f"a row of time {time} with {flaw}"
        _refuse(spec, key, what)
        rows.append((*key, False, *[None] * 6, time, value, flaw, machine.steps, seq))
        seq += 1
    sound = frame[frame["flaw"] == ""]
    for batch in _batches(spec, sound):
        made, seq = _rows(spec, key, machine.feed(_arrivals(spec, machine, batch)), seq)
        rows += made
    return rows, seq


def _flawed(frame: "pd.DataFrame") -> Iterator[tuple[str, int | None, Any]]:
    bad = frame[frame["flaw"] != ""]
    flaws, times = bad["flaw"].tolist(), bad["time"].tolist()
    for flaw, time, value in zip(flaws, times, _values(bad), strict=True):
        yield flaw, None if flaw == "no time" else time, value


def _values(frame: "pd.DataFrame") -> list[Any]:
    """Nulls came as 0 or an empty text: pandas would have made floats of whole numbers."""
    values: list[Any] = frame["value"].tolist()
    for place in np.flatnonzero(frame["absent"].to_numpy()):
        values[place] = None
    return values


def _batches(spec: StepSpec, frame: "pd.DataFrame") -> Iterator["pd.DataFrame"]:
    """The rows batch by batch, in the order in which the engine is to get them."""
    by_time = spec.engine.windows == "active" or not spec.ordered
    within = ["time", "order"] if by_time else ["order"]
    ranks = [np.unique(frame[name].to_numpy(), return_inverse=True)[1] for name in within]
    batches = frame["batch"].to_numpy()
    # The last key counts most; equal rows stay as Spark gave them.
    placed = frame.iloc[np.lexsort([*reversed(ranks), batches])]
    edges = np.flatnonzero(np.diff(placed["batch"].to_numpy())) + 1
    bounds = [0, *edges.tolist(), len(placed)]
    for start, stop in pairwise(bounds):
        if start < stop:
            yield placed.iloc[start:stop]


def _arrivals(spec: StepSpec, machine: Machine, frame: "pd.DataFrame") -> Iterator[Arrival]:
    """Tuples of one batch; engines of the paper get one batch per time (erratum D17)."""
    times = frame["time"].to_numpy()
    batches = np.full(len(times), (machine.last_batch or 0) + 1)
    if spec.engine.windows == "active":
        batches[1:] += np.cumsum(np.diff(times) != 0)
    return map(_arrival, times.tolist(), _values(frame), batches.tolist())


def _arrival(time: int, value: object, batch: int) -> Arrival:
    return Arrival(time, value, batch=batch)


def _rows(spec: StepSpec, key: Row, fed: Fed, seq: int) -> tuple[list[Row], int]:
    rows: list[Row] = []
    for one in fed.shown:
        value = list(one.value) if isinstance(one.value, tuple) else one.value
        if isinstance(value, int) and abs(value) > _MOST:
            message = f"a sum is {value}, more than a bigint holds; cast the values to double"
            raise InputError(message)
        shown = (one.start, one.end, one.instant, value, one.count, one.late)
        rows.append((*key, True, *shown, None, None, None, one.step, seq + len(rows)))
    for lost in fed.late:
        _refuse(spec, key, f"a row of time {lost.time}, {lost.reason}")
        told = (
            lost.start,
            lost.end,
            None,
            None,
            None,
            None,
            lost.time,
            lost.value,
            lost.reason,
        )
        rows.append((*key, False, *told, lost.step, seq + len(rows)))
    return rows, seq + len(rows)


def _refuse(spec: StepSpec, key: Row, what: str) -> None:
    if spec.late == "raise":
        group = f" of group {key}" if spec.keys else ""
        message = (
            f"windows.run got {what}{group}; sort the input, or keep such rows: late='keep'"
        )
        raise ViolationError(message)


class WindowProcessor(StatefulProcessor):
    """The query of one group, over all triggers; the hooks are Spark's."""

    def __init__(self, spec: StepSpec) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the one value that a group keeps."""
        fields = [StructField("machine", BinaryType()), StructField("seq", LongType())]
        self._state = handle.getValueState("windows", StructType(fields))

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator["pd.DataFrame"]:
        """One trigger of one group."""
        import pandas as pd

        spec, seq = self._spec, 0
        machine = Machine(spec.engine, spec.query)
        kept = self._state.get() if self._state.exists() else None
        if kept is not None:
            machine, seq = Machine.from_bytes(bytes(kept[0]), spec.engine, spec.query), kept[1]
        group = tuple(key)[: spec.keys]
        frame = pd.concat(list(rows), ignore_index=True)
        made, seq = take(spec, machine, group, frame, seq)
        self._state.update((machine.to_bytes(), seq))
        yield pd.DataFrame(made, columns=spec.names, dtype=object)

    def close(self) -> None:
        """Nothing is held open."""


def whole_group(spec: StepSpec, schema: pa.Schema) -> Any:
    """The function that Spark applies to each group of a batch DataFrame."""

    def apply(key: Any, table: pa.Table) -> pa.Table:
        group = tuple(scalar.as_py() for scalar in key)[: spec.keys]
        machine = Machine(spec.engine, spec.query)
        made, seq = take(spec, machine, group, table.to_pandas(), 0)
        if spec.until is not None:
            made += _rows(spec, group, machine.feed([Stable(spec.until)]), seq)[0]
        columns = zip(*made, strict=True) if made else [() for _ in schema]
        arrays = [
            pa.array(column, type=kind)
            for column, kind in zip(columns, schema.types, strict=True)
        ]
        return pa.table(arrays, schema=schema)

    return apply
