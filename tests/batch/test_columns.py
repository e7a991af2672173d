import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from payload_tables import Drawn, drawn_tables

from anabranch.batch import columns as module
from anabranch.batch.columns import conform, layouts, read, write
from anabranch.batch.schema import plain_type
from anabranch.batch.store import Store, read_table, write_table
from anabranch.errors import SchemaError


def _plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


@given(drawn_tables())
def test_what_is_read_is_written_back(drawn: Drawn) -> None:
    table = drawn.table
    for name in table.column_names:
        for chunk in table[name].chunks:
            kind = plain_type(chunk.type)
            columns = read(chunk)
            assert tuple(column.layout for column in columns) == layouts(kind)
            again = write(kind, list(columns))
            again.validate(full=True)
            assert repr(again.to_pylist()) == repr(chunk.to_pylist())


@given(drawn_tables())
def test_a_table_conforms_to_its_plain_types(drawn: Drawn) -> None:
    plain = _plain(drawn.table.schema)
    table = conform(drawn.table, plain)
    table.validate(full=True)
    assert table.schema == plain
    assert repr(table.to_pylist()) == repr(drawn.table.to_pylist())


@given(drawn_tables())
def test_chunks_become_one_and_pieces_where_offsets_are_short(drawn: Drawn) -> None:
    columns, count = read_table(drawn.table), drawn.table.num_rows
    schema = _plain(drawn.table.schema)
    whole = write_table(schema, columns, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GREATEST_INT32", 4)
        pieces = write_table(schema, columns, count)
    for table in (whole, pieces):
        table.validate(full=True)
        assert repr(table.to_pylist()) == repr(drawn.table.to_pylist())
    assert whole.column(0).num_chunks == 1


def test_long_columns_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GREATEST_INT32", 4)
    for values in (["abc", "de", None, "f"], [["abc", "d"], ["e", "f", "g"]]):
        table = pa.table({"a": values})
        written = write_table(table.schema, read_table(table), len(values))
        assert written["a"].num_chunks > 1
        assert written["a"].to_pylist() == values


def test_numbers_and_text_are_views() -> None:
    text = pa.array(["abc", "d"])
    (column,) = read(text)
    assert column.data.ctypes.data == text.buffers()[2].address
    number = pa.array([1, 2, 3])[1:]
    (column,) = read(number)
    assert column.data.ctypes.data == number.buffers()[1].address + 8
    assert not column.data.flags.writeable


def test_other_types_are_cast_and_no_columns_stay_none() -> None:
    table = conform(pa.table({"a": [1, 2]}), pa.schema({"a": pa.int8()}))
    assert table.schema.types == [pa.int8()]
    assert conform(table, pa.schema([])).num_columns == 0


def test_sliced_lists_are_cast_right() -> None:
    inner = pa.array([[1], [2], [3]], pa.large_list(pa.int64()))[1:]
    outer = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), inner)[1:]
    kind = pa.list_(pa.large_list(pa.int8()))
    table = conform(pa.table({"a": outer}), pa.schema({"a": kind}))
    table.validate(full=True)
    assert table["a"].to_pylist() == [[[3]]]


def test_extension_types_are_their_storage() -> None:
    array = pa.array([b"0123456789abcdef"], pa.uuid())
    assert plain_type(array.type) == pa.binary(16)
    assert write(pa.binary(16), list(read(array))).to_pylist() == [b"0123456789abcdef"]


def test_views_are_laid_out_one_after_the_other() -> None:
    for kind, values in (
        (pa.binary_view(), [b"abc", None]),
        (pa.string_view(), ["x" * 20, ""]),
    ):
        array = pa.array(values, kind)
        assert write(plain_type(kind), list(read(array))).to_pylist() == values
    hidden = pa.ListViewArray.from_arrays(
        pa.array([0, 1], pa.int32()),
        pa.array([2, 1], pa.int32()),
        pa.array([1, 2]),
        mask=pa.array([True, False]),
    )
    assert write(plain_type(hidden.type), list(read(hidden))).to_pylist() == [None, [2]]


def test_large_list_views_share_items() -> None:
    offsets, sizes = pa.array([1, 0, 0], pa.int64()), pa.array([2, 0, 3], pa.int64())
    view = pa.LargeListViewArray.from_arrays(offsets, sizes, pa.array([1, 2, 3]))
    assert write(plain_type(view.type), list(read(view[1:]))).to_pylist() == [[], [1, 2, 3]]


def test_types_without_equality_are_refused() -> None:
    for kind in (pa.map_(pa.string(), pa.int8()), pa.dense_union([pa.field("a", pa.int8())])):
        with pytest.raises(SchemaError, match="cannot be compared by value"):
            layouts(kind)


@given(drawn_tables())
def test_a_store_grows_and_takes_back(drawn: Drawn) -> None:
    schema, columns = _plain(drawn.table.schema), read_table(drawn.table)
    count = drawn.table.num_rows
    store = Store.of(schema)
    rows = module.frozen(np.arange(count)[::-1].copy())
    store.append(columns, rows)
    store.append(columns, rows)
    store.truncate(count)
    store.append(columns, module.frozen(np.arange(count)))
    written = write_table(schema, store.columns(), 2 * count)
    written.validate(full=True)
    once = drawn.table.to_pylist()
    assert repr(written.to_pylist()) == repr(once[::-1] + once)
