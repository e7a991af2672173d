"""One kill and one lost log entry, quickly; the deep tests do it at a hundred moments."""

from typing import Any

import pyarrow.parquet as pq
import pytest
from faulty import MakeScene, column

from anabranch.errors import StateError
from anabranch.sinks.published import tail_of
from anabranch.spark.write.read_output import read_output

pytestmark = pytest.mark.spark


def test_a_driver_killed_in_its_first_trigger(spark: Any, scene: MakeScene) -> None:
    here = scene(7)
    here.give(here.waiting // 2)
    session = here.watch()
    here.until_trigger(session, 0)
    here.kill(session)
    here.give(here.waiting)
    here.judge(report_of(here.place.merge(spark)))


def test_a_lost_commit_entry_and_files_that_nobody_committed(
    spark: Any, scene: MakeScene
) -> None:
    here = scene(8)
    place = here.place
    here.give(here.waiting // 2)
    place.merge(spark)
    here.lose_entry("commits")
    here.give(here.waiting // 2)
    place.merge(spark)
    here.give(here.waiting)
    here.judge(report_of(place.merge(spark)))
    assert here.counts.lost_entries == 1
    here.lose_entry("commits", "offsets")
    with pytest.raises(StateError, match="entries of the checkpoint are lost"):
        place.prepare()
    elements = place.output / "elements"
    stray = tail_of(elements) / "trigger-000000009999"
    stray.mkdir()
    table = pq.read_table(next(elements.iterdir()))
    pq.write_table(table, stray / "lane-0.parquet")
    seen = read_output(spark, place.output).select("seq").toArrow()["seq"]
    assert sorted(seen.to_pylist()) == sorted(
        column(place.output / "elements", "seq").to_pylist()
    )
    assert place.check().ok


def report_of(totals: Any) -> dict[str, Any]:
    return {**totals.to_dict(), "quarantined": totals.bucket("violation")}
