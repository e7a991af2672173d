"""kill -9 of the driver of a query with two stages: nothing is lost or doubled."""

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chained import run
from faulty import QUICK_JAVA, Counts
from sessions import Session
from test_dataframes_spark import history
from test_stages_spark import give, streams, truth, write_files

import anabranch as ab

pytestmark = [pytest.mark.spark, pytest.mark.deep]


@pytest.mark.parametrize(
    ("seed", "kills"),
    [(3, 1), *((seed, 4) for seed in range(500, 503))],
)
def test_kills_lose_and_double_nothing(
    spark: Any,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    seed: int,
    kills: int,
) -> None:
    given, rng, counts = streams(seed, 60), random.Random(seed), Counts()
    record_property("faults", (seed, vars(counts)))
    files = write_files(tmp_path, given, 12)
    program = Path(__file__).parents[1] / "chained.py"
    give(tmp_path, files[: len(files) // 2])
    for life in range(kills):
        log = tmp_path / f"driver-{life}.log"
        session = Session(
            [sys.executable, program, tmp_path], log=log, env={"JDK_JAVA_OPTIONS": QUICK_JAVA}
        )
        try:
            _until_offset(session, tmp_path / "ck", _last(tmp_path / "ck") + 1)
            time.sleep(rng.uniform(0, 2))
            counts.kills += session.process.poll() is None
            session.kill()
        finally:
            session.close()
    give(tmp_path, files[len(files) // 2 :])
    run(spark, tmp_path)
    rows = ab.read_output(spark, tmp_path / "out").collect()
    counts.doubled = len(rows) - len({row.seq for row in rows})
    counts.lost = len(set(truth(given)) - set(history(rows)))
    assert (counts.lost, counts.doubled) == (0, 0)
    assert history(rows) == truth(given)


def _last(checkpoint: Path) -> int:
    names = [path.name for path in checkpoint.glob("offsets/[0-9]*")]
    return max((int(name) for name in names if name.isdecimal()), default=-1)


def _until_offset(session: Any, checkpoint: Path, number: int) -> None:
    """Wait until a trigger has begun, or the program has ended since there is no more."""
    while _last(checkpoint) < number and session.process.poll() is None:
        time.sleep(0.02)
