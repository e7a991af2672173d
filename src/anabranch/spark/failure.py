"""A failure inside Spark, in our words: what we raised in a worker comes back as what it was.

Spark wraps an error of a Python worker in its own, with the worker's traceback as text.  If
it was one of ours, `explain` finds its name and message there; anything else is a `RunError`
that names Spark's log.
"""

import re
from typing import Final

from anabranch import errors
from anabranch.errors import AnabranchError, RunError
from anabranch.spark.session import log_file

_OURS: Final = re.compile(
    r"anabranch\.errors\.(\w+): (.+?)(?:\n\n|\n\t|\nSQLSTATE| SQLSTATE|$)", re.DOTALL
)


def explain(error: Exception) -> AnabranchError:
    """The error to raise instead."""
    if isinstance(error, AnabranchError):
        return error
    text = str(error)
    found = _OURS.search(text)
    if found:
        kind = getattr(errors, found[1], RunError)
        if isinstance(kind, type) and issubclass(kind, AnabranchError):
            return kind(" ".join(found[2].split()))
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        text = "its process (the JVM) is gone: killed, or out of memory"
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    place = log_file()
    where = f"; Spark's log is {place}" if place else ""
    return RunError(
        f"Spark failed: {first.strip()[:500]}{where}; what was committed stays, start again"
    )
