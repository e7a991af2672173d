"""A small JSON file that is written atomically and has the number of its format."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anabranch.errors import StateError


def replace_text(file: Path, text: str) -> None:
    """Write a file beside its place, and rename it: readers see the old one or the new one."""
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(file)


def write_json(file: Path, fields: Mapping[str, Any]) -> None:
    """Replace what the file has."""
    replace_text(file, json.dumps(fields) + "\n")


def read_json(file: Path, version: int) -> dict[str, Any] | None:
    """What the file has, if it is there; another `format` is refused by name."""
    if not file.exists():
        return None
    fields: dict[str, Any] = json.loads(file.read_text())
    require_format(file, fields["format"], version)
    return fields


def require_format(file: Path | str, found: object, version: int) -> None:
    """Refuse a file of another format than this one."""
    if found != version:
        message = (
            f"{file}: written in format {found}, this version of anabranch reads format "
            f"{version}; use the version that wrote it, or start a new run"
        )
        raise StateError(message)
