"""`merge --watch` by the clock: a new replica, silence, a second driver, and a killed JVM."""

import json
import time
from typing import Any

import pytest
from faulty import PATIENCE, MakeScene

from anabranch.errors import StateError

pytestmark = [pytest.mark.spark, pytest.mark.deep]


def test_a_new_replica_is_found_silence_is_reported_and_a_killed_jvm_is_our_error(
    spark: Any, scene: MakeScene
) -> None:
    here = scene(9)
    place, later = here.place, here.place.root / "r2"
    (place.inbox / "r2").rename(later)
    quick = ("--interval", "200 milliseconds", "--silent-after", "1 second")
    session = here.start("--watch", "--json", *quick)
    here.until_trigger(session, 0, done=True)
    with pytest.raises(StateError, match=rf"works on .*: process {session.process.pid} on"):
        place.prepare().start(spark, once=True)
    later.rename(place.inbox / "r2")
    here.until_trigger(session, 1, done=True)
    until = time.monotonic() + PATIENCE
    while "r0 is silent: no row for 1 seconds" not in session.log.read_text():
        assert time.monotonic() < until, session.tail()
        time.sleep(0.05)
    session.kill("java")
    here.counts.kills += 1
    printed = session.log.read_text()
    assert session.process.returncode == 3, printed
    assert "py4j" not in printed.lower()
    lines = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    assert lines[-1]["error"] == "run"
    assert "(the JVM) is gone: killed, or out of memory" in lines[-1]["message"]
    assert set(lines[0]["replicas"]) == {"r0", "r1"}
    assert lines[1]["replicas"]["r2"]["rows"] == lines[1]["rows"] > 0
    here.require_prefix()
    here.give(here.waiting)
    totals = place.merge(spark)
    assert set(totals.replicas) == {"r0", "r1", "r2"}
    here.judge({**totals.to_dict(), "quarantined": totals.bucket("violation")})
