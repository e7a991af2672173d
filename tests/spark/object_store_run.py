"""A merge whose checkpoint is in S3, as a program of its own: Spark needs its jars early.

Arguments: a folder with the jars, the address of the S3 server, a folder to work in.  Prints a
line of JSON with what happened.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anabranch as ab
from anabranch.errors import AnabranchError

CHECKPOINT = "s3a://bucket/runs/ck"
COLUMNS = "id bigint, ts bigint"
SKIPPED = ("netty-", "slf4j-", "commons-")
"""Jars that Spark has in versions of its own; the client of awssdk is not one of them."""


def session(jars: Path, address: str) -> Any:
    wanted = [
        str(jar)
        for jar in sorted(jars.glob("*.jar"))
        if not jar.name.startswith(SKIPPED) or jar.name.startswith("netty-nio-client")
    ]
    s3a = {
        "endpoint": address,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "access.key": "test",
        "secret.key": "test",
        "connection.ssl.enabled": "false",
        "connection.expect.continue": "false",
        "optimized.copy.from.local.enabled": "false",
    }
    config = {f"spark.hadoop.fs.s3a.{name}": value for name, value in s3a.items()}
    return ab.session(master="local[2]", config={"spark.jars": ",".join(wanted), **config})


def put(spark: Any, root: Path, first: int) -> None:
    rows = [(n, n) for n in range(first, first + 10)]
    spark.createDataFrame(rows, COLUMNS).coalesce(1).write.mode("append").parquet(
        str(root / "in")
    )


def merged(spark: Any, root: Path, lanes: int | None = None, **options: Any) -> Any:
    source = spark.readStream.schema(COLUMNS).parquet(str(root / "in"))
    events = ab.events(source, start="ts", lifetime=5, name="east", **options)
    return ab.merge(events, lanes=lanes)


def refused(act: Any) -> str:
    try:
        act()
    except AnabranchError as error:
        return f"{type(error).__name__}: {error}"
    return "not refused"


def main(jars: Path, address: str, root: Path) -> dict[str, Any]:
    spark = session(jars, address)
    found: dict[str, Any] = {"rows": []}
    sink = {"elements": root / "out"}
    for first in (0, 100):
        put(spark, root, first)
        query = merged(spark, root, lanes=2 if first == 0 else None)
        query = query.start(CHECKPOINT, once=True, **sink)
        query.wait()
        found["rows"].append(query.totals.rows)
    found["run"] = query.run
    found["published"] = spark.read.parquet(str(root / "out")).count()
    running = merged(spark, root).start(CHECKPOINT, **sink)
    again = {
        "second": lambda: merged(spark, root).start(CHECKPOINT, **sink),
        "lanes": lambda: merged(spark, root, 3).start(CHECKPOINT, **sink),
        "key": lambda: merged(spark, root, key="id").start(CHECKPOINT, **sink),
        "output": lambda: merged(spark, root).start(CHECKPOINT, output=root / "other"),
        "remote output": lambda: merged(spark, root).start(
            CHECKPOINT, output="s3a://bucket/out"
        ),
        "inbox": lambda: ab.inbox("s3a://bucket/in"),
    }
    found["refused"] = {name: refused(act) for name, act in again.items()}
    running.stop()
    last = merged(spark, root).start(CHECKPOINT, once=True, **sink)
    last.wait()
    found["after"] = last.totals.rows
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))))
