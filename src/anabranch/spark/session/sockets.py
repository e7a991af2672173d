"""Sockets between Spark and its Python workers on one machine, in a private folder.

Over TCP a worker's first answer waits for the other side's delayed acknowledgement, in every
task.  Sockets that are files have no such wait.  Whoever may write to such a file can have a
worker run code, and Spark gives it the permissions of the process's umask; so they lie in a
folder that only this user can enter.
"""

import atexit
import os
import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

_ENABLED: Final = "spark.python.unix.domain.socket.enabled"
_FOLDER: Final = "spark.python.unix.domain.socket.dir"

_LONGEST: Final = 60
"""Of a socket's path the system takes about a hundred characters; Spark adds 42."""


def socket_settings() -> dict[str, str]:
    """Settings for a session on this machine; none where there are no such sockets."""
    folder = _folder() if hasattr(socket, "AF_UNIX") else None
    return {} if folder is None else {_ENABLED: "true", _FOLDER: str(folder)}


@cache
def _folder() -> Path | None:
    """A new folder of this process, for its user alone; it goes with the process.

    One that was killed leaves it to `anabranch clean`, which knows by the name whose it was.
    """
    try:
        folder = Path(tempfile.mkdtemp(prefix=f"anabranch-sockets-{os.getpid()}-"))
    except OSError:
        return None
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder if len(str(folder)) <= _LONGEST else None
