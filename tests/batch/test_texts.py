"""Texts that are looked up in a fixed list, raced against a dictionary."""

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.hashing import hash_payload
from anabranch.batch.texts import NOT_THERE, Texts

# Of all lengths around a word, some with zeros at the end, and many that are alike.
names = st.one_of(
    st.text(max_size=40),
    st.text("ab", max_size=6),
    st.text("a\0", max_size=18),
)


def expected(known: list[str], asked: list[str | None]) -> list[int]:
    place = {text: at for at, text in enumerate(known)}
    return [NOT_THERE if one is None else place.get(one, NOT_THERE) for one in asked]


@given(
    known=st.lists(names, max_size=30, unique=True),
    others=st.lists(st.none() | names, max_size=30),
    cut=st.integers(0, 60),
    kind=st.sampled_from(
        [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())]
    ),
)
def test_the_place_of_a_text_is_that_in_the_list(
    known: list[str], others: list[str | None], cut: int, kind: pa.DataType
) -> None:
    asked = [*others, *known]
    whole = pa.array(["x", *asked], pa.string()).cast(kind).slice(1)
    chunks = pa.chunked_array([whole.slice(0, cut), whole.slice(cut)], kind)
    made = Texts.of(known)
    assert made.find(chunks).tolist() == expected(known, asked)
    assert pickle.loads(pickle.dumps(made)).find(chunks).tolist() == expected(known, asked)


def test_a_text_of_the_same_hash_is_another_one() -> None:
    """The slot of "b" comes first, and has the hash of "a"."""
    known = Texts.of(["a", "b"])
    low, high = hash_payload(pa.table({"text": ["a"]}))
    slots, first = np.zeros(8, np.uint64), int(low[0]) & 7
    tag = high[0] >> np.uint64(32) << np.uint64(32)
    slots[first], slots[(first + 1) & 7] = tag | np.uint64(2), tag | np.uint64(1)
    found = replace(known, slots=slots).find(pa.chunked_array([["a"]]))
    assert found.tolist() == [0]
