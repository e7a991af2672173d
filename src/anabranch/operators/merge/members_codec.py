"""The replicas of a merge as the first table of its state."""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from numpy.typing import NDArray

from anabranch.operators.merge.members import COLUMNS, Members
from anabranch.operators.reference.membership import Stretch
from anabranch.operators.state.codec import column_of, to_table


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
    """The replicas, as `members_table` wrote them."""
    # Control is changed in place by the next step; a view of the bytes may not be.
    columns = {name: column_of(control, name).copy() for name in COLUMNS}
    stretches = json.loads(header["stretches"])
    return Members(
        control.column("name").to_pylist(),
        **columns,
        next_serial=int(header["next_serial"]),
        had_joined=header["had_joined"] == "1",
        stretches=[Stretch(*one) for one in stretches],
    )
