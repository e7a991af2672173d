"""`anabranch clean`: lists files that runs left behind, and removes them only with `--yes`.

Without `--output` only what Anabranch made for itself counts: in its cache folder, and
half-made or forgotten folders of its own in the temporary folder. Checkpoints are yours and
are never touched. What a process that still runs is using is left out.

With `--output` it is the published files of a run that are old enough: removed, or moved to an
archive. With `--inbox` it is the files of its inbox that the run needs no more. The run may go
on, also while this works; it does not miss these files.
"""

import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli import settings

if TYPE_CHECKING:
    from anabranch.sinks.folder import FolderSink
    from anabranch.sinks.published import Piece

_FOLDER = click.Path(path_type=Path, file_okay=False)

TEMPORARY = "anabranch-"
"""How every temporary folder of ours begins: anabranch-<what>-<process id>-<chance>."""

YOUNG = 24 * 3600
"""Seconds after which something whose owner is unknown counts as left behind."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A file or folder that can be removed: its kind, path and size."""

    kind: str
    path: Path
    size: int


@click.command("clean")
@click.option("--yes", is_flag=True, help="Remove or archive the listed files.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option("--output", type=_FOLDER, help="The output of a run: its old published files.")
@click.option("--inbox", type=_FOLDER, help="The inbox of a run: files that it has consumed.")
@click.option("--checkpoint", type=_FOLDER, help="The checkpoint of that run.")
@click.option("--older", help="How old such files must be, such as '7 days'.")
@click.option("--archive", type=_FOLDER, help="Move them there; without it they are removed.")
def command(
    *,
    yes: bool,
    as_json: bool,
    output: Path | None,
    inbox: Path | None,
    checkpoint: Path | None,
    older: str | None,
    archive: Path | None,
) -> None:
    """List leftover files, old files of an output, or consumed files of an inbox.

    Nothing is removed without --yes.  With --archive, files are moved instead.
    """
    if output is not None and inbox is not None:
        message = "--output and --inbox are cleaned one after the other; name one of them"
        raise click.UsageError(message)
    if inbox is not None:
        leftovers = find_consumed(inbox, checkpoint, older)
    elif output is None:
        leftovers = find(settings.load().cache_dir, Path(tempfile.gettempdir()))
    else:
        retired = find_old(output, checkpoint, older)
        leftovers = [leftover for _, _, leftover in retired]
    if not as_json:
        _print(leftovers)
    if yes and inbox is not None:
        remove_files(leftovers, inbox, archive)
    elif yes and output is None:
        for leftover in leftovers:
            remove(leftover)
    elif yes:
        retire(retired, archive)
    if as_json:
        rows = [{"kind": x.kind, "path": str(x.path), "bytes": x.size} for x in leftovers]
        click.echo(json.dumps({"removed": yes, "leftovers": rows}))
    elif leftovers:
        done = "removed" if archive is None else f"moved to {archive}"
        click.echo(done if yes else "nothing was removed; add --yes to remove it")


Retired = tuple["FolderSink", "Piece", Leftover]


def find_old(output: Path, checkpoint: Path | None, older: str | None) -> list[Retired]:
    """The published files of a run that are older than asked, from the oldest on."""
    from anabranch.batch.times import to_seconds
    from anabranch.sinks.folder import FolderSink
    from anabranch.sources.channels import ELEMENTS, LATE, VIOLATIONS
    from anabranch.spark.checkpoint import run_record
    from anabranch.spark.run.prepare import Folders

    if checkpoint is None or older is None:
        message = "--output needs --checkpoint (of the same run) and --older, such as '7 days'"
        raise click.UsageError(message)
    run = run_record.find(checkpoint.resolve(), output.resolve())
    if run is None:
        message = f"{output}: there is no run there; name the output of a merge"
        raise click.UsageError(message)
    before = time.time() - to_seconds(older, option="--older")
    folders, found = Folders(run.run[:8], checkpoint.resolve(), 0.0), []
    for name in (ELEMENTS, LATE, VIOLATIONS):
        sink: FolderSink = folders.sink(str(output.resolve() / name), f"output-{name}")
        for piece in sink.older_than(before):
            path = sink.place / piece.name
            found.append((sink, piece, Leftover(name, path, path.stat().st_size)))
    return found


def retire(retired: list[Retired], archive: Path | None) -> None:
    """Remove these files, or move each to the folder of its channel in the archive."""
    for sink in {sink for sink, _, _ in retired}:
        pieces = [piece for one, piece, _ in retired if one == sink]
        sink.retire(pieces, None if archive is None else archive / sink.place.name)


def find_consumed(inbox: Path, checkpoint: Path | None, older: str | None) -> list[Leftover]:
    """The files of an inbox that its run needs no more, and that are older than asked."""
    from anabranch.batch.times import to_seconds
    from anabranch.spark.checkpoint import run_record
    from anabranch.spark.checkpoint.consumed import removable

    run = None if checkpoint is None else run_record.read(checkpoint.resolve())
    if checkpoint is None or run is None:
        message = "--inbox needs --checkpoint, the checkpoint of the merge that reads the inbox"
        if checkpoint is not None:
            message += f"; {checkpoint} is not one: it has no {run_record.FILE}"
        raise click.UsageError(message)
    age = 0.0 if older is None else to_seconds(older, option="--older")
    found = [(file, file.stat()) for file in removable(inbox, checkpoint.resolve(), run)]
    before = time.time() - age
    return [
        Leftover("consumed", file, stat.st_size)
        for file, stat in found
        if stat.st_mtime <= before
    ]


def remove_files(leftovers: list[Leftover], inbox: Path, archive: Path | None) -> None:
    """Remove files of an inbox, or move them to an archive."""
    from anabranch.spark.checkpoint.consumed import remove_consumed

    remove_consumed([one.path for one in leftovers], inbox, archive)


def find(cache: Path, temporary: Path) -> list[Leftover]:
    """Everything that can go, kind by kind."""
    found = [
        *(("java home", path) for path in _entries(cache / "java")),
        *(("spark log", path) for path in _entries(cache / "logs")),
        *(
            ("temporary", path)
            for path in _entries(temporary)
            if path.name.startswith(TEMPORARY)
        ),
    ]
    return [
        Leftover(kind, path, _size(path)) for kind, path in found if not _in_use(kind, path)
    ]


def remove(leftover: Leftover) -> None:
    """Remove a file or folder; one that is already gone is no error."""
    if leftover.path.is_dir() and not leftover.path.is_symlink():
        shutil.rmtree(leftover.path, ignore_errors=True)
    else:
        leftover.path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _in_use(kind: str, path: Path) -> bool:
    """A log or folder of a running process; a recent one, if its process is not known."""
    if kind == "java home":
        return False  # made again when it is missing; a JVM that runs needs it no more
    match = re.search(r"-(\d+)\.log", path.name) or re.match(
        r"anabranch-[a-z]+-(\d+)-", path.name
    )
    if match is None:
        return time.time() - path.lstat().st_mtime < YOUNG
    try:
        os.kill(int(match[1]), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it runs, as another user
    return True


def _size(path: Path) -> int:
    """Bytes below a path, as far as they can be read; links count as themselves."""
    total = 0
    files = (
        [path] if path.is_file() else [Path(d) / f for d, _, fs in os.walk(path) for f in fs]
    )
    for file in files:
        try:
            total += file.lstat().st_size
        except OSError:  # gone meanwhile
            continue
    return total


def _print(leftovers: list[Leftover]) -> None:
    # No table: a path that is cut or wrapped cannot be read before it is removed.
    if not leftovers:
        click.echo("nothing was left behind")
    for leftover in leftovers:
        click.echo(f"{leftover.kind:10} {leftover.size:>12,} bytes  {leftover.path}")
