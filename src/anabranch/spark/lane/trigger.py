"""Runs the pipeline of one lane on the parcels of one trigger, without Spark.

`make` takes a step per round and returns rows for the writer (parcels of output elements, of
late rows and violations with their origin) and one progress record.  A lane whose stage is
followed by another sends its elements to the lanes of that stage instead.

Steps are numbered for ever; every lane of a stage takes every step, so the number of a step is
the same in all of them, and orders the output.  A change of membership is a step of its own: by
some policies it changes the output, and moves its frontier.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch, concat
from anabranch.errors import StateError
from anabranch.operators.contract import (
    Arrival,
    Attach,
    Await,
    ControlEntry,
    Detach,
    Inputs,
    NewSettings,
    PassOver,
    StepResult,
)
from anabranch.operators.pipeline import run
from anabranch.sources.channels import ELEMENTS, FINAL, ROWS, VIOLATIONS
from anabranch.spark.lane.account import Account, leader
from anabranch.spark.lane.exported import TOO_LATE
from anabranch.spark.lane.heartbeats import advance, record_of
from anabranch.spark.lane.now import Trigger
from anabranch.spark.lane.quarantine import (
    Place,
    forces,
    from_stage,
    quarantine,
    quarantine_left,
)
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
from anabranch.spark.progress import LaneRecord, shown


@dataclass(frozen=True)
class Made:
    """What a lane made of a trigger: rows for the writer, parcels for the next stage."""

    rows: list[LaneRow]
    parcels: list[Parcel]
    record: LaneRecord


def make(number: int, lane: Lane, parcels: Sequence[Parcel], spec: LaneSpec) -> Made:
    """Take the steps of one trigger."""
    counting = number == COUNTING_LANE
    now = Trigger(number, lane, spec, Account(counting=counting))
    if spec.before is None:
        _take_inputs(now, parcels)
        # Rows of DataFrames come after all entries of the log, and are none.
        now.log = max((one.log for one in parcels if one.log < FOREVER_UNITS), default=-1)
        lane.log = max(lane.log, now.log)
    else:
        _take_stage(now, parcels, spec.before)
    sent = [] if spec.after is None else _sent(now, spec.after)
    return Made(now.rows, sent, _record(now))


def _take_stage(now: Trigger, parcels: Sequence[Parcel], lanes: int) -> None:
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


def _take_positions(now: Trigger, parcels: Sequence[Parcel]) -> None:
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


def _take_inputs(now: Trigger, parcels: Sequence[Parcel]) -> None:
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


def _beat(now: Trigger, parcels: Sequence[Parcel]) -> None:
    """Let the clocks infer stables, after all rows of the trigger."""
    lane, spec = now.lane, now.spec
    pace = advance(lane.clocks, spec.clocks, parcels, now.attached)
    if pace.beats and now.number == COUNTING_LANE:
        now.clock = record_of(lane.clocks, pace, keeps_ends=spec.keeps_ends)
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


def _round(now: Trigger, one: Round, *, is_last: bool) -> None:
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
        quarantine_left(now, item)
    lane.steps += 1
    _leave(now, one.detached)


def _leave(now: Trigger, detached: Sequence[tuple[str, int]]) -> None:
    """Let inputs leave after their elements."""
    lane = now.lane
    for name, attachment in detached:
        inputs = [one for one in now.attached if one.name == name]
        if any(one.attachment > attachment for one in inputs):
            continue  # it has returned before this entry was read
        if inputs:
            _control(now, Detach(name))
        lane.gone[name] = attachment
        lane.positions.forget(name)
        lane.steps += 1


def _by_entry(now: Trigger, arrivals: Sequence[Arrival]) -> dict[str, Inputs]:
    """What each entry takes, if it is nothing."""
    mine: dict[str, list[Arrival]] = {step: [] for step in now.spec.entry_steps}
    for one in arrivals:
        mine[now.spec.entry(one.input).step].append(one)
    return {step: Inputs(tuple(some)) for step, some in mine.items()}


def _control(now: Trigger, entry: ControlEntry) -> None:
    concerned = (
        now.spec.entry_steps
        if isinstance(entry, NewSettings)
        else (now.spec.entry(entry.input).step,)
    )
    _step(now, {step: Inputs(control=(entry,)) for step in concerned}, {})


def _step(
    now: Trigger,
    given: Mapping[str, Inputs],
    taken: Mapping[str, Sequence[Received]],
    *,
    counted: bool = True,
) -> None:
    """One step of the whole pipeline, and what came of it.

    Elements that are not `counted` came from no source: they are in no bucket.
    """
    spec, states = now.spec, now.lane.states
    results: dict[str, StepResult] = {}
    passed = {one.id: int(states[one.id].frontier) for one in spec.pipeline if forces(one)}
    for one, inputs, made in run(spec.pipeline, states, given):
        takes_inputs = spec.before is None and one.id in spec.entry_steps
        result = made if counted or not takes_inputs else replace(made, buckets=(), reasons=())
        results[one.id] = result
        now.account.add_flow(one.id, inputs, result)
        if takes_inputs:
            mine = taken.get(one.id, ())
            now.account.add(mine, result, now.lane.states[one.id].inputs)
        else:
            mine = [from_stage(arrival.input, arrival.batch) for arrival in inputs.arrivals]
        now.account.add_counts(result, takes_inputs=takes_inputs)
        quarantine(now, mine, result, Place(one.id, passed.get(one.id), takes_inputs))
        if result.rows is not None and result.rows.num_rows:
            now.row(ROWS, origin=result.rows)
    _emit(now, results)


def _emit(now: Trigger, results: Mapping[str, StepResult]) -> None:
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


def _data(output: Batch) -> Batch:
    """The elements but the stables; the one stable of a step comes last."""
    before = output.slice(0, len(output) - 1) if len(output) else output
    for some in (output, before):
        if some.is_data.all():
            return some
    return output.take(np.flatnonzero(output.is_data))


def _elements(now: Trigger, output: Batch, channel: str) -> None:
    for first, end in cut(len(output)):
        now.row(channel, first=first, batch=output.slice(first, end))


def _sent(now: Trigger, after: NextStage) -> list[Parcel]:
    """The elements of the trigger for each lane of the next stage, with the frontiers."""
    made: list[Parcel] = []
    for one in after.sends:
        state = now.lane.states.get(one.of)
        frontier = now.lane.passed[one.of] if state is None else int(state.frontier)
        base = Parcel(lane=0, input=one.name, part=now.number, frontier=frontier)
        base = replace(base, greatest=now.reach.at.get(one.of), at=now.reach.time)
        base = replace(base, settings=now.reach.level)
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


def _record(now: Trigger) -> LaneRecord:
    states = [(one, now.lane.states[one.id]) for one in now.spec.pipeline]
    is_first = now.spec.before is None
    attached, described = now.attached if is_first else (), now.spec.described
    live = sum(one.live for one in now.entries) if is_first else states[0][1].live
    return LaneRecord(
        lane=now.number,
        stage=now.spec.stage,
        steps=now.lane.steps,
        replicas=now.account.replicas(attached),
        output=now.account.output,
        operators={
            one.id: now.account.operator(one, state, described) for one, state in states
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
