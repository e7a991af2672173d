from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_tables import Drawn, drawn_tables

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS, Batch
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.hashing import hash_rows
from anabranch.batch.parcel import pack, unpack
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import InputError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.time import FOREVER

units = st.integers(NEVER_UNITS, FOREVER_UNITS)


@given(drawn_tables(min_columns=0), st.data(), st.booleans(), st.booleans())
def test_unpack_gives_what_was_packed(
    drawn: Drawn, data: st.DataObject, has_seq: bool, is_hashed: bool
) -> None:
    count = drawn.table.num_rows
    columns = data.draw(st.lists(st.tuples(*[units] * 4), min_size=count, max_size=count))
    start, end, old_end, seq = np.array(columns, np.int64).reshape(count, 4).T.copy()
    kind = np.array(
        data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count)), np.int8
    )
    schema = ElementSchema(TimeType.BIGINT, drawn.table.schema, has_seq)
    batch = Batch(schema, kind, start, end, old_end, drawn.table, seq if has_seq else None)
    if is_hashed:
        batch = replace(batch, hashes=hash_rows(drawn.table, count))
    again = unpack(pack(batch), schema)
    for name in ("kind", "start", "end", "old_end", *(["seq"] * has_seq)):
        found, expected = getattr(again, name), getattr(batch, name)
        assert found.dtype == expected.dtype
        assert found.flags.writeable
        assert found.tolist() == expected.tolist()
    assert has_seq or again.seq is None
    assert is_hashed or again.hashes is None
    if again.hashes is not None:
        assert again.hashes.flags.aligned
        assert again.hashes.tolist() == hash_rows(again.payload, count).tolist()
    again.payload.validate(full=True)
    assert again.payload.schema.types == drawn.table.schema.types
    assert repr(again.payload.to_pylist()) == repr(drawn.table.to_pylist())


def test_a_slice_packs_only_itself() -> None:
    schema = ElementSchema(TimeType.TIMESTAMP, pa.schema({"a": pa.string()}))
    batch = from_elements([Insert("x" * 100, n, FOREVER) for n in range(1000)], schema)
    few = Batch(
        schema,
        batch.kind[5:7],
        batch.start[5:7],
        batch.end[5:7],
        batch.old_end[5:7],
        batch.payload[5:7],
    )
    assert len(pack(few)) < 3000
    assert to_elements(unpack(pack(few), schema)) == to_elements(batch)[5:7]


@pytest.mark.parametrize("is_hashed", [True, False])
def test_a_payload_may_have_a_column_of_any_name(is_hashed: bool) -> None:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"hashes": pa.int64()}))
    batch = from_elements([Insert(1, 2, 3)], schema)
    if is_hashed:
        batch = replace(batch, hashes=hash_rows(batch.payload, 1))
    again = unpack(pack(batch), schema)
    assert to_elements(again) == [Insert(1, 2, 3)]
    assert (again.hashes is not None) == is_hashed


def test_payloads_are_views_of_the_bytes() -> None:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.int64()}))
    data = pack(from_elements([Insert(1, 2, 3), Adjust(1, 2, 3, 2), Stable(FOREVER)], schema))
    column = unpack(data, schema).payload["a"].chunk(0)
    begin = pa.py_buffer(data).address
    assert begin <= column.buffers()[1].address < begin + len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no parcel",
        pack(from_elements([], ElementSchema(TimeType.BIGINT, pa.schema({"b": pa.int64()})))),
        pack(from_elements([], ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.int8()})))),
    ],
)
def test_what_is_no_parcel_of_the_schema_is_refused(data: bytes) -> None:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.int64()}))
    with pytest.raises(InputError, match=r"unpack: expected .* with one schema"):
        unpack(data, schema)


def test_a_cut_off_parcel_is_refused() -> None:
    schema = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.int64()}))
    data = pack(from_elements([Insert(1, 2, 3)], schema))
    with pytest.raises(InputError, match="unpack"):
        unpack(data[: len(data) // 2], schema)
