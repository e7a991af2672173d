"""What a type checker must believe of the public names; run by `make check`, never called."""

from pathlib import Path
from typing import assert_type

import anabranch as ab
from anabranch.checker.verdict import Verdict


def elements() -> None:
    assert_type(ab.parse("stable 1"), list[ab.Insert | ab.Adjust | ab.Stable])
    assert_type(ab.History.of(ab.parse("insert a 1..2")).events(), list[ab.Event])
    assert_type(ab.show_element(ab.Stable(ab.FOREVER)), str)


def merged() -> None:
    outcome = ab.MergeR3().push("east", ab.Insert("a", 3, 9))
    assert_type(outcome.output, tuple[ab.Insert | ab.Adjust | ab.Stable, ...])


def checked() -> None:
    assert_type(ab.check(Path("out"), "truth"), Verdict)


def on_spark() -> None:
    from pyspark.sql import DataFrame

    rows = ab.read_output(ab.session(), "out")
    assert_type(rows, DataFrame)
    merged = ab.merge(ab.inbox("in"), ab.elements(rows, name="north"))
    assert_type(merged.final(), DataFrame)
    query = merged.start("checkpoint", output="out", once=True)
    assert_type(query.wait(1), bool)
    assert_type(query.silent("1 minute"), list[str])
    ran = ab.windows_run(rows, like="flink", time="start", size=5, slide=1)
    assert_type(ran.results(), DataFrame)
