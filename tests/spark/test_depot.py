"""Parcels that wait in a depot: what is fetched is what was left, and nothing stays."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lanes_driver import SCHEMA

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.parcel import unpack
from anabranch.errors import RunError
from anabranch.model.element import Insert, Stable
from anabranch.spark.depot import Depot, depot_for, leaving
from anabranch.spark.parcels import from_ipc, pieces

ELEMENTS = [Insert(f"e{number}", number, number + 9) for number in range(50)] + [Stable(4)]


class Session:
    """What is asked of a session."""

    def __init__(self, master: str) -> None:
        self.conf = {"spark.master": master}


def rows_of(lanes: int) -> list[dict[str, Any]]:
    """As a packer makes them: parcels for each lane, and one row that only brings facts."""
    batch, places = from_elements(ELEMENTS, SCHEMA), pa.table({"row": range(len(ELEMENTS))})
    base = {"replica": "x", "address": None}
    facts = [{**base, "lane": 0, "parcel": None, "places": None, "note": "{}"}]
    return pieces(base, batch, places, lanes, by_start=False) + facts


def test_what_is_fetched_is_what_was_left(tmp_path: Path) -> None:
    depot, rows = Depot(str(tmp_path / "parcels")), rows_of(3)
    with leaving(depot) as leave:
        crossed = [*leave(rows[:2]), *leave(rows[2:])]
    assert all(row["parcel"] is None and row["places"] is None for row in crossed)
    for row, found in zip(rows, depot.fetch(crossed), strict=True):
        left = ("parcel", "places", "address")
        assert {name: found[name] for name in row if name not in left} == {
            name: row[name] for name in row if name not in left
        }
        if row["parcel"] is None:
            assert found["parcel"] is None
            continue
        assert to_elements(unpack(found["parcel"], SCHEMA)) == to_elements(row["parcel"])
        assert from_ipc(found["places"]) == row["places"]


def test_each_task_has_a_file_of_its_own_and_clear_removes_all(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "parcels"))
    for _ in range(2):  # the second is the same task, run again
        with leaving(depot) as leave:
            crossed = leave(rows_of(2))
    assert len(list((tmp_path / "parcels").iterdir())) == 2
    fetched = depot.fetch(crossed)
    depot.clear()
    assert not (tmp_path / "parcels").exists()
    # What is mapped stays readable: Spark may still work on a copy of a task.
    assert len(unpack(fetched[0]["parcel"], SCHEMA)) > 0
    depot.clear()


def test_parcels_that_were_removed_are_named(tmp_path: Path) -> None:
    depot = Depot(str(tmp_path / "parcels"))
    with leaving(depot) as leave:
        crossed = leave(rows_of(2))
    depot.clear()
    with pytest.raises(RunError, match=r"parcels of this trigger .* are gone.*nothing is lost"):
        depot.fetch(crossed)


def test_without_a_depot_parcels_travel() -> None:
    rows = rows_of(2)
    with leaving(None) as leave:
        assert leave(rows) == rows


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
