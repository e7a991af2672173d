"""The one run that a checkpoint and an output folder belong to.

Both hold a file `_run.json` with the same run id.  A checkpoint knows which files were consumed
and what was emitted; joined with another output folder it would lose or double rows, so every
other pairing is refused before Spark starts.  What may never change over the life of a run (the
number of lanes, the case, the policy but for `violations`, the type of the times, the payload
columns) is recorded there too.

Format 1 kept each lane's state as one value and read file names instead of a control log; it
is refused by name, since neither can be turned into the other while files are half consumed.
Format 2 gave a lane its rows as pandas frames.  Spark remembers a stateful step by the way in
which it is called, so a run that began so goes on so.
"""

import json
import os
import uuid
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from anabranch.errors import StateError
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.spark.lock import FILE as LOCK
from anabranch.spark.write import PROGRESS, trigger_folder

FILE: Final = "_run.json"
FORMAT: Final = 3
_READS: Final = (2, 3)

_BESIDE: Final = f".{FILE}."


@dataclass(frozen=True)
class Run:
    """What is fixed when a run first starts."""

    run: str
    inbox: str
    lanes: int
    case: str
    time: str
    columns: tuple[str, ...]
    founders: tuple[str, ...]
    policy: str = "default"
    format: int = FORMAT

    @property
    def in_frames(self) -> bool:
        """Whether its lanes get pandas frames."""
        return self.format == 2


def new_id() -> str:
    """A run id that nobody else has."""
    return uuid.uuid4().hex


def find(output: Path, checkpoint: Path) -> Run | None:
    """The run that both folders belong to; None if both are new; else a `StateError`."""
    ours, theirs = read(output), read(checkpoint)
    died = ours is not None and theirs is None and _content(output) == {FILE}
    if died or (ours is None and theirs is None):
        for folder, what in ((output, "output"), (checkpoint, "checkpoint")):
            if _content(folder) - {FILE}:
                message = (
                    f"{folder}: the {what} folder is not empty and belongs to no run of ours "
                    f"(no {FILE}); name a new or empty folder"
                )
                raise StateError(message)
        return None  # new, or a first start that died before it was recorded in both
    if ours is None or theirs is None:
        known, new = (checkpoint, output) if ours is None else (output, checkpoint)
        message = (
            f"{known} belongs to a run, but {new} does not: continued with another partner "
            "it would lose or double rows; name (or restore) the folder it was started with, "
            "or name two new ones: then all of the inbox is merged again"
        )
        raise StateError(message)
    if ours.run != theirs.run:
        message = (
            f"output {output} belongs to run {ours.run}, checkpoint {checkpoint} to run "
            f"{theirs.run}; name two folders of one run, or two new ones"
        )
        raise StateError(message)
    require_written(output, checkpoint)
    return ours


def require_new(checkpoint: Path) -> None:
    """Refuse a checkpoint in which another start began a run since it was looked at."""
    if (checkpoint / FILE).exists():
        message = f"{checkpoint}: another merge began a run here meanwhile; start again"
        raise StateError(message)


def _content(folder: Path) -> set[str]:
    """The names in a folder, without what a first start leaves when it dies."""
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    return {name for name in names if name != LOCK and not name.startswith(_BESIDE)}


def is_unused(folder: Path) -> bool:
    """Whether nothing is there, but perhaps what a first start left that died."""
    names = (path.name for path in folder.rglob("*") if path.is_file())
    return all(name in (FILE, LOCK) or name.startswith(_BESIDE) for name in names)


def require_written(output: Path, checkpoint: Path) -> None:
    """Refuse an output that lacks what its checkpoint says was written last, and the reverse.

    Spark notes a trigger in `offsets` before it runs and in `commits` after it was written.
    """
    begun, committed = _last(checkpoint / "offsets"), _last(checkpoint / "commits")
    if committed >= 0 and not _is_written(trigger_folder(output, PROGRESS, committed)):
        message = (
            f"{output}: the checkpoint {checkpoint} says that trigger {committed} was written, "
            f"but {trigger_folder(output, PROGRESS, committed)} is not there: rows of the "
            "output were removed; restore the folder, or name a new output and a new "
            "checkpoint: then all of the input is merged again"
        )
        raise StateError(message)
    # Spark would begin the trigger anew on a state that has seen its first attempt.
    ahead = trigger_folder(output, PROGRESS, begun + 1)
    if _is_written(ahead):
        message = (
            f"{checkpoint}: its last trigger is {begun}, but {ahead} was written by a later "
            "one: entries of the checkpoint are lost, or it is an old copy; restore it, or "
            "name a new output and a new checkpoint: then all of the input is merged again"
        )
        raise StateError(message)


def _last(log: Path) -> int:
    return max((int(path.name) for path in log.glob("*") if path.name.isdecimal()), default=-1)


def _is_written(folder: Path) -> bool:
    return (folder / "_SUCCESS").exists()


def record(run: Run, output: Path, checkpoint: Path) -> None:
    """Write the run into both folders, the checkpoint's last: only then is it a run."""
    for folder in (output, checkpoint):
        write(run, folder)


def write(run: Run, folder: Path) -> None:
    """Write the run into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    beside = folder / f"{_BESIDE}{os.getpid()}"
    beside.write_text(json.dumps(asdict(run), indent=1) + "\n")
    beside.replace(folder / FILE)


def require_same(found: Run, wanted: Run, output: Path) -> None:
    """Refuse a restart that asks for other lanes, times or columns than the run has."""
    for name in ("lanes", "case", "policy", "time", "columns", "inbox"):
        was, now = _fixed(found, name), _fixed(wanted, name)
        if was != now:
            message = (
                f"{output}: this run was started with {name} = {_show(was)}, now it is asked "
                f"to go on with {_show(now)}; keep it as it was, or start anew in new folders"
            )
            raise StateError(message)


def _fixed(run: Run, name: str) -> object:
    """What may not change; of the policy, all but what becomes of violations."""
    if name != "policy":
        return getattr(run, name)
    return str(replace(Policy.parse(run.policy), violations=DEFAULT.violations))


def _show(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def read(folder: Path) -> Run | None:
    """The run that a folder belongs to, if it does."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        fields = json.loads(path.read_text())
        if fields["format"] not in _READS:
            known = " and ".join(map(str, _READS))
            message = (
                f"{path}: written in format {fields['format']}, this version of anabranch "
                f"reads formats {known}; use the version that wrote it, or start a new run"
            )
            raise StateError(message)
        columns, founders = tuple(fields.pop("columns")), tuple(fields.pop("founders"))
        if not fields["run"].isalnum():  # it names files of ours: nothing may lead elsewhere
            message = f"the run id {fields['run']!r} is not one of letters and digits"
            raise ValueError(message)
        return Run(columns=columns, founders=founders, **fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"{path}: not a run file of anabranch ({error}); was the folder changed by hand?"
        )
        raise StateError(message) from error
