"""The key of plain rows: the columns that name one event in a copy, checked by the schema.

`ab.events(..., key=, duplicates=)` declares it.  What is wrong with it raises when the stream
is made, and names the argument.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from anabranch.errors import SchemaError, UsageError
from anabranch.model.properties import StreamProperties
from anabranch.operators.key import Key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VIOLATION: Final = "violation"
DROP: Final = "drop"
_WHERE: Final = "ab.events"


def key_columns(key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns of a key as they were given."""
    return (key,) if isinstance(key, str) else tuple(key or ())


def event_key(
    df: "DataFrame",
    columns: Sequence[str] | None,
    duplicates: str | None,
    *,
    start: str,
    apart: Mapping[str | None, str],
    names: Mapping[str, str],
) -> Key | None:
    """The key that was declared; None if there is none.

    `apart` are columns that are no payload, with what they are; `names` are the new names of
    renamed columns.
    """
    _require_duplicates(duplicates, has_key=columns is not None)
    if columns is None:
        return None
    if not columns:
        message = f"{_WHERE}: key names no column; name those that name one event, or leave it"
        raise UsageError(message)
    for column in columns:
        if column not in df.columns:
            message = (
                f"{_WHERE}: key: there is no column '{column}'; the DataFrame has "
                f"{df.columns}; check the name"
            )
            raise SchemaError(message)
        if column in apart:
            message = (
                f"{_WHERE}: key: '{column}' is {apart[column]}, which does not name an event; "
                "name payload columns, and the start if need be"
            )
            raise UsageError(message)
    payload = {names.get(one, one) for one in columns if one != start}
    return Key(tuple(sorted(payload)), with_start=start in columns, drops=duplicates == DROP)


def _require_duplicates(duplicates: str | None, *, has_key: bool) -> None:
    if duplicates not in (None, VIOLATION, DROP):
        message = (
            f"{_WHERE}: duplicates={duplicates!r}; it is '{VIOLATION}' (kept apart with the "
            f"reason, the default) or '{DROP}' (dropped and counted)"
        )
        raise UsageError(message)
    if duplicates is not None and not has_key:
        message = (
            f"{_WHERE}: duplicates={duplicates!r} without key=: name the columns that name one "
            "event, such as key=['id']; without a key each row is an event"
        )
        raise UsageError(message)


def keyed(properties: StreamProperties | None) -> StreamProperties:
    """What a stream with a key promises: identities are unique, since the key is enforced."""
    promised = StreamProperties(keyed=True)
    if properties not in (None, StreamProperties(), promised):
        message = (
            f"{_WHERE}: key= with properties={properties}: a key is compared in cases R3 and "
            "R4, which use no other property than keyed; leave properties= or key= out"
        )
        raise UsageError(message)
    return promised
