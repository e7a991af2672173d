"""The releases of Spark that streams run on, and what needs a newer one of them.

A release is a pair: 4.1 is `(4, 1)`.  `docs/guide/versions.md` lists the same for users.
"""

import re
from typing import TYPE_CHECKING, Final

from anabranch.errors import SetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Release = tuple[int, int]

OLDEST: Final[Release] = (4, 1)
"""The first release with `transformWithState` on rows in Python, for the state of lanes."""

DECLARED: Final[Release] = (4, 3)
"""The oldest release that the whole suite ran on, as `pyproject.toml` declares it."""

BEYOND: Final[Release] = (4, 4)
"""The first release that no test ran on."""

NAMED_SOURCES: Final[Release] = (4, 2)
"""The first release with named sources: a restarted query may read new sources."""


NEWEST_JAVA: Final[dict[Release, int]] = {(4, 1): 21}
"""The newest Java for releases whose Hadoop calls what Java has removed since."""


def release(version: str) -> Release | None:
    """The release of a version, also of a vendor's; None for a text without one.

    >>> release("4.3.0"), release("4.2.0-SNAPSHOT"), release("4.1.1.dev2"), release("main")
    ((4, 3), (4, 2), (4, 1), None)
    """
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else None


CLIENT: Final = "the PySpark of this Python environment"


def installed() -> str:
    """The version of PySpark in this Python environment."""
    import pyspark

    return pyspark.__version__


def newest_java() -> int | None:
    """The newest Java that the installed PySpark starts on; None if there is no limit."""
    try:
        found = release(installed())
    except ImportError:  # `anabranch doctor` reports that
        return None
    return None if found is None else NEWEST_JAVA.get(found)


def require_client() -> None:
    """Raise SetupError if the installed PySpark is too old for streams; starts nothing."""
    _require(installed(), CLIENT, OLDEST, "")


def require_release(spark: "SparkSession", oldest: Release = OLDEST, feature: str = "") -> None:
    """Raise SetupError if the client or the Spark behind a session is too old for a feature.

    `feature` names what the user asked for; without it, all of Anabranch is meant.  With Spark
    Connect the two sides may be of different releases, and both take part.
    """
    _require(installed(), CLIENT, oldest, feature)
    _require(spark.version, "the Spark of this session", oldest, feature)


def _require(version: str, which: str, oldest: Release, feature: str) -> None:
    found = release(version)
    if found is None or found >= oldest:
        return
    wanted = f"{oldest[0]}.{oldest[1]}"
    newer = ".".join(map(str, max(oldest, DECLARED)))
    why = "" if feature else ", which lacks transformWithState on rows in Python"
    message = (
        f"{feature or 'Anabranch'} needs Spark {wanted} or newer, but {which} is "
        f"{version}{why}; install a newer one (pip install "
        f"'pyspark>={newer},<{BEYOND[0]}.{BEYOND[1]}'), also on the cluster or the Spark "
        "Connect server if there is one"
    )
    raise SetupError(message)
