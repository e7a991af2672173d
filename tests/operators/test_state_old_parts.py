"""Parts that were saved by older programs are read: one save of each kind is committed.

`python tests/operators/test_state_old_parts.py` writes those that are not there yet.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from merge_driver import SCHEMA

from anabranch.model.properties import MergeCase
from anabranch.operators.cleanse_kernel import CleanseState
from anabranch.operators.merge.auto import AutoState
from anabranch.operators.merge.ordered_state import CASES, OrderedState
from anabranch.operators.merge.r3_policy_state import R3PolicyState
from anabranch.operators.merge.r3_state import R3State
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.normalise_kernel import NormaliseState

DATA = Path(__file__).parent / "data"
KINDS = {
    "merge_r3_v2": R3State,
    "merge_r3_v3": R3State,
    "merge_r3_policy_v1": R3PolicyState,
    "merge_r4_v2": R4State,
    "normalise_v2": NormaliseState,
    "cleanse_v2": CleanseState,
}


def read(name: str) -> dict[str, bytes]:
    """The parts of a committed save: a table of names and bytes."""
    with pa.ipc.open_file(DATA / f"{name}.parts") as reader:
        table = reader.read_all()
    return dict(zip(*(table.column(c).to_pylist() for c in ("name", "data")), strict=True))


def write(name: str, parts: dict[str, bytes]) -> None:
    path = DATA / f"{name}.parts"
    if not path.exists():
        table = pa.table({"name": list(parts), "data": pa.array(parts.values(), pa.binary())})
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


def same(state, other) -> None:
    """Both say the same in bytes, but for how often they were changed."""
    state.check()
    state.mark = other.mark = 7
    assert state.to_bytes() == other.to_bytes()


@pytest.mark.parametrize("name", KINDS)
def test_parts_that_are_committed_are_read(name):
    kind, parts = KINDS[name], read(name)
    assert len(parts) > 1
    same(
        kind.from_parts(parts, SCHEMA),
        kind.from_bytes((DATA / f"{name}.state").read_bytes(), SCHEMA),
    )


@pytest.mark.parametrize("case", CASES)
def test_parts_of_ordered_merges_that_are_committed_are_read(case):
    name = f"merge_{case.value}_v2"
    data = (DATA / f"{name}.state").read_bytes()
    same(
        OrderedState.from_parts(read(name), case, SCHEMA),
        OrderedState.from_bytes(data, case, SCHEMA),
    )


@pytest.mark.parametrize("case", [MergeCase.R3, MergeCase.R4])
def test_a_merge_that_declares_nothing_finds_the_case_of_its_parts(case):
    assert AutoState.from_parts(read(f"merge_{case.value}_v2"), SCHEMA).case is case


if __name__ == "__main__":
    for name, kind in KINDS.items():
        state = kind.from_bytes((DATA / f"{name}.state").read_bytes(), SCHEMA)
        write(name, state.parts().written)
    for case in CASES:
        name = f"merge_{case.value}_v2"
        data = (DATA / f"{name}.state").read_bytes()
        write(name, OrderedState.from_bytes(data, case, SCHEMA).parts().written)
