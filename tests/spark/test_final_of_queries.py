"""What a query reports as final is never changed; windows are reported when they end."""

from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from plan_driver import Lane, kept, require_final_stays, source, triggers

import anabranch as ab
from anabranch.model import Insert, Stable
from anabranch.spark.query.query import Query


def stream(name: str, column: str = "v", **how: bool) -> Query:
    return source(name, **how, **{"k": pa.string(), column: pa.int64()})


def trades() -> Query:
    return stream("trades")


def rates(column: str = "rate") -> Query:
    return stream("rates", column)


def test_windows_that_a_join_cuts_are_windows_no_more() -> None:
    """The pair of a window and an event lives for a part of the window, which may change."""
    known = stream("rates", "rate", final_at_start=True)
    pairs = trades().window(10, 10).join(known, on="k")
    counted = pairs.group_by("k").aggregate(n=ab.count())
    assert pairs.columns == ["k", "v", "window", "rate"]
    assert counted.columns == ["k", "n"]
    lane = Lane(counted)
    lane.step(trades=[Insert(("a", 1), 12, 13)], rates=[Insert(("a", 7), 12, 20)])
    lane.step(trades=[Stable(20)], rates=[Stable(13)])
    assert lane.step(rates=[Insert(("a", 8), 15, 18)])[0]
    require_final_stays(lane)
    lane.step(rates=[Stable(40)], trades=[Stable(40)])
    require_final_stays(lane)
    assert len(lane.final) == 3


@pytest.mark.parametrize("window", [lambda q: q, lambda q: q.window(5)])
def test_a_user_s_column_called_window_is_none_of_the_grid_s(
    window: Callable[[Query], Query],
) -> None:
    own = source("rows", final_at_start=True, k=pa.string(), window=pa.int64())
    counted = window(own).group_by("k").aggregate(n=ab.count())
    assert counted.columns == ["k", "n"]
    lane = Lane(counted)
    lane.step(rows=[Insert(("a", 1), 2, 7), Stable(3)])
    lane.step(rows=[Insert(("a", 2), 4, 9), Stable(20)])
    require_final_stays(lane)


def test_a_row_in_two_windows_is_ranked_in_each_of_them() -> None:
    best = trades().window(4, 2).group_by("k").top_k(1, by="v")
    assert best.node.operator.route_columns == ("k", "window")
    lane = Lane(best)
    lane.step(trades=[Insert(("a", 1), 3, 4), Insert(("a", 2), 5, 6)])
    assert {(e.payload[1], e.start, e.end) for e in lane.history} == {
        (1, 0, 4),
        (1, 2, 6),
        (2, 4, 8),
    }


@pytest.mark.parametrize("made", [trades().inserts(), trades().window(3).deletes()])
def test_what_has_no_end_is_not_final_before_the_stream_ends(made: Query) -> None:
    lane = Lane(made)
    lane.step(trades=[Insert(("a", 1), 1, 5), Stable(9)])
    assert (len(lane.history), lane.final) == (1, [])
    lane.step(trades=[Stable(float("inf"))])
    assert lane.final_events() == Counter(lane.history)


def test_other_lifetimes_than_the_windows_end_them() -> None:
    for made in (
        trades().window(4, 2).window(3),
        trades().window(4, 2).hop(4, 2),
        trades().window(4, 2).alter_lifetime(shift=1),
        trades().window(4, 2).inserts(),
    ):
        assert "window" in made.columns
        assert made.group_by("k").aggregate(n=ab.count()).columns == ["k", "n"]


IN_WINDOWS: dict[str, Callable[[], Query]] = {
    "distinct": lambda: trades().window(4, 2).distinct(),
    "normalise": lambda: trades().window(4, 4).normalise(),
    "top_k": lambda: trades().window(4, 2).group_by("k").top_k(1, by="v"),
    "max": lambda: trades().window(4, 2).group_by("k").aggregate(m=ab.max("v")),
    "count": lambda: trades().window(4, 2).group_by("k").aggregate(n=ab.count()),
    "difference": lambda: (
        trades().window(4, 2).difference(rates("v").window(4, 2))
    ),
    "union": lambda: trades().window(4, 2).union(rates("v").window(4, 2)).distinct(),
    "inner": lambda: (
        trades().window(4, 2).join(rates().window(4, 2), on=["k", "window"])
    ),
    "left": lambda: (
        trades().window(4, 2).join(rates().window(4, 2), on=["k", "window"], how="left")
    ),
    "anti, counted": lambda: (
        trades().window(4, 2).join(rates().window(4, 2), on=["k", "window"], how="anti")
        .group_by("k").aggregate(n=ab.count())
    ),
    "where": lambda: kept(trades().window(4, 2), lambda row: row["v"] > 0).distinct(),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_WINDOWS)
def test_windows_are_final_in_the_step_in_which_they_end_through_every_step(name: str) -> None:
    """Not one window later, as it would be by `end < stable` alone."""
    query = IN_WINDOWS[name]()
    assert query.node.in_windows
    lane = Lane(query)
    lane.step(
        trades=[Insert(("a", 1), 5, 6), Insert(("b", 1), 5, 6)],
        rates=[Insert(("a", 2), 5, 9)],
    )
    windows = [event for event in lane.history if event.end == 8]
    assert windows
    lane.step(trades=[Stable(7)], rates=[Stable(7)])
    assert not [one for one in lane.final if one.end == 8]
    lane.step(trades=[Stable(8)], rates=[Stable(8)])
    assert sorted(map(str, (one.event for one in lane.final if one.end == 8))) == sorted(
        map(str, windows)
    )


QUERIES: dict[str, Callable[[], Query]] = {
    **IN_WINDOWS,
    "cut": lambda: (
        trades().window(4, 4).join(rates().window(3), on="k").group_by("k")
        .aggregate(n=ab.count())
    ),
    "cut, best": lambda: (
        trades().window(4, 4).join(rates().window(3), on="k").group_by("k").top_k(1, by="v")
    ),
    "sliding": lambda: trades().window(3).group_by("k").aggregate(n=ab.count()),
    "sliding, distinct": lambda: trades().window(3).distinct(),
    "inserts": lambda: trades().inserts(),
    "deletes": lambda: trades().deletes(),
    "anti of inserts": lambda: trades().inserts().join(rates(), on="k", how="anti"),
    "inserts, joined": lambda: trades().inserts().join(rates().window(3), on="k"),
    "semi": lambda: trades().join(rates(), on="k", how="semi"),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
@given(data=st.data())
def test_what_is_reported_as_final_is_never_changed(name: str, data: st.DataObject) -> None:
    """At every prefix, and at the end of the streams all is reported."""
    lane = Lane(QUERIES[name]())
    for given_now in data.draw(triggers("trades", "rates")):
        lane.step(**given_now)
        require_final_stays(lane)
    assert lane.final_events() == Counter(lane.history)
