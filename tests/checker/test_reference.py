"""A reference history is read as the inserts of its events."""

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.codec import decode, to_elements
from anabranch.checker.gather import reference_schema, scan_reference
from anabranch.model.element import Insert
from anabranch.model.time import FOREVER
from anabranch.sources.files import look


def test_every_row_is_the_insert_of_its_event(tmp_path):
    pq.write_table(
        pa.table({"start": [3, 1], "end": [9, None], "a": ["x", "y"]}), tmp_path / "a.parquet"
    )
    folder = look(tmp_path)
    (chunk,) = scan_reference(folder)
    batch = decode(chunk.table, reference_schema(folder)).batch
    assert to_elements(batch) == [Insert("x", 3, 9), Insert("y", 1, FOREVER)]
    assert chunk.rows.tolist() == [1, 2]


def test_stray_columns_of_a_stream_neither_order_nor_split_it(tmp_path):
    rows = {"start": [3, 1], "end": [9, 2], "seq": [None, 1], "replica": [None, "b"]}
    columns = {**rows, "seq": pa.array(rows["seq"], pa.int64())}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    folder = look(tmp_path)
    (chunk,) = scan_reference(folder)
    decoded = decode(chunk.table, reference_schema(folder))
    assert (len(decoded.batch), len(decoded.refused)) == (2, 0)
