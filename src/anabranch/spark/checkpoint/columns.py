"""The payload columns of a run that an upgrade adds and drops.

A column that is added comes last; a column that is dropped may be added again.  What is asked
for and has been done before is no change, so that an upgrade may be called again after a kill.
The type of a column never changes: what was hashed and written has the type that it had.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from anabranch.batch.schema import RESERVED
from anabranch.errors import UsageError
from anabranch.operators.state.reshape import Reshape
from anabranch.sources.typenames import parse_type
from anabranch.spark.checkpoint.run_record import Run
from anabranch.spark.columns import canonical_schema


def reshape_of(run: Run, add: Mapping[str, str], drop: Sequence[str]) -> Reshape | None:
    """What becomes of the columns of a run; None if they stay as they are."""
    known = run.schema
    for name in drop:
        if name in add:
            message = f"ab.upgrade: the column '{name}' is to be added and dropped; name one"
            raise UsageError(message)
        if name not in known.names and name not in run.dropped:
            message = (
                f"ab.upgrade: there is no column '{name}' to drop; the run has "
                f"{', '.join(known.names)}"
            )
            raise UsageError(message)
    stays = [field for field in known if field.name not in drop]
    if not stays and len(known):
        message = "ab.upgrade: the last payload column cannot be dropped; keep one"
        raise UsageError(message)
    for name in add:
        if name in (*run.starts, *run.ends):
            message = f"ab.upgrade: '{name}' is the column of the rows' times; name another"
            raise UsageError(message)
    made = pa.schema([*stays, *_added(known, add)])
    return None if made == known else Reshape(known, made)


def _added(known: pa.Schema, add: Mapping[str, str]) -> list[pa.Field]:
    """The columns that are new; one that is there must have its type."""
    found = []
    for name, text in add.items():
        if name.lower() in RESERVED:
            message = f"ab.upgrade: '{name}' is the name of a column of elements; name another"
            raise UsageError(message)
        plain = pa.schema([(name, parse_type(text, where=f"ab.upgrade: column '{name}'"))])
        (field,) = canonical_schema(plain, where="ab.upgrade")
        if name not in known.names:
            found.append(field)
        elif known.field(name).type != field.type:
            message = (
                f"ab.upgrade: the run has a column '{name}' of type {known.field(name).type}, "
                f"and {text} is another; a type cannot change: drop the column, or add one "
                "with another name"
            )
            raise UsageError(message)
    return found


def with_columns(run: Run, reshape: Reshape) -> Run:
    """The run with the columns after."""
    names = [one.name for one in reshape.added]
    return replace(
        run,
        columns=tuple(f"{field.name}: {field.type}" for field in reshape.then),
        payload=reshape.then.serialize().to_pybytes().hex(),
        added=(*(one for one in run.added if one not in reshape.dropped), *names),
        dropped=(*(one for one in run.dropped if one not in names), *reshape.dropped),
    )
