"""The engines we know, by name; `engine("flink", delay=5)` gives one with other settings.

`profiles_paper` has those of the paper's Table 2, `profiles_today` those of today,
`profiles_own` ours.  A new engine is a frozen value in a file of its own and a line here.
"""

from difflib import get_close_matches
from typing import Final, Literal

from anabranch.errors import UsageError
from anabranch.windows.engine import Engine
from anabranch.windows.profiles.own import ANABRANCH, ANABRANCH_FINAL
from anabranch.windows.profiles.paper import CORAL8, STREAM, STREAMBASE
from anabranch.windows.profiles.today import (
    BEAM,
    BEAM_DISCARDING,
    FLINK,
    KAFKA_STREAMS,
    KAFKA_STREAMS_SUPPRESS,
    SPARK_APPEND,
    SPARK_COMPLETE,
    SPARK_UPDATE,
)

ENGINES: Final[dict[str, Engine]] = {
    profile.name: profile
    for profile in (
        STREAM,
        CORAL8,
        STREAMBASE,
        SPARK_APPEND,
        SPARK_UPDATE,
        SPARK_COMPLETE,
        FLINK,
        KAFKA_STREAMS,
        KAFKA_STREAMS_SUPPRESS,
        BEAM,
        BEAM_DISCARDING,
        ANABRANCH,
        ANABRANCH_FINAL,
    )
}


def engine(
    name: str | Engine,
    *,
    delay: int | None = None,
    lateness: int | None = None,
    offset: int | None = None,
    keeps: Literal["accumulating", "discarding"] | None = None,
    idle_batches: bool | None = None,
) -> Engine:
    """The engine of that name, or the one given, with these settings.

    >>> engine("spark-append", delay=10).name
    'spark-append, delay 10'
    """
    found = name if isinstance(name, Engine) else _named(name)
    return found.with_options(
        delay=delay, lateness=lateness, offset=offset, keeps=keeps, idle_batches=idle_batches
    )


def _named(name: str) -> Engine:
    key = name.strip().lower().replace(" ", "-").replace("_", "-")
    if key in ENGINES:
        return ENGINES[key]
    near = get_close_matches(key, ENGINES, n=3, cutoff=0.5)
    near += [known for known in ENGINES if known.startswith(f"{key}-") and known not in near]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    message = f"unknown engine {name!r}; {hint}known are {', '.join(ENGINES)}"
    raise UsageError(message)
