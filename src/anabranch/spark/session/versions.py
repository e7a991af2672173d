"""The releases of Spark that streams run on, and the Java that each of them needs.

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
    _require(installed(), CLIENT)


def require_release(spark: "SparkSession") -> None:
    """Raise SetupError if the client or the Spark behind a session is too old for streams.

    With Spark Connect the two sides may be of different releases, and both take part.
    """
    require_client()
    _require(spark.version, "the Spark of this session")


def _require(version: str, which: str) -> None:
    found = release(version)
    if found is None or found >= OLDEST:
        return
    message = (
        f"Anabranch needs Spark {_dotted(OLDEST)} or newer, but {which} is {version}, which "
        "lacks transformWithState on rows in Python; install a newer one (pip install "
        f"'pyspark>={_dotted(DECLARED)},<{_dotted(BEYOND)}'), also on the cluster or the Spark "
        "Connect server if there is one"
    )
    raise SetupError(message)


def _dotted(one: Release) -> str:
    return f"{one[0]}.{one[1]}"
