"""The lines of `anabranch merge --json`: each trigger once, with its time if Spark has it."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from test_warn_share import record

from anabranch.cli.trigger_lines import TriggerLines
from anabranch.spark.progress import Totals
from anabranch.spark.session.about import about


def reported(trigger: int, *, idle: bool = False) -> dict[str, Any]:
    return {
        "batchId": trigger,
        "timestamp": "2026-01-02T03:04:05.678Z",
        "durationMs": {"triggerExecution": 5 if idle else 250},
        "observedMetrics": {} if idle else {"anabranch-run-1": ["{}"]},
    }


def test_a_line_waits_until_spark_has_reported_its_trigger() -> None:
    printed: list[str] = []
    lines = TriggerLines(printed.append)
    query = SimpleNamespace(recentProgress=[reported(0), reported(1, idle=True)])
    lines.take(Totals(last=record(0, 3)))
    lines.take(Totals(last=record(1, 4)))
    lines.show(query)
    assert [json.loads(one)["trigger"] for one in printed] == [0]
    query.recentProgress.append(reported(1))
    lines.show(query)
    lines.show(query)
    first, second = map(json.loads, printed)
    assert (first["timestamp"], first["duration_ms"]) == ("2026-01-02T03:04:05.678Z", 250)
    assert (second["trigger"], second["rows"], second["duration_ms"]) == (1, 4, 250)


def test_at_the_end_a_trigger_that_spark_has_not_reported_is_printed_too() -> None:
    printed: list[str] = []
    lines = TriggerLines(printed.append)
    lines.take(Totals(last=record(7, 3)))
    lines.show(SimpleNamespace(recentProgress=[]), at_end=True)
    [line] = map(json.loads, printed)
    assert (line["trigger"], line["duration_ms"]) == (7, None)
    assert line["timestamp"].endswith("Z")


def test_the_line_about_spark_names_its_ui_if_it_is_on() -> None:
    settings = {"spark.master": "local[2]", "spark.driver.host": "127.0.0.1"}
    session: Any = SimpleNamespace(version="4.3.0", conf=settings)
    assert "Spark 4.3.0 on local[2]; its UI is http://127.0.0.1:4040 (if" in about(session)
    settings["spark.ui.enabled"] = "false"
    assert "its UI is off, --conf spark.ui.enabled=true" in about(session)


def test_a_spark_that_is_gone_at_the_end_hides_no_line() -> None:
    class Gone:
        @property
        def recentProgress(self) -> Any:  # noqa: N802
            raise ConnectionError

    printed: list[str] = []
    lines = TriggerLines(printed.append)
    lines.take(Totals(last=record(7, 3)))
    with pytest.raises(ConnectionError):
        lines.show(Gone())
    lines.show(Gone(), at_end=True)
    assert len(printed) == 1
