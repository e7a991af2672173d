"""generate, merge --once, check: R0, R2 and R3 with ten seeds each, all equivalent."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from merge_place import Place

pytestmark = [pytest.mark.spark, pytest.mark.deep]

SHAPES: dict[str, dict[str, Any]] = {
    "r0": {},
    "r2": {},
    "r3": {"disorder": 0.3, "revisions": 0.3, "stable_freq": 0.02},
}


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("case", sorted(SHAPES))
def test_slice_is_equivalent_to_the_truth(
    spark: Any, tmp_path: Path, case: str, seed: int
) -> None:
    place = Place(tmp_path)
    place.generate(
        case, events=5_000, payload_bytes=100, seed=seed, file_rows=1_000, **SHAPES[case]
    )
    totals = place.merge(spark)
    assert totals.adds_up
    assert place.check().ok


def test_a_corrupted_copy_is_found(spark: Any, tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.generate("r3", events=5_000)
    place.merge(spark)
    files = (place.output / "elements").rglob("*.parquet")
    file = max(files, key=lambda path: pq.read_metadata(path).num_rows)  # a lane may write none
    table = pq.read_table(file)
    pq.write_table(table.slice(1), file)
    assert not place.check().ok
    changed = pa.compute.add(table["value"].combine_chunks().slice(0, 1), 1)
    values = pa.chunked_array([changed, table["value"].combine_chunks().slice(1)])
    pq.write_table(
        table.set_column(table.schema.get_field_index("value"), "value", values), file
    )
    assert not place.check().ok
    pq.write_table(table, file)
    assert place.check().ok
