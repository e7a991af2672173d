"""The Flink profile against Flink itself: windows of generated inputs, compared.

    python -m venv flink && flink/bin/pip install apache-flink
    PYTHONPATH=src flink/bin/python benchmarks/windows_flink.py [inputs]

PyFlink wants an environment of its own, and a Java 11 or newer.  Writes
benchmarks/results/windows_flink.json.

The profile says: a watermark after each record.  PyFlink has periodic watermarks only, so
records are sent one by one, with a pause that is much longer than the period.  A busy machine
can make a pause too short; an input that differs is therefore tried once more with a pause
ten times as long, and counted as such.
"""

import json
import os
import platform
import random
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from anabranch.windows import engine, predict

try:
    from pyflink.common import Configuration, Duration, Time, Types, WatermarkStrategy
    from pyflink.common.watermark_strategy import TimestampAssigner
    from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
    from pyflink.datastream.window import SlidingEventTimeWindows
except ImportError as error:
    sys.exit(f"no PyFlink here ({error}); the first lines of this file say how to get it")

Input = list[tuple[int, int]]
SECOND = 1000


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[0]) * SECOND


class Sum(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        total = sum(value for _, value in elements)
        yield window.start // SECOND, window.end // SECOND, total


def generated(seed: int) -> tuple[Input, int, int, int, int]:
    """Tuples with gaps, ties and late ones; then size, slide, delay and lateness."""
    chance = random.Random(seed)
    size = chance.randint(1, 7)
    slide, delay, lateness = chance.randint(1, size), chance.choice([0, 0, 2]), 0
    lateness = chance.choice([0, 0, 3])
    now, tuples = chance.randint(1, 9), []
    for number in range(10):
        now += chance.choice([0, 0, 1, 2, 5, 11])
        tuples.append((max(0, now - chance.choice([0, 0, 0, 1, 4, 8])), 2**number))
    return tuples, size, slide, delay, lateness


def run_flink(
    tuples: Input, size: int, slide: int, delay: int, lateness: int, pause: float
) -> list[tuple[int, ...]]:
    settings = Configuration()
    settings.set_string("python.fn-execution.bundle.size", "1")
    settings.set_string("python.executable", sys.executable)
    settings.set_string("python.client.executable", sys.executable)
    settings.set_string("pipeline.auto-watermark-interval", "1 ms")
    settings.set_string("parallelism.default", "1")
    env = StreamExecutionEnvironment.get_execution_environment(settings)

    def wait(row: Any) -> Any:
        time.sleep(pause)
        return row

    kind = Types.TUPLE([Types.LONG(), Types.LONG()])
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(delay))
    windows = SlidingEventTimeWindows.of(Time.seconds(size), Time.seconds(slide))
    shown = (
        env.from_collection(tuples, kind)
        .map(wait, kind)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Seconds()))
        .key_by(lambda _: 0, Types.INT())
        .window(windows)
        .allowed_lateness(lateness * SECOND)
        .process(Sum(), Types.TUPLE([Types.LONG()] * 3))
    )
    with shown.execute_and_collect() as rows:
        return [tuple(row) for row in rows]


def run_model(
    tuples: Input, size: int, slide: int, delay: int, lateness: int
) -> list[tuple[int, ...]]:
    """With all windows that are open at the end: Flink closes them when a source has ended."""
    from anabranch.model import Stable

    system = engine("flink", delay=delay, lateness=lateness)
    results = predict(system, size, slide, [*tuples, Stable(10**6)], "sum").results
    return [(one.start, one.end, one.value) for one in results]


def main() -> None:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    counts = {"inputs": inputs, "equal": 0, "equal with a longer pause": 0, "different": 0}
    different = []
    for seed in range(inputs):
        case = generated(seed)
        wanted = run_model(*case)
        if run_flink(*case, pause=0.05) == wanted:
            counts["equal"] += 1
        elif (found := run_flink(*case, pause=0.5)) == wanted:
            counts["equal with a longer pause"] += 1
        else:
            counts["different"] += 1
            different.append({"seed": seed, "case": case, "flink": found, "model": wanted})
        print(f"{seed + 1} of {inputs}: {counts}", flush=True)
    facts = {
        "flink": version("apache-flink"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }
    result = {"machine": facts, **counts, "examples": different}
    path = Path(__file__).parent / "results" / "windows_flink.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
