"""A checkpoint in S3: a real client against a server of moto, which this test installs.

Maven and pip bring the jars and the server into a folder of the user's cache, once.
"""

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.deep]

AWS = "software.amazon.awssdk"
JARS = {
    ("org.apache.hadoop", "hadoop-aws"): "3.5.0",
    **{
        (AWS, name): "2.35.4"
        for name in ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
    },
    ("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3"): "1.3.1",
}
PATIENCE = 900


def dependency(group: str, name: str, version: str) -> str:
    # Its closure would bring the bundle of all of Amazon's clients, 686 MB.
    alone = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    alone = f"{alone}</exclusions>" if name == "hadoop-aws" else ""
    place = f"<groupId>{group}</groupId><artifactId>{name}</artifactId>"
    return f"<dependency>{place}<version>{version}</version>{alone}</dependency>"


@pytest.fixture(scope="module")
def tools() -> Path:
    """A folder with `jars` and `venv`; made again if it is not complete."""
    cache = Path(os.environ.get("ANABRANCH_CACHE_DIR", Path.home() / ".cache" / "anabranch"))
    place = cache / "tests" / "s3"
    done = place / "complete"
    if not done.exists():
        place.mkdir(parents=True, exist_ok=True)
        needed = "".join(dependency(*one, version) for one, version in JARS.items())
        head = "<modelVersion>4.0.0</modelVersion><groupId>test</groupId>"
        head += "<artifactId>s3</artifactId><version>1</version>"
        pom = f"<project>{head}<dependencies>{needed}</dependencies></project>"
        (place / "pom.xml").write_text(pom)
        maven = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
        for command in (
            [*maven, f"-DoutputDirectory={place / 'jars'}"],
            [sys.executable, "-m", "venv", "venv"],
            ["venv/bin/python", "-m", "pip", "install", "-q", "moto[server]==5.2.*"],
        ):
            subprocess.run(command, cwd=place, check=True, timeout=PATIENCE)
        done.touch()
    return place


@pytest.fixture
def server(tools: Path, tmp_path: Path) -> Iterator[str]:
    """The address of an S3 server with one bucket."""
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [tools / "venv/bin/moto_server", "-H", "127.0.0.1", "-p", str(port)]
    with (tmp_path / "moto.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(PATIENCE * 5):
                bucket = urllib.request.Request(f"{address}/bucket", method="PUT")
                with contextlib.suppress(OSError), urllib.request.urlopen(bucket):
                    break
                assert process.poll() is None, (tmp_path / "moto.log").read_text()
                time.sleep(0.2)
            yield address
        finally:
            process.terminate()
            process.wait()


def test_a_merge_whose_checkpoint_is_in_s3(tools: Path, server: str, tmp_path: Path) -> None:
    """It goes on after a restart with its totals, is driven once, and stays what it was."""
    program = Path(__file__).with_name("object_store_run.py")
    words = [sys.executable, "-W", "ignore", program, tools / "jars", server, tmp_path]
    ran = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    print(found)
    assert found["rows"] == [10, 20]
    assert found["published"] == 20
    assert found["after"] == 20
    for name, words_of_it in {
        "second": "another merge works on this checkpoint: process",
        "lanes": "started with lanes = 2, but this start has 3",
        "key": "started with key = none, but this start has id",
        "output": "is not a local path, but output= needs one",
        "remote output": "output=s3a:/bucket/out is not a local path",
        "inbox": "an inbox is a folder on a disk",
    }.items():
        assert words_of_it in found["refused"][name], name
