"""Runs the pipeline of one lane on the parcels of one trigger, without Spark.

`make` takes a step per round and returns rows for the writer (parcels of output elements, of
late rows and violations with their origin) and one progress record.  A lane whose stage is
followed by another sends its elements to the lanes of that stage instead.

Steps are numbered for ever; every lane of a stage takes every step, so the number of a step is
the same in all of them, and orders the output.  A change of membership is a step of its own: by
some policies it changes the output, and moves its frontier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch, Codes, Ints, concat
from anabranch.batch.buffers import take
from anabranch.errors import StateError, ViolationError
from anabranch.operators.contract import (
    REASONS,
    Arrival,
    Attach,
    Await,
    Bucket,
    ControlEntry,
    Detach,
    Inputs,
    InputStatus,
    NewSettings,
    PassOver,
    State,
    StepResult,
)
from anabranch.operators.pipeline import run
from anabranch.sources.channels import ELEMENTS, FINAL, LATE, ROWS, VIOLATIONS
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.lane.account import Account, leader
from anabranch.spark.lane.exported import TOO_LATE
from anabranch.spark.lane.heartbeats import advance, record_of
from anabranch.spark.lane.late import explained
from anabranch.spark.lane.reach import Reach
from anabranch.spark.lane.receive import Order, Received, Round, gathered, rounds, stable_at
from anabranch.spark.lane.rows import ORIGIN, LaneRow
from anabranch.spark.lane.spec import LaneSpec, NextStage
from anabranch.spark.lane.state import Lane
from anabranch.spark.pack.parcels import (
    BEAT,
    CHANGE,
    CLOCK,
    COUNTING_LANE,
    UNROUTED,
    Parcel,
    Refused,
    cut,
    in_every_lane,
    pieces,
)
from anabranch.spark.pack.positions import Span
from anabranch.spark.progress import (
    LaneRecord,
    OperatorRecord,
    shown,
    shown_facts,
)

LEFT = "its replica was detached; it returns with a greater attachment number"


@dataclass
class _Trigger:
    """One trigger of one lane; `output` is collected, by step, for the stage after it."""

    number: int
    lane: Lane
    spec: LaneSpec
    account: Account
    rows: list[LaneRow] = field(default_factory=list)
    output: dict[str, list[Batch]] = field(default_factory=dict)
    log: int = -1
    taken: int = 0
    clock: ClockRecord | None = None
    reach: Reach = field(default_factory=Reach)

    @property
    def entries(self) -> list[State]:
        """The states of the operators that take inputs."""
        return [self.lane.states[step] for step in self.spec.entry_steps]

    @property
    def attached(self) -> list[InputStatus]:
        """The inputs that take part."""
        return [status for state in self.entries for status in state.inputs]

    @property
    def last(self) -> State:
        """The state of the operator whose output is the lane's."""
        return self.lane.states[self.spec.source]

    def row(self, channel: str, **values: Any) -> None:
        """Add a row of this step."""
        self.rows.append(LaneRow(channel, self.number, self.lane.steps, **values))


@dataclass(frozen=True)
class Made:
    """What a lane made of a trigger: rows for the writer, parcels for the next stage."""

    rows: list[LaneRow]
    parcels: list[Parcel]
    record: LaneRecord


def make(number: int, lane: Lane, parcels: Sequence[Parcel], spec: LaneSpec) -> Made:
    """Take the steps of one trigger."""
    counting = number == COUNTING_LANE
    now = _Trigger(number, lane, spec, Account(counting=counting))
    if spec.before is None:
        _take_inputs(now, parcels)
        # Rows of DataFrames come after all entries of the log, and are none.
        now.log = max((one.log for one in parcels if one.log < FOREVER_UNITS), default=-1)
        lane.log = max(lane.log, now.log)
    else:
        _take_stage(now, parcels, spec.before)
    sent = [] if spec.after is None else _sent(now, spec.after)
    return Made(now.rows, sent, _record(now))


def _take_stage(now: _Trigger, parcels: Sequence[Parcel], lanes: int) -> None:
    """One step with all streams of the stage before."""
    given: dict[str, Inputs] = {}
    # Where the lanes before make the output, their steps number its rows.
    now.lane.steps = max([now.lane.steps, *(one.log for one in parcels)])
    for name, schema in now.spec.receives:
        mine = [one for one in parcels if one.input == name]
        passed = now.lane.passed.get(name, int(NEVER_UNITS))
        batch, now.lane.passed[name] = gathered(mine, lanes, passed, schema)
        given[name] = Inputs((Arrival(name, batch),))
        now.taken += int(batch.is_data.sum())
        now.output.setdefault(name, []).append(_data(batch))
    now.reach = Reach.of(parcels, list(given))
    _step(now, now.reach.given(now.spec.pipeline, now.lane.states, given), {})
    now.lane.steps += 1


def _take_positions(now: _Trigger, parcels: Sequence[Parcel]) -> None:
    """Note how far Kafka's partitions are read; refuse a reader that begins too late.

    The driver cannot ask Spark where a reader begins, so it is left a mark: the next start
    restarts this checkpoint with what the user has changed.
    """
    spans: dict[str, list[Span]] = {}
    for one in parcels:
        if one.facts is not None:
            spans.setdefault(one.input, []).extend(one.facts.spans)
    try:
        now.lane.positions.take(spans)
    except StateError:
        if now.spec.exported is not None:
            (Path(now.spec.exported).parent / TOO_LATE).touch()
        raise


def _take_inputs(now: _Trigger, parcels: Sequence[Parcel]) -> None:
    lane, spec = now.lane, now.spec
    _take_positions(now, parcels)
    known = {status.name: status.attachment for status in now.attached} | lane.gone
    is_first = not lane.steps

    def order_of(name: str) -> Order:
        # The inputs of the first step are complete; a later one must declare it.
        order = spec.entry(name).order
        return replace(order, newcomers=None) if is_first else order

    for one in sorted((p for p in parcels if p.entry == CHANGE), key=lambda p: p.log):
        _control(now, NewSettings(one.settings or ""))
        lane.steps += 1
    others = [one for one in parcels if one.entry not in (CHANGE, BEAT, CLOCK)]
    every = rounds(others, order_of, known)
    now.reach = Reach.of_rows(parcels, spec.entry_steps)
    for each in every:
        _round(now, each, is_last=each is every[-1])
    _beat(now, [one for one in parcels if one.entry in (BEAT, CLOCK)])
    refused: list[Refused] = []
    for parcel in parcels:
        if parcel.facts is not None:
            now.account.add_facts(parcel.input, parcel.facts)
            refused += parcel.facts.refused
    if refused:
        columns = {name: [getattr(one, name) for one in refused] for name in ORIGIN.names}
        origin = pa.table(columns, schema=ORIGIN)
        now.rows.append(LaneRow(VIOLATIONS, now.number, lane.steps - 1, origin=origin))


def _beat(now: _Trigger, parcels: Sequence[Parcel]) -> None:
    """Let the clocks infer stables, after all rows of the trigger."""
    lane, spec = now.lane, now.spec
    pace = advance(lane.clocks, spec.clocks, parcels, now.attached)
    if pace.beats and now.number == COUNTING_LANE:
        now.clock = record_of(lane.clocks, pace)
    for name in pace.awaited:
        _control(now, Await(name))
        lane.steps += 1
    if pace.stables:
        attached = {one.name: one.attachment for one in now.attached}
        arrivals = [
            Arrival(
                name, stable_at(time, spec.schema(name)), None, attached[name], inferred=True
            )
            for name, time in sorted(pace.stables.items())
        ]
        _step(now, _by_entry(now, arrivals), {}, counted=False)
        lane.steps += 1
    for name in pace.passed:
        _control(now, PassOver(name))
        lane.steps += 1


def _round(now: _Trigger, one: Round, *, is_last: bool) -> None:
    lane = now.lane
    for name, attachment, guarantee in one.attached:
        if attachment > lane.gone.get(name, 0):
            lane.gone.pop(name, None)
            _control(now, Attach(name, attachment, guarantee))
        lane.steps += 1
    for name in one.passed:
        _control(now, PassOver(name))
        lane.steps += 1
    now.taken += sum(int(item.batch.is_data.sum()) for item in [*one.received, *one.after])
    taken = [item for item in one.received if item.attachment > lane.gone.get(item.input, 0)]
    arrivals = [
        Arrival(
            item.input,
            item.batch,
            guarantee=item.guarantee,
            attachment=item.attachment,
            inferred=now.spec.infers(item.input),
        )
        for item in taken
    ]
    mine: dict[str, list[Received]] = {step: [] for step in now.spec.entry_steps}
    for item in taken:
        mine[now.spec.entry(item.input).step].append(item)
    given = _by_entry(now, arrivals)
    if is_last:
        given = now.reach.given(now.spec.pipeline, lane.states, given)
    _step(now, given, mine)
    left = [item for item in one.received if item not in taken]
    for item in [*left, *one.after]:
        _quarantine_left(now, item)
    lane.steps += 1
    for name, attachment in one.detached:
        inputs = [one for one in now.attached if one.name == name]
        if any(one.attachment > attachment for one in inputs):
            continue  # it has returned before this entry was read
        if inputs:
            _control(now, Detach(name))
        lane.gone[name] = attachment
        lane.positions.forget(name)
        lane.steps += 1


def _by_entry(now: _Trigger, arrivals: Sequence[Arrival]) -> dict[str, Inputs]:
    """What each entry takes, if it is nothing."""
    mine: dict[str, list[Arrival]] = {step: [] for step in now.spec.entry_steps}
    for one in arrivals:
        mine[now.spec.entry(one.input).step].append(one)
    return {step: Inputs(tuple(some)) for step, some in mine.items()}


def _control(now: _Trigger, entry: ControlEntry) -> None:
    concerned = (
        now.spec.entry_steps
        if isinstance(entry, NewSettings)
        else (now.spec.entry(entry.input).step,)
    )
    _step(now, {step: Inputs(control=(entry,)) for step in concerned}, {})


def _step(
    now: _Trigger,
    given: Mapping[str, Inputs],
    taken: Mapping[str, Sequence[Received]],
    *,
    counted: bool = True,
) -> None:
    """One step of the whole pipeline, and what came of it.

    Elements that are not `counted` came from no source: they are in no bucket.
    """
    spec = now.spec
    results: dict[str, StepResult] = {}
    for one, inputs, made in run(spec.pipeline, now.lane.states, given):
        takes_inputs = spec.before is None and one.id in given
        result = made if counted or not takes_inputs else replace(made, buckets=(), reasons=())
        results[one.id] = result
        if takes_inputs:
            mine = taken.get(one.id, ())
            now.account.add(mine, result, now.lane.states[one.id].inputs)
        else:
            mine = [_from_stage(arrival.input, arrival.batch) for arrival in inputs.arrivals]
        now.account.add_counts(result, takes_inputs=takes_inputs)
        _quarantine(now, mine, result)
        if result.rows is not None and result.rows.num_rows:
            now.row(ROWS, origin=result.rows)
    _emit(now, results)


def _emit(now: _Trigger, results: Mapping[str, StepResult]) -> None:
    """The output of the steps: for the next stage, or as rows."""
    spec, reporter = now.spec, now.spec.pipeline[-1].id
    if spec.after is not None and not spec.after.only_stables:
        for step, result in results.items():
            now.output.setdefault(step, []).append(_data(result.output))
        return
    if spec.final and reporter in results:
        final = results[reporter].final
        assert final is not None, f"{reporter} does not report what becomes final"
        now.account.output[FINAL] += len(final)
        _elements(now, final, FINAL)
    if spec.source not in results:
        return
    output = results[spec.source].output
    # One lane alone emits the stable: the frontier is the same in all of them, or the least of
    # them is found by a lane behind.
    emits = now.number == COUNTING_LANE and spec.after is None
    output = output if emits else _data(output)
    now.account.output[ELEMENTS] += len(output)
    _elements(now, output, ELEMENTS)


def _from_stage(sender: str, batch: Batch) -> Received:
    """Elements that another operator sent: their rows have no place in any file."""
    none = np.zeros(len(batch), np.int64)
    return Received(sender, 1, None, batch, pa.table({}), (None,), none)


def _data(output: Batch) -> Batch:
    """The elements but the stables; the one stable of a step comes last."""
    before = output.slice(0, len(output) - 1) if len(output) else output
    for some in (output, before):
        if some.is_data.all():
            return some
    return output.take(np.flatnonzero(output.is_data))


def _elements(now: _Trigger, output: Batch, channel: str) -> None:
    for first, end in cut(len(output)):
        now.row(channel, first=first, batch=output.slice(first, end))


def _sent(now: _Trigger, after: NextStage) -> list[Parcel]:
    """The elements of the trigger for each lane of the next stage, with the frontiers."""
    made: list[Parcel] = []
    for one in after.sends:
        state = now.lane.states.get(one.of)
        frontier = now.lane.passed[one.of] if state is None else int(state.frontier)
        base = Parcel(lane=0, input=one.name, part=now.number, frontier=frontier)
        base = replace(base, greatest=now.reach.at.get(one.of), at=now.reach.time)
        lanes = after.lanes
        if after.only_stables:
            base = replace(base, log=now.lane.steps - 1)
        if one.is_native:
            base, lanes = replace(base, entry=UNROUTED), 1
        output = [some for some in now.output.get(one.of, ()) if len(some)]
        if output:
            made += pieces(base, concat(output), pa.table({}), lanes, one.routing)
        else:
            made += in_every_lane(base, lanes)
    return made


def _quarantine(now: _Trigger, taken: Sequence[Received], result: StepResult) -> None:
    for channel, bucket in ((LATE, Bucket.LATE), (VIOLATIONS, Bucket.VIOLATION)):
        for item, buckets, reasons in zip(taken, result.buckets, result.reasons, strict=True):
            where = np.flatnonzero(buckets == bucket)
            if len(where) and now.spec.strict and bucket is Bucket.VIOLATION:
                raise _stop(item, where, reasons)
            for first, end in cut(len(where)):
                some = where[first:end]
                rows, texts = item.batch.take(some), [REASONS[c].text for c in reasons[some]]
                if bucket is Bucket.LATE and now.spec.infers(item.input):
                    texts = explained(
                        now.lane, now.spec, item.input, rows, take(item.places, some), texts
                    )
                origin = _origin(item, some, texts)
                now.row(channel, batch=_kept(now, rows), origin=origin)
    for held in result.resolved:
        where = np.flatnonzero(held.buckets == Bucket.LATE)
        if len(where):
            texts = [REASONS[code].text for code in held.reasons[where]]
            rows = held.batch.take(where)
            if now.spec.infers(held.replica):
                texts = explained(now.lane, now.spec, held.replica, rows, pa.table({}), texts)
            nowhere: list[Any] = [None] * len(where)
            origin = _origins(texts, held.replica, nowhere, nowhere)
            now.row(LATE, batch=_kept(now, rows), origin=origin)


def _kept(now: _Trigger, batch: Batch) -> Batch:
    """Rows that were not taken, with the columns that those of all inputs are kept with."""
    schema = now.spec.late
    if schema is None:
        return batch
    known = set(batch.payload.column_names)
    columns = [
        batch.payload.column(one.name) if one.name in known else pa.nulls(len(batch), one.type)
        for one in schema.payload
    ]
    payload = pa.table(columns, schema=schema.payload)
    return replace(batch, schema=schema, payload=payload, seq=None, hashes=None)


def _quarantine_left(now: _Trigger, item: Received) -> None:
    """Elements of an input that has left are kept as violations."""
    rows = np.arange(len(item.batch))
    if now.number != COUNTING_LANE:
        rows = np.flatnonzero(item.batch.is_data)
    now.account.add_left(item.input, len(rows))
    for first, end in cut(len(rows)):
        some = rows[first:end]
        origin = _origin(item, some, [LEFT] * len(some))
        now.row(VIOLATIONS, batch=_kept(now, item.batch.take(some)), origin=origin)


def _origin(item: Received, rows: Ints, reasons: Sequence[str]) -> pa.Table:
    files, numbers = item.origin(rows)
    return _origins(reasons, item.input, files, numbers)


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


def _record(now: _Trigger) -> LaneRecord:
    states = [(one, now.lane.states[one.id]) for one in now.spec.pipeline]
    is_first = now.spec.before is None
    attached = now.attached if is_first else ()
    live = sum(one.live for one in now.entries) if is_first else states[0][1].live
    return LaneRecord(
        lane=now.number,
        stage=now.spec.stage,
        steps=now.lane.steps,
        replicas=now.account.replicas(attached),
        output=now.account.output,
        operators={
            one.id: OperatorRecord(
                operator=one.operator.name,
                frontier=shown(state.frontier),
                live=state.live,
                facts=shown_facts(state.facts),
            )
            for one, state in states
        },
        frontier=shown(now.last.frontier),
        live=live,
        log=now.log,
        leader=leader(attached),
        violators=now.account.violators,
        frame_bytes=now.account.frame_bytes,
        first_trigger=now.spec.first_trigger,
        taken=now.taken,
        clock=now.clock,
    )
