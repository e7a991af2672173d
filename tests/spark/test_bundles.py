"""Parts in bundles: what is read is what was saved last, and little lies there dead."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import StateError
from anabranch.spark.lane import bundles
from anabranch.spark.lane.bundles import BUNDLE, INDEX, Bundles
from anabranch.testing.in_lanes import Parts

NAMES = [f"merge/nodes/{number}" for number in range(12)]
SIZES = st.sampled_from([0, 1, 40, 400, 4_000])

Saves = list[tuple[dict[str, bytes], list[str]]]


@st.composite
def saves(draw: st.DrawFn) -> Saves:
    """Parts that are written, written again and deleted; none of both in one save."""
    made: Saves = []
    for turn in range(draw(st.integers(1, 25))):
        names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=8))
        kept = draw(st.integers(0, len(names)))
        written = {name: bytes([turn]) * draw(SIZES) for name in names[:kept]}
        made.append((written, names[kept:]))
    return made


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that few bytes fill a bundle, lie alone, and are too many dead ones."""
    monkeypatch.setattr(bundles, "_LARGE", 1_000)
    monkeypatch.setattr(bundles, "_FULL", 2_000)
    monkeypatch.setattr(bundles, "_SLACK", 100)


def values(parts: Parts) -> dict[str, bytes]:
    return {key[0]: data for key, (data,) in parts.items()}


@given(saves())
def test_what_is_read_is_what_was_saved_last(made: Saves) -> None:
    parts, held, truth = Parts(), Bundles(), dict[str, bytes]()
    for written, deleted in made:
        held.save(parts, written, deleted)
        truth = {n: data for n, data in truth.items() if n not in deleted} | written
        again, found = Bundles.read(values(parts))
        assert found == truth
        assert (again.alone, again._where) == (held.alone, held._where)
        assert held.stored == sum(len(v) for n, v in values(parts).items() if n != INDEX)


@given(saves())
def test_what_lies_dead_is_a_few_times_what_lives(made: Saves) -> None:
    """Also when a worker that has no warm copy goes on."""
    parts, truth = Parts(), dict[str, bytes]()
    for written, deleted in made:
        held, _ = Bundles.read(values(parts)) if parts else (Bundles(), {})
        held.save(parts, written, deleted)
        truth = {n: data for n, data in truth.items() if n not in deleted} | written
        small = sum(len(data) for data in truth.values() if len(data) < 1_000)
        lying = sum(one.total for one in held._bundles.values())
        assert lying - small <= 2 * small + 100


def test_a_bundle_without_a_living_part_is_removed() -> None:
    parts, held = Parts(), Bundles()
    held.save(parts, {"merge/a": b"1", "merge/b": b"2"})
    held.save(parts, {"merge/a": b"3"}, ["merge/b"])
    assert {name for name in values(parts) if name.startswith(BUNDLE)} == {"bundle/1"}


def test_a_large_part_lies_alone_and_may_become_small() -> None:
    parts, held = Parts(), Bundles()
    held.save(parts, {"merge/a": b"x" * 5_000})
    assert set(values(parts)) == {"merge/a", INDEX}
    held.save(parts, {"merge/a": b"y"})
    assert set(values(parts)) == {"bundle/0", INDEX}
    assert Bundles.read(values(parts))[1] == {"merge/a": b"y"}


def test_values_are_stored_in_order_though_they_are_compressed_ahead() -> None:
    parts, held = Parts(), Bundles()
    large = {f"merge/large/{number}": bytes([number]) * 5_000 for number in range(9)}
    small = {f"merge/small/{number}": bytes([number]) * 700 for number in range(9)}
    put = held.save(parts, small | large)
    assert list(values(parts)) == [*large, "bundle/0", "bundle/1", "bundle/2", INDEX]
    assert Bundles.read(values(parts))[1] == small | large
    assert put == held.stored


def test_a_store_that_fails_ends_the_save() -> None:
    class Broken(Parts):
        def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
            if key == ("bundle/1",):
                message = "the store is gone"
                raise OSError(message)
            super().updateValue(key, value)

    parts = Broken()
    with pytest.raises(OSError, match="the store is gone"):
        Bundles().save(parts, {name: bytes(700) for name in NAMES})
    assert set(values(parts)) == {"bundle/0"}  # and no index: Spark takes none of it


def test_a_bundle_that_is_lost_is_named_when_its_parts_are_to_move() -> None:
    parts, held = Parts(), Bundles()
    held.save(parts, {"merge/a": b"1" * 10, "merge/b": b"2" * 900})
    del parts[("bundle/0",)]
    with pytest.raises(StateError, match="part 'merge/a' of bundle 0, which is not there"):
        held.save(parts, {}, ["merge/b"])


def test_a_bundle_that_is_lost_is_named() -> None:
    parts, held = Parts(), Bundles()
    held.save(parts, {"merge/a": b"1"})
    del parts[("bundle/0",)]
    with pytest.raises(StateError, match="part 'merge/a' of bundle 0, which is not there"):
        Bundles.read(values(parts))
