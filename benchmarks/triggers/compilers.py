"""How long Java has compiled so far: whether a query is warm is seen by that, not guessed.

Java goes on compiling for many triggers, on the cores that a trigger works on.  Its compilers
are threads of their own, and Linux reports of every thread how long it ran.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_COMPILERS = ("C1 Compiler", "C2 Compiler")
_PARENT, _USER, _SYSTEM = 1, 11, 12
"""Where these are in `/proc/PID/stat`, counted from behind the name."""


def compiled_ms() -> int:
    """Milliseconds for which the compilers of our Java ran; 0 where there is no `/proc`."""
    ticks = sum(
        int(facts[_USER]) + int(facts[_SYSTEM])
        for java in _javas()
        for name, facts in _threads(java)
        if name.startswith(_COMPILERS)
    )
    return ticks * 1000 // os.sysconf("SC_CLK_TCK")


def _javas() -> Iterator[Path]:
    """Every Java that this process, or a child of it, has started."""
    for place in Path("/proc").glob("[0-9]*"):
        found = _stat(place)
        if found is not None and found[0] == "java" and _is_ours(found[1]):
            yield place


def _is_ours(facts: list[str]) -> bool:
    """Follow the parents up."""
    while (parent := int(facts[_PARENT])) > 1:
        if parent == os.getpid():
            return True
        above = _stat(Path(f"/proc/{parent}"))
        if above is None:
            return False
        facts = above[1]
    return False


def _threads(process: Path) -> Iterator[tuple[str, list[str]]]:
    for thread in (process / "task").glob("*"):
        found = _stat(thread)
        if found is not None:
            yield found


def _stat(place: Path) -> tuple[str, list[str]] | None:
    """The name, and what comes behind it; None if it has just ended."""
    try:
        before, _, behind = (place / "stat").read_text().rpartition(")")
    except OSError:
        return None
    return before.partition("(")[2], behind.split()
