"""What a type checker must believe of the public names; run by `make check`, never called."""

from pathlib import Path
from typing import assert_type

import anabranch as ab
from anabranch import model
from anabranch.checker.verdict import Verdict


def elements() -> None:
    assert_type(model.parse("stable 1"), list[model.Insert | model.Adjust | model.Stable])
    assert_type(ab.model.History.of(model.parse("insert a 1..2")).events(), list[model.Event])
    assert_type(model.show_element(model.Stable(model.FOREVER)), str)


def merged() -> None:
    outcome = ab.testing.MergeR3().push("east", model.Insert("a", 3, 9))
    assert_type(outcome.output, tuple[model.Insert | model.Adjust | model.Stable, ...])


def checked() -> None:
    assert_type(ab.check(Path("out"), "truth"), Verdict)


def on_spark() -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    rows = ab.read_output(ab.session(), "out")
    assert_type(rows, DataFrame)
    assert_type(ab.inbox("in"), ab.Inbox)
    assert_type(ab.elements(rows, name="north"), ab.Stream)
    merged = ab.merge(ab.inbox("in"), ab.elements(rows, name="north"), policy=ab.Policy())
    assert_type(merged, ab.Merged)
    assert_type(merged.final(), DataFrame)
    query = merged.start("checkpoint", output="out", once=True)
    assert_type(query, ab.RunningQuery)
    assert_type(query.totals, ab.Totals)
    assert_type(query.wait(1), bool)
    assert_type(query.awaitTermination(1), bool | None)
    assert_type(query.isActive, bool)
    assert_type(query.lastProgress, StreamingQueryProgress | None)
    assert_type(query.silent("1 minute"), list[str])
    counted = merged.group_by("k").aggregate(n=ab.count())
    assert_type(ab.merge(counted, merged.where("n > 0"), names=["one", "two"]), ab.Query)
    assert_type(ab.merge(ab.elements(rows), counted), ab.Query)
    ran = ab.windows_run(rows, like="flink", time="start", size=5, slide=1)
    assert_type(ran.results(), DataFrame)
