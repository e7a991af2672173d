"""The common part of operators inside a query: named inputs that were validated before.

Elements are validated once, where they enter the query (merge, union).  An operator after that
trusts them: it does not repeat the check, and keeps only what its output depends on.  An adjust
or removal of an event that was never there is a defect of the query, such as a filter that is
not deterministic: `lost_event` is the error for it.

Contract of `step`, beside that of `operators.contract`:

* The output's history is the operator's function of the histories of its inputs
  (`model.operators`), at the end of every step, however the inputs are cut into steps.
* Adjusts come first, in the order of their sync times (`min(old_end, end)`), then inserts by
  start, then the stable if the frontier moved.
* The frontier is the least of the inputs' frontiers, mapped by `passed`.

All elements that are taken are `absorbed` (APPLIED); the data of the output is `added_inserts`
and `added_adjusts`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import (
    ADJUST,
    INSERT,
    NEVER_UNITS,
    STABLE,
    Batch,
    Codes,
    Ints,
    concat,
)
from anabranch.batch.events import nothing, with_stable
from anabranch.batch.schema import ElementSchema
from anabranch.batch.stable_order import stable_order
from anabranch.errors import StateError
from anabranch.operators.contract import (
    BUCKET_OF,
    Arrival,
    Inputs,
    InputStatus,
    Operator,
    Reason,
    StepResult,
    ports_of,
)
from anabranch.operators.unary import Changed, changes_nothing, require_schema


class TrustingState(ABC):
    """What an operator inside a query remembers for one lane; `step` changes it in place.

    `received` are the frontiers of the inputs by name, `mark` counts the steps.
    """

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.ports = ports_of(operator)
        self.received = dict.fromkeys(self.ports, int(NEVER_UNITS))
        self.mark = 0
        output = operator.output
        assert isinstance(output, ElementSchema), f"{operator.name} emits no elements"
        self.output: ElementSchema = output

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.passed(min(self.received.values()))

    @property
    def inputs(self) -> Sequence[InputStatus]:
        """The inputs do not come and go."""
        return ()

    @property
    def facts(self) -> Mapping[str, Any]:
        """Nothing else."""
        return {}

    def passed(self, received: int) -> int:
        """The output's frontier, if all inputs are final up to `received`."""
        return received

    @abstractmethod
    def take(self, batches: Mapping[str, Batch], before: int) -> Changed:
        """Apply the inserts and adjusts of each input; the net change, without a stable.

        `received` has the frontiers after the step, `before` is the least of them before it.
        A batch has data only, and there is one for each port.
        """

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, change the state, return the net change."""
        self.mark += 1
        before, shown = min(self.received.values()), self.frontier
        batches = {name: self._joined(name, inputs.arrivals) for name in self.ports}
        changed = self.take(batches, before)
        frontier = self.frontier
        output = changed.output
        if frontier > shown:
            output = concat([output, stable_of(self.output, frontier)])
        reasons = tuple(reasons_of(one.batch) for one in inputs.arrivals)
        if frontier > shown:
            name_leader(inputs.arrivals, reasons, min(self.received.values()))
        kind = changed.output.kind
        return StepResult(
            output,
            buckets=tuple(BUCKET_OF[codes] for codes in reasons),
            reasons=reasons,
            frontier=frontier,
            final=changed.final,
            added_adjusts=int(np.count_nonzero(kind == ADJUST)),
            added_inserts=int(np.count_nonzero(kind == INSERT)),
            counts=changed.counts,
        )

    def _joined(self, name: str, arrivals: Sequence[Arrival]) -> Batch:
        """The data of one input, in order; its stables move its frontier."""
        port = self.ports[name]
        mine = [one for one in arrivals if len(self.ports) == 1 or one.input == name]
        require_schema(self.operator.name, port.schema, mine)
        found = []
        for one in mine:
            batch = one.batch
            stables = batch.start[batch.kind == STABLE]
            if len(stables):
                self.received[name] = max(self.received[name], int(stables.max()))
                data = len(batch) - len(stables)
                # Most steps end with their stables: what is before them is a view.
                is_last = bool((batch.kind[data:] == STABLE).all())
                batch = batch.slice(0, data) if is_last else batch.take(batch.is_data)
            found.append(batch)
        return concat(found) if found else nothing(port.schema)


def written(
    schema: ElementSchema,
    adjusts: tuple[Ints, Ints, Ints],
    inserts: tuple[Ints, Ints],
    payload: pa.Table,
) -> Batch:
    """Adjusts (start, old end, end) by sync time, then inserts (start, end) by start.

    `payload` has a row for each adjust, then for each insert.  Of equal times the order is that
    of the rows.
    """
    start, old_end, end = adjusts
    first = stable_order(np.minimum(old_end, end))
    second = stable_order(inserts[0])
    order = np.concatenate([first, len(start) + second])
    count = len(start), len(inserts[0])
    batch = Batch(
        schema,
        np.repeat(np.array([ADJUST, INSERT], np.int8), count),
        np.concatenate([start, inserts[0]]),
        np.concatenate([end, inserts[1]]),
        np.concatenate([old_end, np.zeros(count[1], np.int64)]),
        payload,
    )
    return batch.take(order)


def lost_event(name: str, what: str) -> StateError:
    """The error for an adjust whose event the operator `name` does not have."""
    return StateError(
        f"{name}: an adjust of {what} finds no such event, although the input was validated; "
        "a filter or column before this step is probably not deterministic (a random number, "
        "the current time, a user function that depends on more than its arguments); make it "
        "depend on the row alone, and start with a new checkpoint"
    )


def stable_of(schema: ElementSchema, time: int) -> Batch:
    """A batch of one stable."""
    none = np.zeros(1, np.int64)
    payload = with_stable(schema.payload.empty_table(), schema, 1)
    return Batch(schema, np.array([STABLE], np.int8), none + time, none, none, payload)


def reasons_of(batch: Batch) -> Codes:
    """Why each element is where it is: applied, without effect, or a stable."""
    codes = np.full(len(batch), Reason.APPLIED.code, np.int8)
    codes[changes_nothing(batch)] = Reason.NO_CHANGE.code
    codes[batch.kind == STABLE] = Reason.FOLLOWS.code
    return codes


def name_leader(arrivals: Sequence[Arrival], reasons: Sequence[Codes], time: int) -> None:
    """One stable of this time or beyond moved the frontier, however many inputs brought one."""
    for arrival, codes in zip(arrivals, reasons, strict=True):
        batch = arrival.batch
        found = np.flatnonzero((batch.kind == STABLE) & (batch.start >= time))
        if len(found):
            codes[found[0]] = Reason.LEADS.code
            return
