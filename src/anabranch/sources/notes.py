"""The note of a replica: a file `_replica.json` in the folder of its element files.

    {"guarantee": 1200, "attachment": 2, "properties": {"ordered": true}}

* `guarantee`: from this time on the replica is complete (a number, or ISO-8601 with a zone for
  timestamps); null: from the beginning.
* `attachment`: how often it has joined; a return is a new number.
* `properties`: what it guarantees about its order, by name.
"""

import json
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from anabranch.batch.schema import TimeType
from anabranch.batch.times import instant_units
from anabranch.errors import FileError, SchemaError

NOTE: Final = "_replica.json"


@dataclass(frozen=True)
class ReplicaNote:
    """The content of `_replica.json`; `guarantee` in units (microseconds for timestamps)."""

    guarantee: int | None = None
    attachment: int = 0
    properties: dict[str, Any] = field(default_factory=dict)
    time: TimeType | None = None  # of the guarantee, if there is one

    def check_time(self, time: TimeType, *, where: str) -> None:
        """Refuse a guarantee that is of another type than the replica's times."""
        if self.time is not None and self.time is not time:
            form = "a whole number" if time is TimeType.BIGINT else "ISO-8601 with a zone"
            message = (
                f"{where}/{NOTE}: 'guarantee' is a {self.time.value}, but the times of the "
                f"files are {time.value}; write it as {form}"
            )
            raise SchemaError(message)


def read_note(folder: Path) -> ReplicaNote | None:
    """The note of a replica's folder, or None if it left none."""
    file = folder / NOTE
    if not file.exists():
        return None
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _wrong(file, f"cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise _wrong(file, "is not a JSON object")
    unknown = sorted(set(found) - {"guarantee", "attachment", "properties"})
    if unknown:
        raise _wrong(file, f"has an unknown key {unknown[0]!r}")
    attachment, properties = found.get("attachment", 0), found.get("properties", {})
    if not isinstance(attachment, int) or isinstance(attachment, bool) or attachment < 0:
        raise _wrong(file, f"'attachment' is {attachment!r}, expected a whole number from 0")
    if not isinstance(properties, dict):
        raise _wrong(file, f"'properties' is {properties!r}, expected an object")
    guarantee, time = _guarantee(found.get("guarantee"), file)
    return ReplicaNote(guarantee, attachment, properties, time)


def _guarantee(value: object, file: Path) -> tuple[int | None, TimeType | None]:
    if value is None:
        return None, None
    if isinstance(value, int) and not isinstance(value, bool):
        return value, TimeType.BIGINT
    try:
        instant = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        expected = "expected null, a whole number or ISO-8601 with a zone"
        raise _wrong(file, f"'guarantee' is {value!r}, {expected}")
    return instant_units(instant), TimeType.TIMESTAMP


def _wrong(file: Path, what: str) -> FileError:
    message = (
        f'{file}: {what}; a replica\'s note is {{"guarantee": time or null, "attachment": '
        'number, "properties": {...}}; correct it, or remove it'
    )
    return FileError(message)
