"""A Kafka broker of one node for tests, and the jars of Spark's Kafka source; fetched by Maven.

The jars go to a cache folder once: `~/.cache/anabranch/test-jars`, 54 MB.  Versions of the
source are those that resolve together on a test machine; users take those of their Spark.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CACHE: Final = Path.home() / ".cache" / "anabranch" / "test-jars"
SOURCE: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
POM: Final = """<project><modelVersion>4.0.0</modelVersion>
<groupId>test</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
<version>4.3.1</version></dependency>
<dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
<version>1.7.36</version></dependency></dependencies></project>
"""
SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{control}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{control}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
JAVA: Final = ("java", "-Xmx256m", "-XX:+UseSerialGC")


@dataclass(frozen=True)
class Broker:
    """Where the broker listens."""

    address: str


def has_maven() -> bool:
    """Whether the jars are there, or can be fetched."""
    return shutil.which("mvn") is not None and shutil.which("java") is not None


def source_jars() -> list[Path]:
    """The jars that make Spark read and write Kafka."""
    folder = CACHE / "source"
    for artifact in SOURCE:
        _, name, version = artifact.split(":")
        if not (folder / f"{name}-{version}.jar").is_file():
            _maven("dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}")
    return sorted(folder.glob("*.jar"))


@contextlib.contextmanager
def broker(folder: Path, *, partitions: int = 1) -> Iterator[Broker]:
    """A broker that keeps its log in the folder, and ends with the block.

    A topic that is written for the first time has this number of partitions.
    """
    jars = CACHE / "broker"
    if not list(jars.glob("kafka_2.13-*.jar")):
        CACHE.mkdir(parents=True, exist_ok=True)
        (CACHE / "pom.xml").write_text(POM)
        pom = f"{CACHE}/pom.xml"
        _maven("-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}")
    port, control = _free_port(), _free_port()
    settings = folder / "broker.properties"
    ports = {"port": port, "control": control}
    settings.write_text(SETTINGS.format(**ports, folder=folder, partitions=partitions))
    java = [*JAVA, "-cp", f"{jars}/*"]
    form = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg"]
    subprocess.run([*form, "-c", str(settings)], check=True, capture_output=True)
    with (folder / "broker.out").open("wb") as out:
        process = subprocess.Popen(
            [*java, "kafka.Kafka", str(settings)], stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _await(port, process)
        yield Broker(f"127.0.0.1:{port}")
    finally:
        process.terminate()
        process.wait(60)


def _maven(*arguments: str) -> None:
    subprocess.run(["mvn", "-q", "-B", *arguments], check=True, env=os.environ.copy())


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await(port: int, process: "subprocess.Popen[bytes]", seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        assert process.poll() is None, f"the broker ended with {process.returncode}"
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    message = f"no broker on port {port} after {seconds} s"
    raise AssertionError(message)
