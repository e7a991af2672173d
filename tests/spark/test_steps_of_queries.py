"""The steps of a query before it runs: what is recorded of them, and what is rejected."""

import pyarrow as pa
import pytest
from plan_driver import source

import anabranch as ab
from anabranch.batch.codec import from_elements
from anabranch.batch.schema import TimeType
from anabranch.errors import RunError, SchemaError, StateError, UsageError
from anabranch.model import Adjust, Insert
from anabranch.model.element import Element
from anabranch.operators.contract import Arrival, Inputs
from anabranch.operators.pipeline import PipelineStep, run
from anabranch.spark.query.query import Query


def trades() -> Query:
    return source("trades", k=pa.string(), v=pa.int64())


def rates(**columns: pa.DataType) -> Query:
    return source("rates", **columns)


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


def test_sides_with_one_name_and_two_types_are_rejected_at_the_call() -> None:
    other = rates(k=pa.string(), v=pa.float64())
    for call in (trades().union, trades().difference):
        with pytest.raises(SchemaError, match="column 'v' is int64 on one side and double"):
            call(other)
    with pytest.raises(SchemaError, match=r"union: both sides must have the same columns; got"):
        trades().union(rates(k=pa.string()))
    timed = source("timed", TimeType.TIMESTAMP, k=pa.string(), v=pa.int64())
    with pytest.raises(SchemaError, match="column 'start' is bigint on one side and timestamp"):
        trades().union(timed)


@pytest.mark.parametrize("name", ["start", "End", "kind", "seq", "replica", "OLD_END"])
def test_an_aggregate_with_a_name_of_the_element_format_is_rejected(name: str) -> None:
    with pytest.raises(SchemaError, match=f"is called '{name.lower()}', which the element"):
        trades().group_by("k").aggregate(**{name: ab.count()})


def test_names_that_differ_in_case_alone_are_one_name() -> None:
    with pytest.raises(SchemaError, match="two columns of the result are called 'k'"):
        trades().group_by("k").aggregate(K=ab.count())
    with pytest.raises(SchemaError, match="both sides have a column 'V' that is not joined on"):
        trades().join(rates(k=pa.string(), V=pa.int64()), on="k")


MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("elements", "error", "text"),
    [
        ([Insert(("a", MOST), 1, 9), Insert(("a", 1), 2, 9)], RunError, r"sum\(v\) of group"),
        ([Adjust(("a", 1), 1, 9, 5)], StateError, "finds no such event"),
    ],
)
@pytest.mark.parametrize("window", [lambda q: q, lambda q: q.window(9, 9)])
def test_an_error_names_the_step_by_the_id_that_the_user_gave(
    elements: list[Element], error: type[Exception], text: str, window
) -> None:  # type: ignore[no-untyped-def]
    last = window(trades()).group_by("k").aggregate(id="totals", total=ab.sum("v")).node
    step = PipelineStep(last.id, last.operator)
    removed = [Adjust(e.payload, 1, 9, 1) if isinstance(e, Adjust) else e for e in elements]
    given = Inputs((Arrival("input", from_elements(removed, last.operator.schema)),))
    with pytest.raises(error, match=f"step 'totals': aggregate: .*{text}"):
        list(run((step,), {"totals": step.operator.empty()}, {"totals": given}))
