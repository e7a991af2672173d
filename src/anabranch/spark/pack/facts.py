"""Counts of rows, and rows that are not elements, as both packers report them.

A row that is not an element (an unknown kind, a null start) is *refused*: it travels as text,
to be kept with its reason.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.errors import ViolationError
from anabranch.spark.pack.parcels import Facts, Parcel, Refused, in_every_lane
from anabranch.spark.pack.positions import Span


def refuse(
    replica: str,
    file: str | None,
    row: int | None,
    reason: str,
    raw: str | Mapping[str, Any],
) -> Refused:
    """A row that is not an element, with its place and the row itself as text."""
    text = raw if isinstance(raw, str) else json.dumps(raw, default=str)
    return Refused(replica, file, row, reason, text)


def require_none(refused: Sequence[Refused], *, strict: bool) -> None:
    """Raise for the first refused row, if the query is strict."""
    if refused and strict:
        first = refused[0]
        message = (
            f"{first.file}: row {first.row}: {first.reason} (replica '{first.replica}'; strict "
            "stops here)"
        )
        raise ViolationError(message)


def announced(
    base: Parcel,
    lanes: int,
    rows: int,
    refused: Sequence[Refused],
    *,
    size: int = 0,
    spans: Sequence[Span] = (),
) -> list[Parcel]:
    """A parcel for each lane: its input sent something; one of them has the facts."""
    return in_every_lane(base, lanes, Facts(rows, tuple(refused), size, tuple(spans)))
