"""The generations of a run in its checkpoint, and what an upgrade left of former ones.

    CHECKPOINT/offsets, commits, ...     Spark's own files and the control log: the first one
    CHECKPOINT/generation-2/             the same of a later one, and the lanes it began with

All else in a checkpoint belongs to the run.  The record of the run names the generation in
force; others are left from before an upgrade, or from one that was killed.  They are removed
when Spark has committed two triggers of the one in force: until then, also if the last entry
of its log is lost, the exported lanes have what the run remembers.
"""

import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from anabranch.spark.checkpoint.control_log import CONSUMED, FOLDER
from anabranch.spark.checkpoint.kafka import FILE as KAFKA
from anabranch.spark.checkpoint.run_record import Run, home, last_entry
from anabranch.spark.lane.exported import LANES, TOO_LATE

_SPARKS: Final = ("commits", "offsets", "metadata", "sources", "state")
_OWN: Final = (*_SPARKS, FOLDER, f"{FOLDER}.json", CONSUMED, KAFKA)
"""What the first generation has in the checkpoint itself."""

_LATER: Final = re.compile(r"generation-\d+")


def remove_former(checkpoint: Path, run: Run) -> None:
    """Remove all other generations, and what lanes began with, if they are needed no more."""
    own = home(checkpoint, run)
    if last_entry(own / "commits") < 1:
        return
    old = [one for one in checkpoint.iterdir() if _LATER.fullmatch(one.name) and one != own]
    if run.generation:
        old += [own / LANES, *(checkpoint / name for name in _OWN)]
    _remove(old)


def restart_generation(own: Path) -> None:
    """Drop what Spark has kept of a generation in which no reader has brought anything yet.

    Spark keeps where a reader began, and would not read what the user has changed since.  That
    is so if no trigger was begun, or the first was refused before it wrote anything.
    """
    is_void = (own / TOO_LATE).exists() or last_entry(own / "offsets") < 0
    if (own / LANES).exists() and is_void and last_entry(own / "commits") < 0:
        _remove([own / name for name in _SPARKS])
        (own / TOO_LATE).unlink(missing_ok=True)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
