"""What lanes leave for a source of ticks on the same machine: when a clock has something due.

A source of Spark's has no access to what lanes know (`tick_source`).  Where all of them are on
one machine, each lane leaves a note after a trigger, in a folder that only this user can write
to, and the source reads them before it ticks.  A note is a hint: where there is none, ticks
come at their interval.
"""

import json
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from anabranch.spark.clock_record import ClockRecord

_CLOCK: Final = "clock.json"
_LIVE: Final = "live-{}.json"
_OLD: Final = 7 * 24 * 3600
"""Seconds after which the notes of a query that nobody wrote to are removed."""


def folder_of(query: str) -> Path | None:
    """The folder of a query's notes on this machine; None if there can be none."""
    root = Path(tempfile.gettempdir()) / f"anabranch-due-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        facts = root.lstat()
    except OSError:
        return None
    is_ours = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid()
    return root / query if is_ours and not stat.S_IMODE(facts.st_mode) & 0o077 else None


def leave(query: str, lane: int, live: int, clock: ClockRecord | None) -> None:
    """Note what one lane has after a trigger: events that wait, and what clocks have due."""
    folder = folder_of(query)
    if folder is None:
        return
    notes: dict[str, Any] = {_LIVE.format(lane): live}
    if clock is not None:  # one lane has it, in triggers that read clocks
        notes[_CLOCK] = {"time": clock.time, "due": clock.due, "every": clock.every}
    try:
        folder.mkdir(exist_ok=True)
        for name, value in notes.items():
            made = folder / f".{name}.{os.getpid()}"
            made.write_text(json.dumps(value))
            made.replace(folder / name)
    except OSError:  # the source ticks without a note
        return


def is_due(query: str, now: float) -> bool:
    """Whether a clock may show something new at `now`, in microseconds; yes if nobody knows."""
    folder = folder_of(query)
    if folder is None:
        return True
    try:
        clock = json.loads((folder / _CLOCK).read_text())
        live = sum(int(one.read_text()) for one in folder.glob(_LIVE.format("*")))
    except (OSError, ValueError):
        return True
    return ClockRecord(**clock, states={}, held_by={}).is_due(now, live)


def tidy() -> None:
    """Remove the notes of queries that ended long ago."""
    here = folder_of(".")
    for one in here.iterdir() if here is not None else ():
        if time.time() - one.stat().st_mtime > _OLD:
            shutil.rmtree(one, ignore_errors=True)
