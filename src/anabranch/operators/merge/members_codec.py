"""The replicas of a merge as the first table of its state."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import NEVER_UNITS
from anabranch.operators.merge.members import COLUMNS, Members
from anabranch.operators.merge.r3_membership import Stretch
from anabranch.operators.state_codec import column_of, to_table


def members_table(
    members: Members,
    header: Mapping[str, str],
    more: Mapping[str, NDArray[Any]] | None = None,
) -> pa.Table:
    """The replicas, one row each, with the header of the state; `more` are further columns."""
    columns = {name: getattr(members, name) for name in COLUMNS} | dict(more or {})
    names = pa.array(members.names, pa.string())
    common = {
        "next_serial": str(members.next_serial),
        "had_joined": str(int(members.had_joined)),
        "stretches": json.dumps(members.stretches),
    }
    table = to_table(columns).append_column("name", names)
    return table.replace_schema_metadata(common | dict(header))


def read_members(control: pa.Table, header: Mapping[str, str]) -> Members:
    """The replicas; where no serials were written they are counted from 0.

    A header that has a word of its own for what all states have in common is believed.
    """
    # Control is changed in place by the next step; a view of the bytes may not be.
    columns = {
        name: column_of(control, name).copy()
        for name in COLUMNS
        if name in control.column_names
    }
    columns.setdefault("serial", np.arange(control.num_rows))
    columns.setdefault("promoted", np.full(control.num_rows, NEVER_UNITS))
    stretches = json.loads(header.get("stretches", "[]"))
    return Members(
        control.column("name").to_pylist(),
        **columns,
        next_serial=int(header.get("next_serial", control.num_rows)),
        had_joined=header.get("had_joined", "0") == "1",
        stretches=[Stretch(*one) for one in stretches],
    )
