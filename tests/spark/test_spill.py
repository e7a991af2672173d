"""Parcels that wait in a depot: what is fetched is what was left, and nothing stays."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lanes_driver import SCHEMA

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.hashing import hash_rows
from anabranch.errors import RunError
from anabranch.model.element import Insert, Stable
from anabranch.operators.route import BY_IDENTITY
from anabranch.spark.pack.parcels import Facts, Parcel, Refused, from_row, pieces, to_rows
from anabranch.spark.pack.spill import Depot, depot_for, spilling

ELEMENTS = [Insert(f"e{number}", number, number + 9) for number in range(50)] + [Stable(4)]


class Session:
    """What is asked of a session."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}


def parcels_of(lanes: int) -> list[Parcel]:
    """As a packer makes them: parcels for each lane, and one that only brings facts."""
    batch, places = from_elements(ELEMENTS, SCHEMA), pa.table({"row": range(len(ELEMENTS))})
    base = Parcel(lane=0, input="x", file="f", guarantee=2**63 - 1)
    facts = Facts(60, (Refused("x", "f", 9, "no kind", "{}"),))
    return [*pieces(base, batch, places, lanes, BY_IDENTITY), replace(base, facts=facts)]


def crossed(lanes: int, depot: Depot | None) -> list[dict[str, Any]]:
    with spilling(depot) as spill:
        rows: list[dict[str, Any]] = to_rows(parcels_of(lanes), lanes, spill).to_pylist()
    return rows


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("spills", [True, False])
def test_what_arrives_is_what_was_sent(tmp_path: Path, lanes: int, spills: bool) -> None:
    depot = Depot(str(tmp_path / "parcels")) if spills else None
    rows = crossed(lanes, depot)
    if spills:
        assert all(row["parcel"] is None and row["places"] is None for row in rows)
    fetch = None if depot is None else depot.fetching()
    for sent, row in zip(parcels_of(lanes), rows, strict=True):
        found = from_row(row, lambda _: SCHEMA, fetch)
        for name in ("lane", "input", "file", "guarantee", "entry", "facts", "frontier"):
            assert getattr(found, name) == getattr(sent, name)
        assert found.places == sent.places
        if sent.batch is None or found.batch is None:
            assert sent.batch is found.batch is None
        else:
            assert to_elements(found.batch) == to_elements(sent.batch)
            # With one lane nobody has hashed yet.
            assert (found.batch.hashes is None) == (lanes == 1)
            if found.batch.hashes is not None:
                hashes = hash_rows(sent.batch.payload, len(sent.batch))
                assert found.batch.hashes.tolist() == hashes.tolist()


def test_with_one_lane_nothing_is_copied() -> None:
    batch, places = from_elements(ELEMENTS, SCHEMA), pa.table({"row": range(len(ELEMENTS))})
    [one] = pieces(Parcel(lane=0, input="x"), batch, places, 1, BY_IDENTITY)
    assert one.batch is batch
    assert one.places is places


def test_each_task_has_a_file_of_its_own_and_clear_removes_all(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "parcels"))
    for _ in range(2):  # the second is the same task, run again
        rows = crossed(2, depot)
    assert len(list((tmp_path / "parcels").iterdir())) == 2
    fetched = from_row(rows[0], lambda _: SCHEMA, depot.fetching())
    depot.clear()
    assert not (tmp_path / "parcels").exists()
    # What is mapped stays readable: Spark may still work on a copy of a task.
    assert fetched.batch is not None
    assert len(to_elements(fetched.batch)) > 0
    depot.clear()


def test_parcels_that_were_removed_are_named(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "parcels"))
    rows = crossed(2, depot)
    depot.clear()
    with pytest.raises(RunError, match=r"a file of this trigger is missing.*nothing is lost"):
        from_row(rows[0], lambda _: SCHEMA, depot.fetching())


@pytest.mark.parametrize(
    ("master", "is_one_machine"),
    [
        ("local[2]", True),
        ("local[*]", True),
        ("local[2,3]", True),
        ("local-cluster[2,1,1024]", False),
        ("spark://host:7077", False),
        ("yarn", False),
        ("", False),
    ],
)
def test_only_one_machine_has_a_depot(
    tmp_path: Path, master: str, is_one_machine: bool
) -> None:
    found = depot_for(Session(master), tmp_path)  # type: ignore[arg-type]
    assert (found is not None) == is_one_machine
    assert depot_for(Session(master), None) is None  # type: ignore[arg-type]
