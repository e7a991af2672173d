"""The one run that a checkpoint and the folders it writes belong to.

Each of them holds a file `_run.json` with the same run id; a folder of Parquet files alone has
it in its tail (`anabranch.sinks.published`).  A checkpoint knows which input was
consumed and what was emitted; joined with another output folder it would lose or double rows,
so every other pairing is rejected before Spark starts.  What may never change over the life of
a run (`FIXED`) is recorded there too, and compared at every start.  The policy may: `settings`
has each that counted, with the trigger from which on (`anabranch.spark.checkpoint.settings`).

An upgrade (`anabranch.spark.run.upgrade`) gives a run another *generation*: a checkpoint of
Spark's and a control log of its own, in a folder of the checkpoint (`home`).  The record in the
checkpoint names the generation in force; that of an output follows before its first trigger,
so that a copy of the checkpoint from before an upgrade is rejected.  Triggers are counted on:
`first_trigger` is the run's number of the trigger that Spark calls 0 in this generation.

The records of the triggers are in the output folder, if the run has one, else in the
checkpoint.  Until the first release there is one format; others are rejected by name.
"""

import json
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.sinks.json_file import replace_text, require_format
from anabranch.sinks.published import tail_of
from anabranch.sources.channels import PROGRESS
from anabranch.sources.plain import PlainRows
from anabranch.spark.checkpoint.lock import FILE as LOCK
from anabranch.spark.write.records import record_file

FILE: Final = "_run.json"
FORMAT: Final = 7

FIXED: Final = {
    "starts": "the column of --time (start= of ab.inbox) stays the same; ",
    "ends": "the column of --end (end= of ab.inbox) stays the same; ",
    "lengths": "--lifetime (lifetime= of ab.inbox) stays the same: events that are remembered "
    "would not meet their copies; ",
    "lanes": "`anabranch upgrade CHECKPOINT --lanes N` changes it; ",
    "case": "",
    "time": "",
    "columns": "`anabranch upgrade CHECKPOINT --add-column NAME:TYPE` and `--drop-column NAME` "
    "change them, a type stays as it is; ",
    "inboxes": "",
    "key": "",
    "steps": "steps, keys and types of a running query are part of its state; ",
    "align": "what align() (--align) holds back is part of the state; ",
    "lifetimes": "events that are remembered would not meet their copies; ",
    "order": "rows that were consumed would be taken for new ones, or the reverse; ",
}
"""What a restart may not change, with what its refusal adds."""

_TUPLES: Final = (
    "columns", "founders", "inboxes", "replicas", "lifetimes", "key", "attachments", "left",
    "added", "dropped", "starts", "ends", "lengths", "steps",
)  # fmt: skip

_TEMPORARY: Final = f".{FILE}."


@dataclass(frozen=True)
class Run:
    """What is fixed when a run first starts.

    `founders` are the replicas that were there; `replicas` those of DataFrames, with when the
    events of each end (`lifetimes`); `order` is what orders the rows of a replica; `key` names
    one event in each replica; `steps` are those of a query, stage by stage; `align` is
    the order in which events come. `has_output`: the records of the triggers are in an output
    folder, not in the checkpoint. `payload` is the
    schema of the payload, as Arrow serialises it, in hexadecimal; `added` and `dropped` are the
    columns that came and went with upgrades. `begun` is the last trigger that was begun before
    this generation: it may have left a record. `policy` is the one that was asked for last,
    `settings` are all that counted, each with its first trigger and without `violations`.
    `positions`: the rows of its DataFrames have places in Kafka. `named`: its sources have
    names, so that DataFrames may come and go; `attachments` are the numbers of `replicas`,
    `left` those that are gone, `sources` the names by replica. `clocks` are how stables were
    inferred, in words, each with its first trigger. `starts`, `ends` and `lengths` are those of
    plain rows, one of each for every inbox: the two columns, and the lifetime in words; empty
    for elements.
    """

    run: str
    lanes: int
    case: str
    time: str
    columns: tuple[str, ...]
    founders: tuple[str, ...]
    inboxes: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    lifetimes: tuple[str, ...] = ()
    order: str = ""
    policy: str = "default"
    settings: tuple[tuple[int, str], ...] = ()
    has_output: bool = False
    key: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    align: str = ""
    positions: bool = False
    named: bool = False
    attachments: tuple[int, ...] = ()
    left: tuple[str, ...] = ()
    sources: dict[str, list[str]] = field(default_factory=dict)
    payload: str = ""
    added: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    lengths: tuple[str, ...] = ()
    generation: int = 0
    first_trigger: int = 0
    begun: int = -1
    clocks: tuple[tuple[int, str], ...] = ()
    format: int = FORMAT

    def plain(self, inbox: int) -> PlainRows | None:
        """The columns of times of plain rows in an inbox; None: its files hold elements."""
        if not any(self.starts):
            return None
        start, end = self.starts[inbox], self.ends[inbox]
        return PlainRows(start, end or None) if start else None

    @property
    def schema(self) -> pa.Schema:
        """The payload columns."""
        return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(self.payload)))


def home(checkpoint: Path, run: Run) -> Path:
    """The folder with Spark's own checkpoint and the control log of a run's generation."""
    return generation_folder(checkpoint, run.generation)


def generation_folder(checkpoint: Path, generation: int) -> Path:
    """The folder of a generation; the first has no folder of its own."""
    return checkpoint if generation == 0 else checkpoint / f"generation-{generation}"


def last_commit(checkpoint: Path, run: Run) -> int:
    """The last trigger of a run that Spark has committed; -1 if none."""
    return run.first_trigger + last_entry(home(checkpoint, run) / "commits")


def last_begun(checkpoint: Path, run: Run) -> int:
    """The last trigger of a run that Spark has begun, and may repeat; -1 if none."""
    return max(run.begun, run.first_trigger + last_entry(home(checkpoint, run) / "offsets"))


def new_id() -> str:
    """A unique run id."""
    return uuid.uuid4().hex


def find(checkpoint: Path, output: Path | None = None) -> Run | None:
    """The run that the folders belong to; None if they are new; else a `StateError`.

    Without an output folder the checkpoint alone decides.
    """
    found = _find_alone(checkpoint) if output is None else _find_both(output, checkpoint)
    if found is None:
        return None
    if found.has_output != (output is not None):
        began = "with an output folder" if found.has_output else "without an output folder"
        message = (
            f"{checkpoint}: this run was started {began}, where the records of its triggers "
            "are; start it again as before, or start a new run in new folders"
        )
        raise StateError(message)
    require_written(output or checkpoint, checkpoint, found)
    return found


def _find_alone(checkpoint: Path) -> Run | None:
    found = read(checkpoint)
    if found is None and not is_unused(checkpoint):
        message = (
            f"{checkpoint}: holds a checkpoint that is not of a run of ours (no {FILE}); name "
            "a new folder"
        )
        raise StateError(message)
    return found


def _find_both(output: Path, checkpoint: Path) -> Run | None:
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
            f"{known} belongs to a run, but {new} does not: continuing with mismatched folders "
            "would lose or duplicate rows; name (or restore) the folder it was started with, "
            "or name two new ones: then all of the input is merged again"
        )
        raise StateError(message)
    if ours.run != theirs.run:
        message = (
            f"output {output} belongs to run {ours.run}, checkpoint {checkpoint} to run "
            f"{theirs.run}; name two folders of one run, or two new ones"
        )
        raise StateError(message)
    _require_generation(output, ours, checkpoint, theirs)
    return theirs


def _require_generation(folder: Path, ours: Run, checkpoint: Path, theirs: Run) -> None:
    """Reject a checkpoint that an upgrade has replaced."""
    if ours.generation > theirs.generation:
        message = (
            f"{checkpoint}: is from before an upgrade from {theirs.lanes} to {ours.lanes} "
            f"lanes, after which {folder} was written; continued from here rows would be "
            "doubled; name the checkpoint that was upgraded"
        )
        raise StateError(message)


def require_own(folder: Path, found: Run | None, checkpoint: Path | None) -> None:
    """Reject a folder of a sink that belongs to another run; a new one may be added later."""
    if found is None and is_unused(folder):
        return
    theirs = read(tail_of(folder))
    used = folder.exists() and any(folder.iterdir())
    if (theirs is None and used) or (
        theirs is not None and (found is None or theirs.run != found.run)
    ):
        message = (
            f"{folder}: belongs to another run than the checkpoint; joined they would lose or "
            "double rows; name the folder it was started with, or a new one"
        )
        raise StateError(message)
    if theirs is not None and found is not None and checkpoint is not None:
        _require_generation(folder, theirs, checkpoint, found)


def require_new(checkpoint: Path) -> None:
    """Reject a checkpoint in which another start began a run since it was looked at."""
    if (checkpoint / FILE).exists():
        message = (
            f"{checkpoint}: another process started a run in this checkpoint at the same time; "
            "start again"
        )
        raise StateError(message)


def require_current(checkpoint: Path, run: Run) -> None:
    """Reject a start of a generation that an upgrade has replaced since it was looked at."""
    known = read(checkpoint)
    if known is not None and known.generation != run.generation:
        message = (
            f"{checkpoint}: was upgraded from {run.lanes} to {known.lanes} lanes meanwhile; "
            "start again"
        )
        raise StateError(message)


def _content(folder: Path) -> set[str]:
    """The names in a folder, without what a first start leaves when it dies."""
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    return {name for name in names if name != LOCK and not name.startswith(_TEMPORARY)}


def is_unused(folder: Path) -> bool:
    """Whether nothing is there, but perhaps what a first start left that died."""
    names = (path.name for path in folder.rglob("*") if path.is_file())
    return all(name in (FILE, LOCK) or name.startswith(_TEMPORARY) for name in names)


def require_written(output: Path, checkpoint: Path, run: Run) -> None:
    """Reject an output without the last trigger of its checkpoint, and the reverse.

    Spark notes a trigger in `offsets` before it runs and in `commits` after it was written.
    """
    begun, committed = last_begun(checkpoint, run), last_commit(checkpoint, run)
    there = record_file(output / PROGRESS, committed)
    if committed >= 0 and not there.exists():
        message = (
            f"{output}: the checkpoint {checkpoint} has committed trigger {committed}, "
            f"but {there} is not there: rows of the output were removed; restore the folder, "
            "or name a new output and a new checkpoint: then all of the input is merged again"
        )
        raise StateError(message)
    # Spark would retry the trigger on a state that includes its first attempt.
    ahead = record_file(output / PROGRESS, begun + 1)
    if ahead.exists():
        message = (
            f"{checkpoint}: its last trigger is {begun}, but {ahead} was written by a later "
            "one: entries of the checkpoint are lost, or it is an old copy; restore it, or "
            "name a new output and a new checkpoint: then all of the input is merged again"
        )
        raise StateError(message)


def last_entry(log: Path) -> int:
    """The number of the last entry in one of Spark's two logs of a checkpoint; -1 if none."""
    return max((int(path.name) for path in log.glob("*") if path.name.isdecimal()), default=-1)


def write(run: Run, folder: Path) -> None:
    """Write the run into a folder."""
    replace_text(folder / FILE, json.dumps(asdict(run), indent=1) + "\n")


def require_same(found: Run, wanted: Run, where: Path | str) -> None:
    """Reject a restart that asks for something else than the run was started with."""
    for name, why in FIXED.items():
        was, now = getattr(found, name), getattr(wanted, name)
        if was != now:
            message = (
                f"{where}: this run was started with {name} = {_show(was)}, but this start has "
                f"{_show(now)}; {why}keep the value of the run, or start a new run in new "
                "folders"
            )
            raise StateError(message)


def _show(value: object) -> str:
    shown = ", ".join(filter(None, map(str, value))) if isinstance(value, tuple) else str(value)
    return shown or "nothing"


def read(folder: Path) -> Run | None:
    """The run that a folder belongs to, if it does."""
    path = folder / FILE
    return from_text(path.read_text(), path) if path.exists() else None


def from_text(text: str, path: Path | str) -> Run:
    """The run that a text records; `path` is where it was, for the error."""
    try:
        fields = json.loads(text)
        require_format(path, fields["format"], FORMAT)
        for name in _TUPLES:
            fields[name] = tuple(fields[name])
        for name in ("settings", "clocks"):
            fields[name] = tuple((at, words) for at, words in fields[name])
        if not fields["run"].isalnum():  # it names files of ours: nothing may lead elsewhere
            message = f"the run id {fields['run']!r} is not one of letters and digits"
            raise ValueError(message)
        return Run(**fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = (
            f"{path}: not a run file of anabranch ({error}); was the folder changed by hand?"
        )
        raise StateError(message) from error
