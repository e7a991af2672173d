"""A Spark Connect session with the settings that streams of elements need.

`sc://host:port` is a server that runs already: what streams need is set for this session alone,
where the server lets us.  `local[2]` and the like start a server in a process of this machine,
with the settings that a classic session would get.
"""

import logging
import os
import socket
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from anabranch.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

log = logging.getLogger(__name__)

SCHEME: Final = "sc://"
ADDRESS: Final = "spark.connect.grpc.binding.address"
"""Where a server listens: on all of a machine's addresses, unless it is configured."""
BINDING: Final = "spark.connect.grpc.binding.port"
PORT: Final = 15002
"""Where PySpark looks for a server that it has started itself; it takes no other."""
_REUSE: Final = "spark.local.connect.reuse"
_YES: Final = ("1", "true")
_PACKAGES: Final = ("grpc", "grpc_status", "zstandard")
_TRIES: Final = 3
_TOO_SLOW: Final = "Python worker failed to connect back"


def is_remote(master: str) -> bool:
    """Whether a master is a Spark Connect server."""
    return master.startswith(SCHEME)


def is_connect(spark: Any) -> bool:
    """Whether a session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def start(stream: "DataStreamWriter") -> "StreamingQuery":
    """Start a query; again, if the Python that a server starts for it was too slow.

    For a function that gets the rows of each trigger a Connect server starts a Python before
    the query, and waits ten seconds for it, which are too few on a busy machine.  Nothing has
    run by then.
    """
    for _ in range(_TRIES - 1):
        try:
            return stream.start()
        except Exception as error:
            if _TOO_SLOW not in str(error):
                raise
            log.warning("Spark's server is busy: its Python did not connect; trying again")
    return stream.start()


def require_connect(running: "SparkSession", remote: str) -> None:
    """Refuse a classic session where a Connect one was asked for: there cannot be both."""
    if not is_connect(running):
        message = (
            f"session(): remote={remote!r} was requested, but a classic session runs already "
            "in this process; stop it first (spark.stop()), or do not ask for another"
        )
        raise SetupError(message)


def require_packages() -> None:
    """Raise unless the packages that Spark Connect needs are installed."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            message = (
                f"a Spark Connect session needs the package {name}; install all that it needs: "
                "pip install 'pyspark[connect]'"
            )
            raise SetupError(message)


def require_port(asked: Mapping[str, str]) -> None:
    """Raise unless a server that is started here can have the port that PySpark expects."""
    elsewhere = (
        "start a server on a port of your choice (start-connect-server.sh of Spark, with "
        f"--conf {BINDING}=...) and give its address, as in remote='sc://localhost:15003'"
    )
    if asked.get(BINDING, str(PORT)) != str(PORT):
        message = (
            f"session(): {BINDING}={asked[BINDING]!r} was requested, but PySpark looks for a "
            f"server that it has started on port {PORT} only; leave it out, or {elsewhere}"
        )
        raise SetupError(message)
    if asked.get(_REUSE, os.environ.get("SPARK_LOCAL_CONNECT_REUSE", "")).lower() in _YES:
        return  # PySpark finds a server that it has left running, or starts one to be found
    try:
        # As servers listen: what is left of connections that have ended does not matter.
        socket.create_server(("127.0.0.1", PORT)).close()
    except OSError as error:
        message = (
            f"a Spark Connect server cannot be started here: port {PORT}, which PySpark takes "
            f"for it, is not free ({error.strerror}); perhaps another runs on this machine. "
            f"End that one, or use it (remote='sc://localhost:{PORT}', if it is yours), or "
            f"{elsewhere}, or take a classic session (master='local[2]')"
        )
        raise SetupError(message) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Without a warning for each setting that a server has from its start, and still has."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Failed to set .* Cannot modify the value")
        yield


def join(
    remote: str, app_name: str, asked: Mapping[str, str], settings: Mapping[str, str]
) -> "SparkSession":
    """A session on a server that runs; `settings` are ours, `asked` the user's."""
    from pyspark.sql import SparkSession

    require_packages()
    try:
        spark = SparkSession.builder.remote(remote).appName(app_name).getOrCreate()
        log.info("Spark %s on %s", spark.version, remote)
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        message = (
            f"no Spark Connect session on {remote}: {lines[0][:300]}; is the server up, and "
            "are host, port and token right?"
        )
        raise SetupError(message) from error
    for name, value in {**settings, **asked}.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)
        elif name in asked and spark.conf.get(name, None) != value:
            message = (
                f"session(): {name}={value!r} was requested, but the server {remote} has fixed "
                f"it at {spark.conf.get(name, None)!r}; set it where the server is started"
            )
            raise SetupError(message)
    return spark
