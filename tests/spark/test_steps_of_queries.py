"""The steps of a query before it runs: what is recorded of them, and what is rejected."""

import pyarrow as pa
import pytest
from plan_driver import source

from anabranch.errors import UsageError
from anabranch.spark.query.query import Query


def trades() -> Query:
    return source("trades", k=pa.string(), v=pa.int64())


def words(query: Query) -> str:
    return query.node.words


def test_the_offset_of_a_grid_is_recorded() -> None:
    assert words(trades().window(10, 5)) == "windows of 10 every 5"
    assert words(trades().window(10, 5, offset=1)) == "windows of 10 every 5, offset 1"
    rounded = {
        words(trades().alter_lifetime(round_to=10, lifetime=10, offset=at)) for at in (0, 1, -1)
    }
    assert rounded == {
        "round_to 10, lifetime 10",
        "round_to 10, lifetime 10, offset 1",
        "round_to 10, lifetime 10, offset -1",
    }


def test_an_offset_without_a_grid_is_rejected() -> None:
    with pytest.raises(UsageError, match="window: offset=1 moves a grid; give slide= too"):
        trades().window(10, offset=1)
    with pytest.raises(
        UsageError, match="alter_lifetime: offset=1 moves a grid; give round_to"
    ):
        trades().alter_lifetime(shift=3, offset=1)
