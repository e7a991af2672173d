"""The Kafka program of the production guide, run against a real broker, and started again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import kafka_broker
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "production.md"
FEED = """
import os, sys, json
import anabranch as ab

spark = ab.session()
for topic, rows in json.loads(sys.argv[1]).items():
    messages = spark.createDataFrame([(json.dumps(row),) for row in rows], "value string")
    (messages.coalesce(1).write.format("kafka").option("topic", topic)
        .option("kafka.bootstrap.servers", os.environ["BROKER"]).save())
"""
READ = """
import anabranch as ab

spark = ab.session()
rows = ab.read_output(spark, "out", what="current").orderBy("id").collect()
print([row.id for row in rows])
"""


def order(number: int) -> dict[str, object]:
    return {"ts": f"2026-01-01T09:0{number}:00Z", "id": number, "item": "tea"}


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep
@pytest.mark.skipif(not kafka_broker.has_maven(), reason="needs mvn and java to fetch Kafka")
def test_the_kafka_program_of_the_guide_runs_and_goes_on(tmp_path: Path) -> None:
    found = re.search(r"<!-- kafka -->\n```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    jars = ",".join(map(str, kafka_broker.source_jars()))
    with kafka_broker.broker(tmp_path) as broker:
        env = {
            **os.environ,
            "BROKER": broker.address,
            "PYSPARK_SUBMIT_ARGS": f"--jars {jars} pyspark-shell",
        }

        def run(program: str, *arguments: str) -> str:
            command = [sys.executable, "-c", program, *arguments]
            ran = subprocess.run(
                command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stderr[-3000:]
            return ran.stdout

        first = {"orders-east": [order(1), order(2)], "orders-west": [order(2), order(3)]}
        run(FEED, json.dumps(first))
        printed = run(found[1])
        assert [line.split(",")[0] for line in printed.splitlines()] == [
            "orders-east 2 rows",
            "orders-west 2 rows",
        ]
        assert run(READ).strip() == "[1, 2, 3]"
        run(FEED, json.dumps({"orders-east": [order(4)], "orders-west": [order(4), order(1)]}))
        run(found[1])
        assert run(READ).strip() == "[1, 2, 3, 4]"
