"""`anabranch clean`: what runs left behind, listed, and removed only with `--yes`.

Only what Anabranch made for itself counts: in its cache folder, and half-made or forgotten
folders of its own in the temporary folder. Output, checkpoints and inboxes are yours and are
never touched. What a process that still runs is using is left out.
"""

import json
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click

from anabranch.cli import settings

TEMPORARY = "anabranch-"
"""How every temporary folder of ours begins: anabranch-<what>-<process id>-<chance>."""

YOUNG = 24 * 3600
"""Seconds after which something whose owner is unknown counts as left behind."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that can go: what it is, where, and how large."""

    kind: str
    path: Path
    size: int


@click.command("clean")
@click.option("--yes", is_flag=True, help="Remove what is listed; without it nothing is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
def command(*, yes: bool, as_json: bool) -> None:
    """List what runs left behind; with --yes, remove it."""
    leftovers = find(settings.load().cache_dir, Path(tempfile.gettempdir()))
    if not as_json:
        _print(leftovers)
    if yes:
        for leftover in leftovers:
            remove(leftover)
    if as_json:
        rows = [{"kind": x.kind, "path": str(x.path), "bytes": x.size} for x in leftovers]
        click.echo(json.dumps({"removed": yes, "leftovers": rows}))
    elif leftovers:
        click.echo("removed" if yes else "nothing was removed; `anabranch clean --yes` does")


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
    """Remove one thing; that somebody else was quicker is no error."""
    if leftover.path.is_dir() and not leftover.path.is_symlink():
        shutil.rmtree(leftover.path, ignore_errors=True)
    else:
        leftover.path.unlink(missing_ok=True)


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _in_use(kind: str, path: Path) -> bool:
    """A log or folder of a process that still runs; a young one, if it does not say whose."""
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
        return True  # it runs, as somebody else
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
