import pyarrow as pa
import pytest

from anabranch.batch.schema import ElementSchema, TimeType, has_map, plain_type
from anabranch.errors import SchemaError

TIMES = {"start": pa.int64(), "end": pa.int64()}
LEAST = {"kind": pa.string(), **TIMES}


def _of(columns: dict[str, pa.DataType]) -> ElementSchema:
    return ElementSchema.of(pa.schema(columns), where="x.parquet")


def test_the_least_schema() -> None:
    schema = _of(LEAST)
    assert schema == ElementSchema(TimeType.BIGINT, pa.schema([]))
    assert schema.arrow.names == ["kind", "start", "end", "old_end"]
    assert not schema.arrow.field("kind").nullable


def test_everything_at_once() -> None:
    instants = dict.fromkeys(("start", "end"), pa.timestamp("ms", "Europe/Paris"))
    schema = _of(
        {
            "a": pa.dictionary(pa.int8(), pa.string()),
            "replica": pa.dictionary(pa.int8(), pa.string()),
            "seq": pa.int32(),
            "kind": pa.large_string(),
            "old_end": pa.null(),
            **instants,
        }
    )
    assert schema.time is TimeType.TIMESTAMP
    assert schema.payload == pa.schema({"a": pa.string()})
    reserved = ["kind", "start", "end", "old_end", "seq", "replica"]
    assert schema.arrow.names == [*reserved, "a"]
    assert schema.arrow.field("old_end").type == pa.timestamp("us", "UTC")


def test_columns_without_values_have_any_type() -> None:
    assert (
        _of({"kind": pa.string(), "start": pa.null(), "end": pa.null()}).time is TimeType.BIGINT
    )


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (TIMES, "no column 'kind'"),
        ({"kind": pa.string()}, "no column 'start' and no column 'end'"),
        ({**LEAST, "kind": pa.int8()}, "column 'kind' is int8, expected string"),
        (
            {**LEAST, "end": pa.float64()},
            "column 'end' is double, expected bigint or timestamp",
        ),
        ({**LEAST, "old_end": pa.uint64()}, "column 'old_end' is uint64"),
        ({**LEAST, "start": pa.timestamp("s")}, r"'start' is timestamp\[s\], 'end' is int64"),
        ({**LEAST, "seq": pa.string()}, "column 'seq' is string, expected bigint"),
        ({**LEAST, "replica": pa.int8()}, "column 'replica' is int8, expected string"),
        (
            {**LEAST, "a": pa.list_(pa.map_(pa.string(), pa.int8()))},
            "column 'a' .* a map has no",
        ),
        ({**LEAST, "a": pa.dense_union([pa.field("b", pa.int8())])}, "Spark has no unions"),
    ],
)
def test_what_does_not_fit_is_named(columns: dict[str, pa.DataType], message: str) -> None:
    with pytest.raises(SchemaError, match=message) as caught:
        _of(columns)
    assert str(caught.value).startswith("x.parquet: ")


def test_two_columns_of_one_name_are_refused() -> None:
    fields = [*pa.schema(LEAST), pa.field("a", pa.int8()), pa.field("a", pa.int8())]
    with pytest.raises(SchemaError, match="several columns are named 'a'"):
        ElementSchema.of(pa.schema(fields), where="x.parquet")


def test_maps_are_found_at_any_depth() -> None:
    a_map = pa.map_(pa.string(), pa.int8())
    inside = pa.dictionary(pa.int8(), pa.struct({"a": a_map}))
    assert has_map(a_map)
    assert has_map(inside)
    assert not has_map(pa.uuid())
    assert not has_map(pa.struct({"a": pa.list_(pa.int8())}))


@pytest.mark.parametrize(
    ("kind", "plain"),
    [
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
        (pa.list_view(pa.string_view()), pa.list_(pa.string())),
        (pa.large_list_view(pa.int8()), pa.large_list(pa.int8())),
        (pa.large_list(pa.string_view()), pa.large_list(pa.string())),
        (pa.list_(pa.string_view(), 2), pa.list_(pa.string(), 2)),
        (pa.run_end_encoded(pa.int32(), pa.string_view()), pa.string()),
        (pa.struct([pa.field("a", pa.int8(), nullable=False)]), pa.struct({"a": pa.int8()})),
        (pa.uuid(), pa.binary(16)),
        (pa.large_string(), pa.large_string()),
    ],
)
def test_plain_types(kind: pa.DataType, plain: pa.DataType) -> None:
    assert plain_type(kind) == plain


def test_payload_called_as_a_reserved_column_in_other_case_is_rejected() -> None:
    with pytest.raises(SchemaError, match=r"x.parquet: the column 'START' is payload.*rename"):
        _of({**LEAST, "START": pa.int8()})
