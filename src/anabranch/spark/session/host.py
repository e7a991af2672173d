"""Memory and cores of this machine for a local Spark, and the cache folder of Anabranch.

Figures are those of the container where there is one, not of the host around it.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GIB = 1 << 30

TRIGGER_BYTES = 128 << 20
"""Bytes of rows that a trigger takes of inboxes, unless another limit is asked for."""

COMMAND_HEAP = "512m"
"""The heap of Spark's driver for a command on one machine: Python has the rows of inboxes.

Java fills a large heap with garbage before it collects, so that memory grows with the rows
(`benchmarks/trigger_memory.py` shows Java's share).
"""

# cgroup v2, then v1; "max" or an absurdly large figure means no limit.
_MEMORY_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def cache_dir() -> Path:
    """The folder for what Anabranch makes for itself: Java homes and Spark's logs.

    `ANABRANCH_CACHE_DIR`, else `$XDG_CACHE_HOME/anabranch`, else `~/.cache/anabranch`.
    It can be removed at any time; `anabranch clean` shows what is in it.
    """
    own = os.environ.get("ANABRANCH_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute()
    shared = os.environ.get("XDG_CACHE_HOME")
    parent = Path(shared) if shared else Path.home() / ".cache"
    return parent.absolute() / "anabranch"


def memory_bytes() -> int:
    """Bytes of memory that this process may use: the machine's, or the container's if less."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read_limit(path) for path in _MEMORY_LIMITS]
    return min([physical, *(limit for limit in limits if limit is not None)])


def _read_limit(path: Path) -> int | None:
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def cores() -> int:
    """The number of processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # macOS has none
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def slots(spark: "SparkSession") -> int | None:
    """How many tasks run at once, where all are on one machine; None on a cluster."""
    master = str(spark.conf.get("spark.master", ""))
    found = re.fullmatch(r"local\[(\d+|\*)(,.*)?\]", master)
    if found is None:
        return None
    return cores() if found[1] == "*" else int(found[1])


def is_switched_on(name: str, off: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether an environment variable leaves a feature on; only 0 and 1 are accepted.

    `off` is what 0 means, for the error.
    """
    value = environ.get(name, "1")
    if value not in ("0", "1"):
        message = f"{name} is {value!r}; expected 0 ({off}) or 1"
        raise UsageError(message)
    return value == "1"


def to_bytes(text: str | int, *, option: str) -> int:
    """A number of bytes, also with a unit.

    >>> to_bytes("256m", option="limit") == to_bytes(256 << 20, option="limit") == 268435456
    True
    """
    found = re.fullmatch(r"\s*([1-9]\d*)\s*([kmg]?)i?b?\s*", str(text), re.IGNORECASE)
    if found is None:
        message = f"{option} {text!r}: expected a number of bytes, such as 256m, 1g or 1000000"
        raise UsageError(message)
    return int(found[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[found[2].lower()]


def driver_memory() -> str:
    """A heap for Spark's driver: a third of the memory, at least 1 GiB and at most 4 GiB.

    In local mode the same machine also holds the Python workers, which keep the state, and
    RocksDB, which works off the heap: they get the rest.
    """
    mebibytes = min(4 * GIB, max(GIB, memory_bytes() // 3)) >> 20
    return f"{mebibytes}m"


def heap_options(memory: str, given: str = "") -> str:
    """Java's collector for a heap of this size, if the options that were given name none.

    Below 1 GiB: the serial collector.  Its heap follows what is in use, where Java's usual one
    (G1) lets garbage fill the whole heap before it collects, and has tables of its own.

    Above: G1, which keeps a heap in regions, a two-thousandth of it each.  A value that fills
    half of one is *humongous*: as soon as a few came, all that lives is marked beside the work.
    The rows of a file and the parts of a state are such values, in every trigger.

    >>> heap_options("4g"), heap_options("512m")
    ('-XX:G1HeapRegionSize=16m', '-XX:+UseSerialGC -Xms96m')
    """
    found = re.fullmatch(r"(\d+)([mg]?)b?", memory.strip().lower())
    if found is None or re.search(r"-XX:\+Use\w+GC\b", given):
        return ""  # Spark reports a memory that is no size; Java starts with one collector only
    mebibytes = int(found[1]) << (10 if found[2] == "g" else 0)
    if mebibytes < 1024:
        return f"-XX:+UseSerialGC -Xms{min(96, mebibytes)}m"
    largest = min(32, mebibytes // 256)
    return f"-XX:G1HeapRegionSize={1 << largest.bit_length() - 1}m"
