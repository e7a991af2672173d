"""The Flink profile against Flink itself: windows of generated inputs, compared.

    python -m venv flink && flink/bin/pip install apache-flink
    PYTHONPATH=src flink/bin/python benchmarks/windows_flink.py [inputs]

PyFlink wants an environment of its own, and a Java 11 or newer.  Writes
benchmarks/results/windows_flink.json.

The profile has a watermark after each record.  Flink's SQL does just that if the interval of
watermarks is 0, and its windows have no allowed lateness; so `delay` and late tuples are
checked here, `lateness` is not (PyFlink's own windows have it, but only periodic watermarks).
"""

import json
import os
import platform
import random
import sys
from importlib.metadata import version
from pathlib import Path

from anabranch.windows import Stable, engine, predict

try:
    from pyflink.common import Types
    from pyflink.datastream import StreamExecutionEnvironment
    from pyflink.table import Schema, StreamTableEnvironment
except ImportError as error:
    sys.exit(f"no PyFlink here ({error}); see the first lines of this file")

Input = list[tuple[int, int]]
SECOND = 1000


def generated(seed: int) -> tuple[Input, int, int, int]:
    """Tuples with gaps, ties and late ones; then size, slide and delay."""
    chance = random.Random(seed)
    size = chance.randint(1, 7)
    slide, delay = chance.randint(1, size), chance.choice([0, 0, 2])
    now, tuples = chance.randint(1, 9), []
    for number in range(24):
        now += chance.choice([0, 0, 1, 2, 5, 11])
        tuples.append((max(0, now - chance.choice([0, 0, 0, 1, 4, 8])), 2**number))
    return tuples, size, slide, delay


def run_flink(tuples: Input, size: int, slide: int, delay: int) -> list[tuple[int, ...]]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    tables = StreamTableEnvironment.create(env)
    tables.get_config().set("pipeline.auto-watermark-interval", "0 ms")
    tables.get_config().set("parallelism.default", "1")
    rows = env.from_collection(tuples, Types.ROW([Types.LONG(), Types.LONG()]))
    schema = (
        Schema.new_builder()
        .column_by_expression("at", f"TO_TIMESTAMP_LTZ(f0 * {SECOND}, 3)")
        .watermark("at", f"`at` - INTERVAL '{delay}' SECOND")
        .build()
    )
    tables.create_temporary_view("tuples", tables.from_data_stream(rows, schema))
    window = f"HOP(`at`, INTERVAL '{slide}' SECOND, INTERVAL '{size}' SECOND)"
    bounds = (window.replace("HOP", f"HOP_{word}") for word in ("START", "END"))
    units = (f"TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {one})" for one in bounds)
    tables.get_config().set_local_timezone("UTC")
    query = f"SELECT {', '.join(units)}, SUM(f1) FROM tuples GROUP BY {window}"
    with tables.execute_sql(query).collect() as shown:
        return [tuple(int(cell) for cell in row) for row in shown]


def run_model(tuples: Input, size: int, slide: int, delay: int) -> list[tuple[int, ...]]:
    """With all windows that are open at the end: Flink closes them when a source has ended."""
    system = engine("flink", delay=delay)
    results = predict(system, size, slide, [*tuples, Stable(10**6)], "sum").results
    return [(one.start, one.end, one.value) for one in results]


def main() -> None:
    inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    counts = {"inputs": inputs, "with late tuples": 0, "equal": 0, "different": 0}
    different = []
    for seed in range(inputs):
        case = generated(seed)
        wanted, found = run_model(*case), run_flink(*case)
        patient = run_model(sorted(case[0]), *case[1:])
        counts["with late tuples"] += sorted(patient) != sorted(wanted)
        counts["equal" if found == wanted else "different"] += 1
        if found != wanted:
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
