"""Warm copies that several workers share: the committed save and no other, each once."""

import multiprocessing
import os
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from lanes_driver import Runtime, lane_spec
from test_lane_laws import CASES, cut

from anabranch.errors import UsageError
from anabranch.model import Adjust, History, Insert, MergeCase, Stable
from anabranch.spark.lane.spec import Founder
from anabranch.spark.lane.state import NO_COPIES
from anabranch.spark.lane.state_cache import WarmCopies, is_switched_on, private_folder
from anabranch.testing.asserts import assert_valid
from anabranch.testing.strategies import replicas

KEY = ("run", 0, 0)

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="memory is shared by memfd, which Linux has"
)


@pytest.mark.parametrize("case", [*CASES, "auto"])
@given(data=st.data())
def test_workers_that_share_copies_make_the_same_of_any_stream(
    data: st.DataObject, case: str
) -> None:
    """Any worker takes any trigger; some attempts are not committed."""
    streams = data.draw(replicas(case=MergeCase(case) if case != "auto" else MergeCase.R4))
    founders = tuple(Founder(f"r{number}") for number in range(len(streams)))
    final = data.draw(st.booleans())
    runtime = Runtime(lane_spec(case, 2, founders=founders, final=final))
    with tempfile.TemporaryDirectory() as notes:
        workers = [WarmCopies(notes=Path(notes), large=1) for _ in range(2)]
        for trigger in cut(data, streams):
            parcels = runtime.parcels(trigger)
            for _ in range(data.draw(st.integers(0, 1))):
                runtime.warm = data.draw(st.sampled_from(workers))
                runtime.attempt(data.draw(st.integers(0, 1)), parcels)
            runtime.warm = data.draw(st.sampled_from(workers))
            runtime.commit(parcels)
            assert_valid(runtime.output())
            assert runtime.totals.adds_up
    assert History.of(runtime.output()) == History.of(streams[0])
    if final:
        assert History.from_events(runtime.final()) == History.of(streams[0])


def test_another_worker_goes_on_with_the_copy_and_its_maker_has_it_no_more(
    tmp_path: Path,
) -> None:
    runtime = Runtime(lane_spec("r3", 1))
    one, other = (WarmCopies(notes=tmp_path, large=1) for _ in range(2))
    for worker, name in ((one, "a"), (other, "b"), (one, "c"), (one, "d")):
        runtime.warm = worker
        runtime.commit(runtime.parcels({"x": [Insert(name, 1, 9)]}))
    assert (one.hits, one.misses, one.borrowed) == (2, 0, 1)
    assert (other.hits, other.misses, other.borrowed) == (1, 0, 1)
    assert runtime.totals.live == 4


def test_a_copy_that_an_attempt_has_changed_is_not_used_again(tmp_path: Path) -> None:
    """The attempt of the other worker is not committed: the maker's memory has its traces."""
    runtime = Runtime(lane_spec("r3", 1))
    one, other = (WarmCopies(notes=tmp_path, large=1) for _ in range(2))
    runtime.warm = one
    runtime.commit(runtime.parcels({"x": [Insert("a", 1, 9)]}))
    runtime.warm = other
    runtime.attempt(0, runtime.parcels({"x": [Insert("b", 1, 9)]}))
    runtime.warm = one
    runtime.commit(runtime.parcels({"x": [Insert("c", 1, 9)]}))
    assert (one.hits, one.misses) == (0, 1)
    assert History.of(runtime.output()) == History.of([Insert("a", 1, 9), Insert("c", 1, 9)])


def test_arrays_stay_where_they_are_and_only_new_ones_are_copied(tmp_path: Path) -> None:
    one, other = (WarmCopies(notes=tmp_path) for _ in range(2))
    one.put(KEY, "first", {"kept": np.arange(100_000), "new": np.arange(10)})
    lane = other.take(KEY, "first")
    lane["kept"][7] = -1
    other.put(KEY, "second", lane)
    again = one.take(KEY, "second")
    assert again["kept"][7] == -1
    assert np.shares_memory(lane["kept"], other._copies[KEY].lane["kept"])


def test_a_copy_whose_maker_has_ended_is_gone(tmp_path: Path) -> None:
    def make() -> None:
        WarmCopies(notes=tmp_path, large=1).put(KEY, "nonce", np.arange(5))

    child = multiprocessing.get_context("fork").Process(target=make)
    child.start()
    child.join()
    assert child.exitcode == 0
    mine = WarmCopies(notes=tmp_path)
    assert mine.take(KEY, "nonce") is None
    assert mine.misses == 1


def test_a_copy_that_had_to_go_is_not_taken_for_another_file(tmp_path: Path) -> None:
    """Found by a benchmark: its number was that of a smaller file when it was asked for."""
    one, other = WarmCopies(1, tmp_path, large=1), WarmCopies(notes=tmp_path)
    one.put(KEY, "nonce", np.arange(5_000))
    one.put(("run", 0, 1), "another", 7)
    taken = [(tmp_path / f"small-{number}").open("w+b") for number in range(20)]
    assert other.take(KEY, "nonce") is None
    for file in taken:
        file.close()


def test_a_copy_is_borrowed_from_a_process_that_lives(tmp_path: Path) -> None:
    fork = multiprocessing.get_context("fork")
    made, done = fork.Event(), fork.Event()

    def make() -> None:
        copies: Any = WarmCopies(notes=tmp_path, large=1)
        copies.put(KEY, "nonce", np.arange(5))
        made.set()
        done.wait(20)

    child = fork.Process(target=make)
    child.start()
    assert made.wait(20)
    mine = WarmCopies(notes=tmp_path)
    assert mine.take(KEY, "nonce").tolist() == [0, 1, 2, 3, 4]
    done.set()
    child.join()


def test_a_folder_that_others_can_write_to_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = private_folder()
    assert folder is not None
    folder.chmod(0o777)
    assert private_folder() is None


def test_the_switch_is_off_by_0_and_anything_else_is_refused() -> None:
    assert is_switched_on({})
    assert is_switched_on({"ANABRANCH_WARM": "1"})
    assert not is_switched_on({"ANABRANCH_WARM": "0"})
    with pytest.raises(UsageError, match="ANABRANCH_WARM is 'no'; expected 0"):
        is_switched_on({"ANABRANCH_WARM": "no"})


def test_with_the_switch_off_no_copy_is_kept_and_nothing_else_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANABRANCH_WARM", "0")
    assert not lane_spec().warm
    cold, warm = (Runtime(lane_spec("r3", 2), warm=one) for one in (NO_COPIES, WarmCopies()))
    for elements in ([Insert("a", 1, 9), Insert("b", 2, 5)], [Adjust("a", 1, 9, 4), Stable(6)]):
        for runtime in (cold, warm):
            runtime.commit(runtime.parcels({"x": elements}))
    assert cold.output() == warm.output()
    assert (cold.warm.hits, warm.warm.hits) == (0, 2)
