import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from payload_tables import Drawn, drawn_tables

from anabranch.batch.hashing import hash_payload
from anabranch.batch.kernel import kernel
from anabranch.batch.murmur import U64, load_few, murmur


@kernel
def _murmur_once(data, out):
    out[2], out[3] = murmur(data, U64(0), U64(data.size), out[0], out[1])


def _murmur(text: bytes, seed: int = 0) -> bytes:
    out = np.array([seed, seed, 0, 0], np.uint64)
    _murmur_once(np.frombuffer(text, np.uint8), out)
    return out[2:].tobytes()


def test_murmur_gives_the_published_verification_value() -> None:
    # SMHasher's VerificationTest: keys 0, 01, 0102, ... under seeds 256 - n, hashed again.
    everything = b"".join(_murmur(bytes(range(n)), 256 - n) for n in range(256))
    assert int.from_bytes(_murmur(everything)[:4], "little") == 0x6384BA69


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", "00000000000000000000000000000000"),
        (b"The quick brown fox jumps over the lazy dog", "e34bbc7bbc071b6c7a433ca9c49a9347"),
        (b"The quick brown fox jumps over the lazy cog", "658ca970ff85269a43fee3eaa68e5c3e"),
    ],
)
def test_text_has_the_published_hash(text: bytes, expected: str) -> None:
    low, high = hash_payload(pa.table({"a": [text]}))
    assert f"{low[0]:016x}{high[0]:016x}" == expected


@kernel
def _load(data, at, count, out):
    out[0] = load_few(data, U64(at), U64(count))


@pytest.mark.parametrize("count", range(9))
@pytest.mark.parametrize("at", [0, 1, 3, 8])
def test_loads_any_number_of_bytes_up_to_the_last(at: int, count: int) -> None:
    data = np.arange(1, at + count + 1, dtype=np.uint8)
    out = np.zeros(1, np.uint64)
    _load(data, at, count, out)
    assert int(out[0]) == int.from_bytes(data[at:].tobytes(), "little")


@given(drawn_tables())
def test_hashes_are_equal_exactly_when_values_are(drawn: Drawn) -> None:
    low, high = hash_payload(drawn.table)
    assert len(low) == len(high) == drawn.table.num_rows
    hashes, keys = list(zip(low.tolist(), high.tolist(), strict=True)), drawn.keys()
    # 128 bits: no two of the few keys here share a hash unless the function is broken.
    assert len(set(keys)) == len(set(hashes)) == len(set(zip(keys, hashes, strict=True)))


@given(drawn_tables(max_rows=6))
def test_rows_hash_alike_alone_and_together(drawn: Drawn) -> None:
    low, high = hash_payload(drawn.table)
    for row in range(drawn.table.num_rows):
        alone = hash_payload(drawn.table.slice(row, 1))
        assert (low[row], high[row]) == (alone[0][0], alone[1][0])


def test_the_same_text_hashes_alike_in_every_form() -> None:
    text = pa.array(["a", None, "", "ä€", "a"])
    forms = [text, text.cast(pa.large_string()), text.dictionary_encode(), text.cast("binary")]
    forms += [text.cast(pa.string_view()), pa.compute.run_end_encode(text)]
    hashes = {hash_payload(pa.table({"a": form}))[0].tobytes() for form in forms}
    assert len(hashes) == 1


def test_nulls_empties_and_borders_between_values_all_count() -> None:
    rows = [("ab", "c"), ("a", "bc"), ("abc", ""), ("abc", None), (None, "abc"), ("", "abc")]
    low, _ = hash_payload(pa.table({"a": [r[0] for r in rows], "b": [r[1] for r in rows]}))
    assert len(set(low.tolist())) == len(rows)
    lists = pa.array([[["a"], ["b"]], [["a", "b"]], [["a"], [], ["b"]], [], None, [None], [[]]])
    assert len(set(hash_payload(pa.table({"a": lists}))[0].tolist())) == len(lists)


def test_a_table_without_rows_or_columns_has_no_hashes() -> None:
    assert [len(half) for half in hash_payload(pa.table({}))] == [0, 0]
    assert [len(half) for half in hash_payload(pa.table({"a": pa.array([], "int8")}))] == [0, 0]
