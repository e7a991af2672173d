"""What each option of a workload does, measured; and what is refused, with options named."""

from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest

from anabranch.batch.batch import ADJUST, INSERT, STABLE
from anabranch.batch.schema import TimeType
from anabranch.batch.times import to_units
from anabranch.errors import UsageError
from anabranch.generator.workload import Workload
from anabranch.model.properties import MergeCase

R0, R1, R2, R3, R4 = MergeCase


def disorder(workload: Workload, replica: int) -> float:
    """The share of inserts that start before one that came earlier."""
    presented = workload.present(replica)
    starts = presented.start[presented.kind == INSERT]
    return float(np.mean(starts < np.maximum.accumulate(starts)))


@pytest.mark.parametrize("asked", [0.05, 0.2, 0.5])
def test_disorder_is_the_share_of_events_out_of_order(asked: float) -> None:
    workload = Workload(events=20_000, disorder=asked, revisions=0)
    for replica in range(3):
        assert disorder(workload, replica) == pytest.approx(asked, rel=0.1)


def test_nothing_comes_later_than_the_bound() -> None:
    workload = Workload(events=5_000, disorder=0.5, revisions=0.3, bound=100)
    presented = workload.present(1)
    data = presented.kind != STABLE
    newest = np.maximum.accumulate(np.where(presented.kind == INSERT, presented.start, 0))[data]
    kind, start = presented.kind[data], presented.start[data]
    touches = np.where(
        kind == INSERT, start, np.minimum(presented.old_end[data], presented.end[data])
    )
    assert (newest - touches).max() <= 100
    assert (newest - touches).max() > 50


@pytest.mark.parametrize("asked", [0.001, 0.01, 0.1])
def test_stable_freq_is_the_share_of_stables(asked: float) -> None:
    workload = Workload(events=50_000, stable_freq=asked, case=R1)
    presented = workload.present(0)
    assert presented.count(STABLE) / len(presented) == pytest.approx(asked, rel=0.25)


def test_disorder_costs_few_stables() -> None:
    presented = Workload(events=50_000, stable_freq=0.01).present(0)
    assert presented.count(STABLE) / len(presented) == pytest.approx(0.01, rel=0.25)


def test_stables_follow_the_events() -> None:
    workload = Workload(events=20_000)
    for replica in range(3):
        presented = workload.present(replica)
        stables = presented.kind == STABLE
        newest = np.maximum.accumulate(np.where(stables, 0, presented.start))
        behind = (newest - presented.start)[stables][:-1]
        assert np.median(behind) < 6 * workload.reach


def test_the_first_replica_promises_all_it_can_and_others_less() -> None:
    workload = Workload(events=5_000, replicas=6, case=R1, stable_freq=0.1)
    slack = []
    for replica in range(6):
        presented = workload.present(replica)
        rest = np.where(presented.kind == STABLE, 2**62, presented.start)
        limit = np.minimum.accumulate(rest[::-1])[::-1]
        stables = np.flatnonzero(presented.kind == STABLE)[:-1]
        slack.append(np.mean(limit[stables] - presented.start[stables]))
    assert slack[0] == 0
    assert all(0 < mean < 50 * workload.max_gap for mean in slack[1:])
    # Some promise what they could have promised one or two stables ago, some only a part less.
    assert max(slack[1:]) > 4 * min(slack[1:])


def test_revisions_is_the_share_of_events_with_adjusts() -> None:
    workload = Workload(events=20_000, revisions=0.3, disorder=0)
    presented = workload.present(1)
    events = ~workload.truth.phantom
    revised = np.unique(presented.row[presented.kind == ADJUST])
    assert np.count_nonzero(events[revised]) / 20_000 == pytest.approx(0.3, rel=0.1)
    phantoms = np.unique(presented.row[presented.kind == INSERT])
    assert np.count_nonzero(~events[phantoms]) == pytest.approx(
        0.3 * 0.2 * 0.5 * 20_000, rel=0.1
    )


def test_without_revisions_there_are_neither_adjusts_nor_endless_events() -> None:
    workload = Workload(events=5_000, revisions=0)
    assert workload.present(2).count(ADJUST) == 0
    assert workload.history()["end"].null_count == 0


def test_gap_rate_is_the_share_that_each_replica_but_the_first_misses() -> None:
    workload = Workload(events=20_000, gap_rate=0.1)
    there = [workload.history(replica=replica).num_rows for replica in range(3)]
    assert there[0] == 20_000
    assert there[1:] == [pytest.approx(18_000, rel=0.02)] * 2


def test_duplicates_is_the_share_of_repeated_identities() -> None:
    history = Workload(case=R4, events=20_000, duplicates=0.25, payload_bytes=20).history()
    names = history.group_by(["start", "value", "data"]).aggregate([]).num_rows
    assert names == pytest.approx(15_000, rel=0.03)


def test_events_last_as_long_as_asked_and_else_ten_thousand_are_alive() -> None:
    plain = Workload(events=1_000, case=R0, duration=77).history()
    assert set(pc.subtract(plain["end"], plain["start"]).to_pylist()) == {77}
    workload = Workload(events=200_000, case=R1, payload_bytes=0)
    history = workload.history()
    start, end = (np.asarray(history[name]) for name in ("start", "end"))
    middle = start[150_000]
    alive = np.count_nonzero((start <= middle) & (middle < end))
    assert alive == pytest.approx(10_000, rel=0.2)


def test_gaps_are_uniform_up_to_max_gap() -> None:
    starts = np.asarray(Workload(events=50_000, max_gap=4).history()["start"])
    counts = np.bincount(np.diff(starts))
    assert counts / counts.sum() == pytest.approx([0.2] * 5, rel=0.1)


def test_values_are_uniform_from_0_to_400() -> None:
    values = np.asarray(Workload(events=100_000, payload_bytes=0).history()["value"])
    assert values.min() == 0
    assert values.max() == 400
    assert np.bincount(values).min() > 150


@pytest.mark.parametrize("width", [0, 1, 8, 13, 1_000])
def test_data_has_as_many_bytes_as_asked(width: int) -> None:
    data = Workload(events=50, payload_bytes=width).replica(0)["data"]
    assert set(pc.binary_length(data).to_pylist()) == {width, None}
    letters = {letter for text in data.to_pylist() if text is not None for letter in text}
    assert letters <= set("abcdefghijklmnop")


def test_times_are_as_asked() -> None:
    table = Workload(events=10, time=TimeType.TIMESTAMP, first=10**15).replica(0)
    assert {str(table.schema.field(name).type) for name in ("start", "end", "old_end")} == {
        "timestamp[us, tz=UTC]"
    }


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"case": R0, "disorder": 0.2}, "--case r0 and --disorder 0.2 contradict"),
    ({"case": R2, "revisions": 0.1}, "--case r2 and --revisions 0.1 contradict"),
    ({"case": R3, "duplicates": 0.1}, "--case r3 and --duplicates 0.1 contradict"),
    ({"case": R1, "gap_rate": 0.1}, "--case r1 and --gap-rate 0.1 contradict"),
    ({"replicas": 1, "gap_rate": 0.1}, "--gap-rate 0.1 and --replicas 1 contradict"),
    ({"case": R1, "events": 1}, "--events 1 cannot show --case r1"),
    (
        {"case": R4, "events": 1},
        "--events 1 cannot show --case r4: it takes two events with one id",
    ),
    ({"case": R2, "replicas": 1}, "--replicas 1 cannot show --case r2"),
    ({"disorder": 0, "revisions": 0}, "--disorder 0 and --revisions 0 would be a cheaper case"),
    ({"events": 1, "revisions": 0}, "--events 1 with --max-gap 20 cannot be in disorder"),
    ({"case": R4, "events": 2, "revisions": 0}, "--events 2 with --max-gap 20 cannot be in"),
    ({"max_gap": 0, "revisions": 0}, "--max-gap 0 cannot be in disorder"),
    ({"bound": 20}, "--bound 20 and --max-gap 20 leave no room"),
    ({"case": R0, "max_gap": 0}, "--max-gap is 0; it must be at least 1 for case r0"),
    ({"events": 0}, "--events is 0; it must be at least 1"),
    ({"replicas": 0}, "--replicas is 0"),
    ({"duration": 0}, "--duration is 0"),
    ({"payload_bytes": -1}, "--payload-bytes is -1"),
    ({"payload_bytes": 2**15}, "--payload-bytes is 32768; it must be at most"),
    ({"seed": -1}, "--seed is -1"),
    ({"stable_freq": 0.6}, "--stable-freq is 0.6; it must be from 0 to 0.5"),
    ({"disorder": 1.1}, "--disorder is 1.1; it is a share"),
    ({"gap_rate": float("nan")}, "--gap-rate is nan; it is a share"),
    ({"events": 2**40, "max_gap": 2**30}, "do not fit into 64 bit times"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Workload(**options)


def test_options_of_zero_do_not_contradict_a_case() -> None:
    assert Workload(case=R0, disorder=0.0, revisions=0).disorder_share == 0


def test_more_events_at_one_time_than_payloads_are_refused() -> None:
    with pytest.raises(UsageError, match="raise --max-gap"):
        Workload(case=R1, events=500, max_gap=0).history()
    assert Workload(case=R1, events=401, max_gap=0, payload_bytes=0).history().num_rows == 401


@pytest.mark.parametrize(
    ("text", "time", "units"),
    [
        ("20", TimeType.BIGINT, 20),
        (" 20 ", TimeType.BIGINT, 20),
        ("10 minutes", TimeType.TIMESTAMP, 600_000_000),
        ("1 Hour", TimeType.TIMESTAMP, 3_600_000_000),
        ("1.5seconds", TimeType.TIMESTAMP, 1_500_000),
        ("3 microseconds", TimeType.TIMESTAMP, 3),
    ],
)
def test_durations(text: str, time: TimeType, units: int) -> None:
    assert to_units(text, time) == units


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1 month", TimeType.TIMESTAMP),
        ("20", TimeType.TIMESTAMP),
        ("0.5 microseconds", TimeType.TIMESTAMP),
        ("ten minutes", TimeType.TIMESTAMP),
        ("20 seconds", TimeType.BIGINT),
        ("1.5", TimeType.BIGINT),
    ],
)
def test_durations_that_are_none_are_refused(text: str, time: TimeType) -> None:
    with pytest.raises(UsageError, match="--max-gap"):
        to_units(text, time, option="--max-gap")
