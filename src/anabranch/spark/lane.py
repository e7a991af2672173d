"""What one lane makes of one trigger's parcels: the merge's steps, without Spark.

`make` lets the merge take a step per round and returns rows for the writer: parcels of merged
elements, of late rows and violations with their origin, and one progress record.

Steps are numbered for ever; every lane takes every step, so the number of a step is the same in
all of them, and orders the output.  Who attaches or leaves takes a step too: by some policies
that changes the output, and moves its frontier.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Batch, Codes, Ints
from anabranch.errors import ViolationError
from anabranch.operators import finalize
from anabranch.operators.finalize import FinalizeState
from anabranch.operators.merge.contract import REASONS, Arrival, Bucket, StepResult
from anabranch.spark.account import Account
from anabranch.spark.depot import Depot
from anabranch.spark.direct import Direct
from anabranch.spark.forms import LATE, ORIGIN
from anabranch.spark.lane_case import LaneCase
from anabranch.spark.parcels import COUNTING_LANE, Row, cut, to_ipc
from anabranch.spark.receive import Order, Received, Round, rounds
from anabranch.spark.store import Lane, LaneId
from anabranch.spark.write import ELEMENTS, FINAL, PROGRESS, VIOLATIONS

LEFT = "its replica was detached; it returns with a greater attachment number"


@dataclass(frozen=True)
class Founder:
    """A replica that was there when the run began; every lane knows it from the first step on.

    Only then is remembered what it may still mention when its first file comes later.
    """

    name: str
    guarantee: int | None = None
    attachment: int = 1


@dataclass(frozen=True)
class LaneSpec:
    """What every lane of a run must know; it travels to the workers."""

    run: str
    lanes: int
    case: LaneCase
    order: Order
    founders: tuple[Founder, ...] = ()
    strict: bool = False
    final: bool = False
    direct: Direct | None = None
    depot: Depot | None = None
    in_frames: bool = False

    def lane_id(self, number: int) -> LaneId:
        """What the stored state of a lane must agree with."""
        return LaneId(
            self.run, number, self.lanes, self.case, self.order.schema, final=self.final
        )

    def new_lane(self) -> Lane:
        """A lane that has taken no step."""
        state = self.case.empty(self.order.schema)
        for founder in self.founders:
            state.attach(
                founder.name, guarantee=founder.guarantee, attachment=founder.attachment
            )
        return Lane(state, final=FinalizeState(self.order.schema) if self.final else None)


def make(number: int, lane: Lane, parcels: Sequence[Row], spec: LaneSpec) -> Iterator[Row]:
    """Take the steps of one trigger and say all that came of them."""
    counting = number == COUNTING_LANE
    account = Account(number, counting=counting)
    facts = [json.loads(parcel["note"]) for parcel in parcels if parcel["note"]]
    refused = [row for fact in facts for row in fact.pop("refused")]
    known = {status.name: status.attachment for status in lane.state.replicas} | lane.gone
    # Who is there at the first step is complete; a later one must say so.
    order = spec.order if lane.steps else replace(spec.order, newcomers=None)
    for one in rounds(parcels, order, known):
        yield from _step(number, lane, one, spec, account)
    if refused:
        origin = pa.Table.from_pylist(refused, schema=ORIGIN)
        yield _row(VIOLATIONS, number, lane.steps - 1, origin=to_ipc(origin))
    account.add_refused([row["replica"] for row in refused], facts)
    record = account.record(lane.state, steps=lane.steps)
    yield _row(PROGRESS, number, lane.steps - 1, note=json.dumps(record))


def _step(
    number: int, lane: Lane, one: Round, spec: LaneSpec, account: Account
) -> Iterator[Row]:
    for name, attachment, guarantee in one.attached:
        if attachment > lane.gone.get(name, 0):
            result = _attach(lane, name, attachment, guarantee)
            yield from _say(number, lane, result, account)
        lane.steps += 1
    heard = [item for item in one.received if item.attachment > lane.gone.get(item.replica, 0)]
    arrivals = [
        Arrival(item.replica, item.batch, guarantee=item.guarantee, attachment=item.attachment)
        for item in heard
    ]
    result, guilty = spec.case.step(lane.state, arrivals)
    account.add_guilty(guilty)
    yield from _say(number, lane, result, account, heard, strict=spec.strict)
    unheard = [item for item in one.received if item not in heard]
    for item in [*unheard, *one.after]:
        yield from _left(number, lane.steps, item, account)
    lane.steps += 1
    for name, attachment in one.detached:
        if lane.state.members.find(name) is not None:
            yield from _say(number, lane, lane.state.detach(name), account)
        lane.gone[name] = attachment
        lane.steps += 1


def _attach(lane: Lane, name: str, attachment: int, guarantee: int | None) -> StepResult:
    """Attach a replica; one that is attached has this guarantee from now on."""
    lane.gone.pop(name, None)
    row = lane.state.members.find(name)
    if row is not None and lane.state.members.attachment[row] == attachment:
        return lane.state.tell(name, guarantee)
    return lane.state.attach(name, attachment=attachment, guarantee=guarantee)


def _say(
    number: int,
    lane: Lane,
    result: StepResult,
    account: Account,
    heard: Sequence[Received] = (),
    *,
    strict: bool = False,
) -> Iterator[Row]:
    """What came of a step, or of a change of membership, which is a step of its own."""
    account.add(heard, result, lane.state)
    output = result.output
    if lane.final is not None:
        done = finalize.step(lane.final, output)
        account.add_final(len(done))
        yield from _elements(number, lane.steps, done, FINAL)
    if number != COUNTING_LANE:  # one lane alone says the stable
        output = _data(output)
    yield from _elements(number, lane.steps, output)
    yield from _quarantined(number, lane.steps, heard, result, strict=strict)


def _data(output: Batch) -> Batch:
    """The elements but the stables; the one stable of a step comes last."""
    before = output.slice(0, len(output) - 1) if len(output) else output
    for some in (output, before):
        if some.is_data.all():
            return some
    return output.take(np.flatnonzero(output.is_data))


def _row(channel: str, lane: int, step: int, **values: Any) -> Row:
    nothing = {"first": 0, "parcel": None, "origin": None, "note": None}
    return nothing | {"channel": channel, "lane": lane, "step": step, **values}


def _elements(lane: int, step: int, output: Batch, channel: str = ELEMENTS) -> Iterator[Row]:
    for first, end in cut(len(output)):
        yield _row(channel, lane, step, first=first, parcel=output.slice(first, end))


def _quarantined(
    lane: int, step: int, heard: Sequence[Received], result: StepResult, *, strict: bool
) -> Iterator[Row]:
    for channel, bucket in ((LATE, Bucket.LATE), (VIOLATIONS, Bucket.VIOLATION)):
        for item, buckets, reasons in zip(heard, result.buckets, result.reasons, strict=True):
            where = np.flatnonzero(buckets == bucket)
            if len(where) and strict and bucket is Bucket.VIOLATION:
                raise _stop(item, where, reasons)
            for first, end in cut(len(where)):
                rows = where[first:end]
                origin = _origin(item, rows, [REASONS[code].text for code in reasons[rows]])
                parcel = item.batch.take(rows)
                yield _row(channel, lane, step, parcel=parcel, origin=to_ipc(origin))
    for held in result.resolved:
        where = np.flatnonzero(held.buckets == Bucket.LATE)
        if len(where):
            texts = [REASONS[code].text for code in held.reasons[where]]
            nowhere: list[Any] = [None] * len(where)
            origin = _origins(texts, held.replica, nowhere, nowhere)
            parcel = held.batch.take(where)
            yield _row(LATE, lane, step, parcel=parcel, origin=to_ipc(origin))


def _left(lane: int, step: int, item: Received, account: Account) -> Iterator[Row]:
    """What a replica says after it left is kept as violations."""
    rows = np.arange(len(item.batch))
    if lane != COUNTING_LANE:
        rows = np.flatnonzero(item.batch.is_data)
    account.add_left(item.replica, len(rows))
    for first, end in cut(len(rows)):
        some = rows[first:end]
        origin = _origin(item, some, [LEFT] * len(some))
        parcel = item.batch.take(some)
        yield _row(VIOLATIONS, lane, step, parcel=parcel, origin=to_ipc(origin))


def _origin(item: Received, rows: Ints, reasons: Sequence[str]) -> pa.Table:
    files, numbers = item.origin(rows)
    return _origins(reasons, item.replica, files, numbers)


def _origins(
    reasons: Sequence[str],
    replica: str,
    files: Sequence[str | None],
    numbers: Sequence[int | None],
) -> pa.Table:
    count = len(reasons)
    columns = {
        "reason": pa.array(reasons, pa.string()),
        "replica": pa.array([replica] * count, pa.string()),
        "file": pa.array(files, pa.string()),
        "row": pa.array(numbers, pa.int64()),
        "raw": pa.nulls(count, pa.string()),
    }
    return pa.table(columns, schema=ORIGIN)


def _stop(item: Received, where: Ints, reasons: Codes) -> ViolationError:
    origin = _origin(item, where[:1], [REASONS[reasons[where[0]]].text]).to_pylist()[0]
    message = (
        f"{origin['file']}: row {origin['row']}: {origin['reason']} (replica "
        f"'{origin['replica']}'; --strict stops here)"
    )
    return ViolationError(message)
