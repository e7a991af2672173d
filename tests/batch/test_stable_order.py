"""The order of numbers is that of NumPy's stable sort, whatever their range and number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.stable_order import order_by, stable_order

BITS = st.sampled_from([0, 1, 11, 12, 33, 44, 45, 62])


@given(st.integers(0, 2**32), st.sampled_from([0, 1, 256, 257, 3_000]), BITS, st.booleans())
def test_the_order_is_that_of_numpy(seed, count, bits, sort):
    rng = np.random.default_rng(seed)
    low = -(2**61) if seed % 2 else 0
    values = rng.integers(low, low + 2**bits, count)
    values = np.sort(values) if sort else values
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    first = rng.integers(0, 5, count)
    assert order_by(first, values).tolist() == np.lexsort((values, first)).tolist()


def test_the_greatest_range_and_columns_of_a_matrix():
    info = np.iinfo(np.int64)
    values = np.tile(np.array([info.max, info.min, 0, -1], np.int64), 100)
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()
    columns = np.random.default_rng(1).integers(0, 99, (1_000, 3))
    wanted = np.argsort(columns[:, 1], kind="stable")
    assert stable_order(columns[:, 1]).tolist() == wanted.tolist()


@pytest.mark.parametrize("count", [3, 1_000])
def test_the_result_may_index_an_array(count):
    order = stable_order(np.arange(count)[::-1])
    assert order.dtype == np.int64
    assert order.tolist() == [*range(count)][::-1]
