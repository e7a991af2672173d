from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from anabranch.batch.batch import Batch, concat
from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.hashing import hash_rows
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.model.element import Adjust, Insert, Stable

ELEMENTS = [Insert("x", 1, 5), Stable(1), Adjust("x", 1, 5, 9)]


def _schema(*, has_seq: bool = False, names: str = "a") -> ElementSchema:
    payload = pa.schema(dict.fromkeys(names, pa.string()))
    return ElementSchema(TimeType.BIGINT, payload, has_seq=has_seq)


@pytest.mark.parametrize("has_seq", [False, True])
def test_take_by_position_or_mask(has_seq: bool) -> None:
    batch = from_elements(ELEMENTS, _schema(has_seq=has_seq))
    assert to_elements(batch.take(np.array([2, 0]))) == [ELEMENTS[2], ELEMENTS[0]]
    data = batch.take(batch.is_data)
    assert to_elements(data) == [ELEMENTS[0], ELEMENTS[2]]
    assert (data.seq.tolist() if has_seq else data.seq) == ([0, 2] if has_seq else None)


def test_take_without_payload_columns() -> None:
    elements = [Insert((), 1, 5), Stable(1)]
    batch = from_elements(elements, _schema(names=""))
    assert to_elements(batch.take(np.array([1, 0, 1]))) == [elements[i] for i in (1, 0, 1)]


def test_concat() -> None:
    one, two = (
        from_elements(part, _schema(has_seq=True)) for part in (ELEMENTS[:1], ELEMENTS[1:])
    )
    assert concat([one]) is one
    assert to_elements(concat([one, two])) == ELEMENTS
    assert concat([one, two]).seq.tolist() == [0, 0, 1]
    bare = from_elements(ELEMENTS, _schema())
    assert concat([one, bare]).seq is None


def test_hashes_stay_with_their_rows() -> None:
    bare = from_elements(ELEMENTS, _schema())
    batch = replace(bare, hashes=hash_rows(bare.payload, len(bare)))
    parts = [batch.take(np.array([2, 0])), batch.slice(1, 3), batch.take(batch.is_data)]
    for some in [*parts, concat(parts)]:
        assert some.hashes is not None
        assert some.hashes.tolist() == hash_rows(some.payload, len(some)).tolist()
    assert concat([batch, bare]).hashes is None, "only where every row has one"


@pytest.mark.parametrize("wrong", ["payload", "seq", "end"])
def test_columns_of_different_lengths_are_refused(wrong: str) -> None:
    batch = from_elements(ELEMENTS, _schema(has_seq=True))
    columns = {**vars(batch), wrong: getattr(batch, wrong)[:2]}
    with pytest.raises(ValueError, match="different lengths"):
        Batch(**columns)
