"""A real Spark cluster on this machine, from the pip package: one master, several workers.

Standalone master and workers are processes of their own, on loopback, on ports that the system
chooses. Each worker starts its executors, and these their Python workers, in its own session:
killing a `Session` of a worker is what pulling the plug of one machine is.
"""

import os
import re
import sys
import time
from pathlib import Path
from typing import Final

import pyspark
from sessions import Session

from anabranch.spark.session.java import java_home

HOME: Final = Path(pyspark.__file__).parent
DEPLOY: Final = "org.apache.spark.deploy"


class Cluster:
    """A master and its workers; `url` is what `--master` takes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True)
        self.started: list[Session] = []
        self.workers: list[Session] = []
        self.env = {
            "JAVA_HOME": str(java_home().path),
            "SPARK_HOME": str(HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
        }
        here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._here = here
        master = self._start("master.Master", *here)
        self.url = self._wait_for(master, re.compile(r"Starting Spark master at (spark://\S+)"))

    def _start(self, what: str, *words: str) -> Session:
        log = self.root / f"{what.lower()}-{len(self.started)}.log"
        command = [HOME / "bin" / "spark-class", f"{DEPLOY}.{what}", *words]
        self.started.append(Session(command, log=log, env=self.env))
        return self.started[-1]

    def add_worker(self) -> None:
        """A worker with one core, known to the master when this returns."""
        size = ("--cores", "1", "--memory", "1g")
        work = ("--work-dir", str(self.root / f"work-{len(self.started)}"))
        worker = self._start("worker.Worker", *self._here, *size, *work, self.url)
        self._wait_for(worker, re.compile(r"(Successfully registered with master)"))
        self.workers.append(worker)

    def executors(self, worker: Session) -> int:
        """How many JVMs a worker has started."""
        return sum(name.startswith("java") for name in worker.members().values()) - 1

    @staticmethod
    def _wait_for(session: Session, words: re.Pattern[str]) -> str:
        until = time.monotonic() + 300
        while time.monotonic() < until and session.process.poll() is None:
            found = words.search(session.log.read_text(errors="replace"))
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(f"no {words.pattern!r} in {session.log}:\n{session.tail()}")

    def close(self) -> None:
        """Workers first: a master that is gone makes them complain."""
        for session in reversed(self.started):
            session.close()
