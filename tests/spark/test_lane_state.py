"""A lane's parts in the store, and the warm copy: used only if it is what Spark committed."""

import json
from dataclasses import replace
from typing import Any

import pytest
from lanes_driver import Runtime, lane_spec

from anabranch.errors import StateError
from anabranch.model import History, Insert, Stable
from anabranch.spark.lane.state import FORMAT, HEADER, WarmCopies, load, store
from anabranch.spark.lane.trigger import make
from anabranch.testing.in_lanes import Parts

A, B, C = Insert("a", 1, 9), Insert("b", 2, 9), Insert("c", 3, 9)


def one_lane(case: str = "r3") -> Runtime:
    return Runtime(lane_spec(case, 1))


def test_a_copy_of_the_committed_save_is_used() -> None:
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    runtime.commit(runtime.parcels({"x": [B]}))
    assert (runtime.warm.hits, runtime.warm.misses) == (1, 0)
    assert runtime.totals.live == 2


def test_a_copy_ahead_of_the_store_is_not_used() -> None:
    """An attempt that was not committed has left its copy: the next one must not see B."""
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    runtime.attempt(0, runtime.parcels({"x": [B]}))
    hits = runtime.warm.hits
    runtime.commit(runtime.parcels({"x": [C]}))
    assert runtime.warm.hits == hits
    assert History.of(runtime.output()) == History.of([A, C])


def test_a_stale_copy_is_not_used() -> None:
    """Another worker took the step between: this one's copy does not know B."""
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    mine, runtime.warm = runtime.warm, WarmCopies()
    runtime.commit(runtime.parcels({"x": [B]}))
    runtime.warm = mine
    runtime.commit(runtime.parcels({"y": [B, Stable(3)], "x": [C]}))
    assert (mine.hits, mine.misses) == (0, 1)
    assert [e for e in runtime.output() if isinstance(e, Insert)] == [A, B, C]


def test_twins_of_one_step_do_not_share_a_nonce() -> None:
    """Speculation: both did the same, but one was committed; the other's copy is not it."""
    runtime = one_lane()
    parcels = runtime.parcels({"x": [A]})
    runtime.attempt(0, parcels)
    loser, runtime.warm = runtime.warm, WarmCopies()
    runtime.commit(parcels)
    assert load(Parts(runtime.stores[0]), runtime.which(0), loser) is not None
    assert (loser.hits, loser.misses) == (0, 1)


def test_the_copy_of_another_lane_is_not_used() -> None:
    runtime = Runtime(lane_spec("r3", 2))
    runtime.commit(runtime.parcels({"x": [A, B, C]}))
    both = {number: load(runtime.stores[number], runtime.which(number)) for number in (0, 1)}
    assert {lane.states["merge"].live for lane in both.values() if lane} in ({0, 3}, {1, 2})
    assert runtime.warm.take(("run", 0, 7), "nonce") is None


def test_a_step_that_fails_leaves_no_copy() -> None:
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    with pytest.raises(TypeError):
        runtime.attempt(0, [replace(runtime.parcels({"x": [A]})[0], places=5)])
    runtime.commit(runtime.parcels({"x": [B]}))
    assert (runtime.warm.hits, runtime.warm.misses) == (1, 1)


def test_only_a_few_lanes_are_kept_warm() -> None:
    runtime = Runtime(lane_spec("r3", 3), WarmCopies(2))
    runtime.commit(runtime.parcels({"x": [A]}))
    runtime.commit(runtime.parcels({"x": [B]}))
    assert runtime.warm.hits < 3


def test_a_save_writes_what_changed() -> None:
    """Ten times the live events, the same step: about the same bytes are written."""

    def written(live: int) -> int:
        runtime = one_lane()
        many = [Insert(f"e{number}", number, 10**6) for number in range(live)]
        runtime.commit(runtime.parcels({"x": many}))
        before = dict(runtime.stores[0])
        runtime.commit(runtime.parcels({"x": [Insert("new", live, 10**6)]}))
        after = runtime.stores[0]
        return sum(len(data[0]) for key, data in after.items() if before.get(key) != data)

    assert written(50_000) < 1.5 * written(5_000)


def test_a_lane_that_goes_on_as_r4_keeps_no_part_of_r3() -> None:
    runtime = one_lane("auto")
    many = [Insert(f"e{number}", number, 10**6) for number in range(3000)]
    runtime.commit(runtime.parcels({"x": many}))
    runtime.commit(runtime.parcels({"x": [Insert("e1", 1, 50)]}))
    runtime.warm = WarmCopies()
    runtime.commit(runtime.parcels({"x": [Stable(float("inf"))]}))
    assert len(History.of(runtime.output())) == 3001


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"lanes": 3}, "lanes = 1, now it is asked to continue with 3"),
        ({"case": "r2"}, "pipeline = merge: r3, now it is asked to continue with merge: r2"),
    ],
)
def test_another_number_of_lanes_or_case_is_refused(other: dict[str, Any], words: str) -> None:
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    runtime.spec = lane_spec(other.get("case", "r3"), other.get("lanes", 1))
    with pytest.raises(StateError, match=words):
        load(runtime.stores[0], runtime.which(0))


def test_another_format_is_refused_by_name() -> None:
    runtime = one_lane()
    runtime.commit(runtime.parcels({"x": [A]}))
    store_ = runtime.stores[0]
    header = json.loads(store_[(HEADER,)][0])
    store_[(HEADER,)] = (json.dumps(header | {"format": FORMAT + 1}).encode(),)
    with pytest.raises(StateError, match=f"format = {FORMAT + 1}, now .* with {FORMAT};"):
        load(store_, runtime.which(0))


def test_a_save_is_few_calls() -> None:
    """A call to Spark's store has its price: many small parts go as one value."""

    class Counting(Parts):
        calls = 0

        def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
            Counting.calls += 1
            super().updateValue(key, value)

    runtime = one_lane()
    many = [Insert(f"e{number}", number, 10**6) for number in range(20_000)]
    lane = runtime.spec.new_lane()
    make(0, lane, runtime.parcels({"x": many}), runtime.spec)
    parts = Counting()
    store(parts, runtime.which(0), lane, runtime.warm)
    assert Counting.calls == len(parts) == 3  # a bundle, the index, the header
