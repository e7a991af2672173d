import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from payload_tables import Drawn, drawn_tables

from anabranch.batch import index, intern
from anabranch.batch.hashing import hash_payload
from anabranch.batch.intern import Interner


def _weak(bits: int) -> intern.HashPayload:
    def hash_few(table: pa.Table) -> tuple[intern.Hashes, intern.Hashes]:
        low, high = hash_payload(table)
        return low & np.uint64((1 << bits) - 1), high & np.uint64(0)

    return hash_few


@pytest.fixture(autouse=True, params=[4, 16_384])
def _stride(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intern, "_STRIDE", request.param)
    monkeypatch.setattr(index, "_FIRST_SLOTS", 8)


def _race(drawn: Drawn, starts: list[int], hash_few: intern.HashPayload | None) -> None:
    """The same rows, into the interner in two calls and into a dict one by one."""
    interner = Interner(drawn.table.schema, hash_payload=hash_few)
    model: dict[object, int] = {}
    identities = list(zip(starts, drawn.keys(), strict=True))
    expected = [model.setdefault(identity, len(model)) for identity in identities]
    half = len(starts) // 2
    found = []
    for begin, end in ((0, half), (half, len(starts))):
        start = np.array(starts[begin:end], np.int64)
        found += interner.intern(start, drawn.table.slice(begin, end - begin)).tolist()
        interner.check()
    assert found == expected
    assert len(interner) == len(model)
    assert interner.start.tolist() == [start for start, _ in model]
    firsts = [expected.index(n) for n in range(len(model))]
    payload = interner.payload
    assert payload.num_rows == len(model) or not payload.num_columns
    again = Interner(payload.schema)
    assert again.intern(interner.start, payload).tolist() == list(range(len(model)))
    _assert_same_bits(interner.take(np.arange(len(model))), drawn, firsts)
    _assert_same_bits(payload, drawn, firsts)


def _assert_same_bits(table: pa.Table, drawn: Drawn, rows: list[int]) -> None:
    """The first seen forms: a float keeps its sign and is compared by its text."""
    table.validate(full=True)
    for name, column in zip(table.column_names, drawn.columns, strict=True):
        kind = table.schema.field(name).type
        expected = pa.array([column[row] for row in rows], kind)
        assert repr(table[name].to_pylist()) == repr(expected.to_pylist())


@given(st.data(), drawn_tables(max_rows=24, min_columns=0), st.sampled_from([None, 0, 1, 3]))
def test_ids_are_those_of_a_dict_however_weak_the_hash(
    data: st.DataObject, drawn: Drawn, bits: int | None
) -> None:
    count = drawn.table.num_rows
    starts = data.draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    _race(drawn, starts, None if bits is None else _weak(bits))


@given(st.lists(st.integers(0, 40), max_size=200), st.sampled_from([0, 1, 3, 64]))
def test_many_identities_of_one_hash(numbers: list[int], bits: int) -> None:
    drawn = Drawn([numbers], pa.table({"a": pa.array(numbers, pa.int64())}))
    _race(drawn, [0] * len(numbers), _weak(bits))


def test_starts_count_where_all_hashes_are_equal() -> None:
    numbers = [1, 2, 1, 1, 2, 1]
    drawn = Drawn([numbers], pa.table({"a": pa.array(numbers, pa.int64())}))
    _race(drawn, [5, 5, 6, 5, 6, 6], _weak(0))


def test_without_payload_columns_the_start_is_the_identity() -> None:
    interner = Interner(pa.schema([]), hash_payload=_weak(0))
    assert interner.intern(np.array([3, 4, 3]), pa.table({})).tolist() == [0, 1, 0]
    assert interner.payload.num_columns == 0
    interner.check()


def test_the_first_seen_form_stays() -> None:
    interner = Interner(pa.schema({"a": pa.float64()}))
    assert interner.intern(
        np.zeros(3, np.int64), pa.table({"a": [-0.0, 0.0, math.nan]})
    ).tolist() == [
        0,
        0,
        1,
    ]
    assert repr(interner.payload["a"].to_pylist()) == "[-0.0, nan]"
    assert repr(interner.take(np.array([1, 0, 0]))["a"].to_pylist()) == "[nan, -0.0, -0.0]"


def test_a_view_stays_true_while_the_interner_grows() -> None:
    interner = Interner(pa.schema({"a": pa.string()}))
    interner.intern(np.arange(3), pa.table({"a": ["x", "y", None]}))
    start, payload = interner.start, interner.payload
    interner.intern(np.arange(5000), pa.table({"a": [str(n) for n in range(5000)]}))
    interner.check()
    assert start.tolist() == [0, 1, 2]
    assert payload["a"].to_pylist() == ["x", "y", None]
    with pytest.raises(ValueError, match="read-only"):
        start[0] = 1


def test_other_forms_of_the_payload_type_are_taken() -> None:
    interner = Interner(pa.schema({"a": pa.dictionary(pa.int8(), pa.string())}))
    assert interner.payload.schema.types == [pa.string()]
    for kind in (pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.string_view()):
        table = pa.table({"b": [1, 2], "a": pa.array(["x", "y"]).cast(kind)})
        assert interner.intern(np.zeros(2, np.int64), table).tolist() == [0, 1]


def test_starts_and_payloads_must_match() -> None:
    interner = Interner(pa.schema({"a": pa.string()}))
    with pytest.raises(ValueError, match="2 starts for 1 payloads"):
        interner.intern(np.zeros(2, np.int64), pa.table({"a": ["x"]}))


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("lost", r"slots, counted and distinct ids differ: \(2, 3, 2\)"),
        ("moved", "which a search does not reach"),
        ("short", "1 payloads != 3 identities"),
    ],
)
def test_check_finds_harm(harm: str, message: str) -> None:
    interner = Interner(pa.schema({"a": pa.int64()}))
    interner.intern(np.arange(3), pa.table({"a": [1, 2, 3]}))
    words = interner._index._words
    used = np.flatnonzero(words)
    if harm == "lost":
        words[used[0]] = 0
    elif harm == "short":
        interner._store.truncate(1)
    else:
        # To the free slot before its place, which its search does not reach.
        at = next(slot for slot in used if words[slot - 1] == 0)
        words[at - 1], words[at] = words[at], 0
    with pytest.raises(AssertionError, match=message):
        interner.check()
