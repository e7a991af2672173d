"""What belongs to a generation of a run in its checkpoint, and what an upgrade left of others.

    CHECKPOINT/offsets, commits, ...     Spark's own files and the control log: the first one
    CHECKPOINT/generation-2/             the same of a later one, and the lanes it began with

All else in a checkpoint belongs to the run.  The record of the run names the generation in
force; others are left from before an upgrade, or from one that was killed.  They are removed
when Spark has committed two triggers of the one in force: until then, also if the last entry
of its log is lost, the exported lanes have what the run remembers.
"""

import re
import shutil
from pathlib import Path
from typing import Final

from anabranch.spark.lane.exported import LANES
from anabranch.spark.query.control_log import CONSUMED, FOLDER
from anabranch.spark.query.run_record import Run, home, last_entry

_OWN: Final = (
    "commits", "offsets", "metadata", "sources", "state", FOLDER, f"{FOLDER}.json", CONSUMED,
)  # fmt: skip
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
    for path in old:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
