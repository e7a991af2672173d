"""Warnings of rows that were not merged: when they begin, by how many rows, and where."""

from dataclasses import replace
from typing import Any

import pytest

from anabranch.errors import UsageError
from anabranch.spark.progress import ReplicaRecord, TriggerRecord
from anabranch.spark.run.budget import BudgetWarner
from anabranch.spark.run.shares import WINDOW, ShareWarner

PLACES = {"late": "out/late", "violations": "out/violations", "missing": "out/late too"}


def record(trigger: int, rows: int, *, late: int = 0, bad: int = 0, gaps: int = 0) -> Any:
    counts = dict.fromkeys(("emitted", "absorbed", "corrected", "pending", "lacks", "alone"), 0)
    replica = ReplicaRecord(
        rows=rows, **counts, late=late, violation=bad, frontier=None, lag=None, joined=True,
        attached=True, standing="leader",
    )  # fmt: skip
    return TriggerRecord(
        trigger=trigger, rows=rows, replicas={"a": replica}, output={"missing": gaps},
        frontier=None, leader="a", lag=None, live=0, state_bytes=0, alarm=None, stretches=[],
        violators=[],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({"late": 2}, "2 rows were late, of 100 rows in the last 1 triggers"),
        ({"bad": 2}, "2 rows broke a promise or are not elements, of 100"),
        ({"gaps": 2}, "2 events were left out by the replica that decides, of 100"),
    ],
)
def test_a_share_is_warned_of_when_it_begins(
    counts: dict[str, int], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    warner = ShareWarner(0.01, PLACES)
    for trigger in range(3):
        warner.warn(record(trigger, 100, **counts))
    warner.warn(record(2, 100, **counts))  # repeated
    [found] = caplog.messages
    assert words in found
    assert "(2.0%; warn_share is 1.00%); look into out/" in found


def test_it_begins_again_after_the_share_has_fallen(caplog: pytest.LogCaptureFixture) -> None:
    warner = ShareWarner(0.1, PLACES)
    warner.warn(record(0, 100, late=11))
    warner.warn(record(1, 100))  # 5.5 %: below the limit, not below half of it
    warner.warn(record(2, 100, late=30))
    assert len(caplog.messages) == 1
    for trigger in range(3, 3 + WINDOW):
        warner.warn(record(trigger, 100))
    warner.warn(record(200, 100_000, late=20_000))
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(("limit", "late"), [(0.0, 100), (0.5, 50), (1.0, 100)])
def test_there_is_none_at_the_limit_or_if_switched_off(
    limit: float, late: int, caplog: pytest.LogCaptureFixture
) -> None:
    ShareWarner(limit, PLACES).warn(record(0, 100, late=late))
    assert caplog.messages == []


@pytest.mark.parametrize("limit", [-0.1, 1.5, float("nan")])
def test_what_is_no_share_is_rejected(limit: float) -> None:
    with pytest.raises(UsageError, match="expected a share of the rows from 0 to 1"):
        ShareWarner(limit, PLACES)


def test_a_trigger_above_the_budget_names_the_options_of_sources(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warner = BudgetWarner(1000)
    for trigger, size in enumerate((1000, 1001, 2001, 1500, 2002)):
        warner.warn(replace(record(trigger, 100), frame_bytes=size))
    assert [text.split(" bytes")[0] for text in caplog.messages] == [
        "trigger 1 took 1,001",
        "trigger 4 took 2,002",
    ]
    for option in ("maxBytesPerTrigger", "maxFilesPerTrigger", "maxOffsetsPerTrigger"):
        assert option in caplog.messages[0]
    assert "max_bytes_per_trigger (1,000)" in caplog.messages[0]
