"""What a type checker must believe of the public names; run by `make check`, never called."""

from pathlib import Path
from typing import assert_type

import anabranch as ab
from anabranch.sources.verdict import Verdict


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

    assert_type(ab.read_output(ab.session(), "out"), DataFrame)
