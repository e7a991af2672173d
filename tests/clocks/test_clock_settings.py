"""Bounds: what is rejected and how, and the same bounds as TOML."""

import pickle

import pytest
from clock_driver import matrices
from hypothesis import given
from hypothesis import strategies as st

from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, to_units
from anabranch.clocks import (
    Alike,
    Bounds,
    Clock,
    Heartbeats,
    Learning,
    Pair,
    Sensor,
    Token,
    delay,
    disorder,
    duplicates,
    global_counter,
    sensors,
)
from anabranch.clocks.bounds import with_timeout
from anabranch.clocks.settings import from_toml, to_toml
from anabranch.errors import InputError, UsageError


@given(matrices(rows=True), st.sampled_from(list(TimeType)))
def test_named_bounds_survive_toml_and_pickle(bounds, time):
    assert from_toml(to_toml(bounds, time)) == bounds
    assert pickle.loads(pickle.dumps(bounds)) == bounds
    assert len({bounds, from_toml(to_toml(bounds, time))}) == 1


@pytest.mark.parametrize(
    "bounds",
    [
        disorder(600_000_000, timeout=60_000_000),
        delay(250_000_000, disorder=7),
        duplicates(4, latency=3),
        Alike(own=(Pair(0, 1),), others=(Pair(5, 0),), latency=9, meaning="clock"),
        global_counter({"a b": Token(1, 2), 'q"x': Token(2, 5)}),
        sensors({"a": Sensor(3, 2), "b": Sensor(0)}, rate=2),
    ],
)
def test_what_builders_make_survives_toml(bounds):
    assert from_toml(to_toml(bounds)) == bounds


def test_a_file_as_a_person_writes_it():
    text = """
    timeout = "2 minutes"
    [sources.east]
    disorder = "10 minutes"
    [sources.west]
    own = [{ rows = 3, distance = "0 seconds" }]
    latency = "5 seconds"
    [[skew]]
    from = "east"
    to = "west"
    pairs = [{ wait = "1 second", distance = "1 minute" }]
    """
    found = from_toml(text)
    assert found.sources == ("east", "west")
    assert found.pairs[0] == ((Pair(0, 600_000_001),), (Pair(1_000_000, 60_000_000),))
    assert found.pairs[1] == ((), (Pair(3, 0, rows=True),))
    assert found.latency == (0, 5_000_000)
    assert found.fifo == (True, False), "disorder is counted where rows arrive"
    assert found.timeout == 120_000_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not TOML"),
        ("speed = 3", "has speed; expected only time, meaning"),
        ("", r"give \[alike\], \[sources.NAME\] for each source, or \[learned\]"),
        ('time = "date"\n[alike]', "time is 'date'; expected one of"),
        ("[alike]\ndisorder = 10", "a duration is a number and a unit"),
        ('time = "bigint"\n[alike]\ndisorder = "10 minutes"', "a whole number of units"),
        ('time = "bigint"\ndelay = "1 second"\n[alike]', "delay needs timestamps"),
        ("[alike]\nfifo = 1", "fifo is 1; expected true or false"),
        ("[alike]\nown = [{ distance = 0 }]", "expected wait or rows, and distance"),
        ("[alike]\nown = [{ rows = -1 }]", "expected 0 or more"),
        ("[sources.a]\n[[skew]]\nfrom = 'a'\nto = 'c'", "from 'a' to 'c'; sources are"),
        ("[alike]\n[[skew]]\nfrom = 'a'", "is for named sources"),
        ('timeout = "1 second"\n[alike]\nlatency = "2 seconds"', "of at least 2000000"),
        ('meaning = "sure"\n[alike]', "expected 'observed' or 'clock'"),
        ("sources = 3", "expected a table"),
    ],
)
def test_what_is_not_understood_is_rejected_by_its_place(text, message):
    with pytest.raises(InputError, match=message) as raised:
        from_toml(text, where="bounds.toml")
    assert str(raised.value).startswith("bounds.toml")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Pair(-1, 0), "the wait -1; expected 0 or more"),
        (lambda: Pair(0, 1.5), "expected a whole number"),
        (lambda: Pair(2**63, 0), "the wait 9223372036854775808; expected at most"),
        (lambda: Alike(latency=2**63), "the latency is 9223372036854775808"),
        (lambda: Learning(waits=(0, 2**63)), "expected at most 4611686018427387904"),
        (lambda: Clock(disorder(1), jump=2**63), "jump is 9223372036854775808"),
        (lambda: Bounds.of({}), "at least one source"),
        (lambda: Bounds(("a", "a"), (((), ()), ((), ())), (0, 0), (False,) * 2), "twice"),
        (lambda: Bounds(("a",), (), (0,), (False,)), "need 1 rows and columns"),
        (lambda: Bounds.of({("east", "east"): []}, latency={"eats": 1}), "did you mean 'east'"),
        (lambda: Alike(latency=-1), "the latency is -1"),
        (lambda: Alike(delay=-1), "the delay is -1"),
        (lambda: disorder(3).named(["a"]).index("b"), "no bounds for source 'b'"),
        (lambda: Token(3, 2), "expected 0 <= least <= most"),
        (lambda: global_counter({"a": Token(0, 1)}, delayed=False), "above 0 for every"),
        (lambda: sensors({}, rate=0), "the rate is 0"),
        (lambda: duplicates(0), "expected 1 or more"),
        (lambda: Clock(disorder(1), idle_after=0), "idle_after is 0"),
        (lambda: Clock(disorder(1), resolution=0), "resolution of a clock is 0"),
        (lambda: Clock(disorder(1), groups=(("a", "g"),)), "use group_alike"),
        (lambda: Clock(disorder(1).named("ab"), groups=(("a", "g"),)).rules, "in no group"),
    ],
)
def test_bounds_that_cannot_be_meant_are_rejected(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_a_timeout_is_added_to_bounds_that_need_one():
    assert disorder(5).needs_timeout()
    assert not with_timeout(disorder(5), 60).needs_timeout()


def test_one_source_needs_no_bound_on_others():
    assert not Alike(own=(Pair(0, 0),)).needs_timeout(1)
    assert Alike(own=(Pair(0, 0),)).needs_timeout(2)
    assert Alike(own=(Pair(0, 0),)).needs_timeout()


def test_a_count_of_no_rows_needs_no_timeout():
    """Sorted and without duplicates: each row is final when it has come (H8)."""
    alone = duplicates(1).named(["a"])
    assert not duplicates(1).needs_timeout(1)
    assert not alone.needs_timeout()
    assert duplicates(2).needs_timeout(1)
    clock = Heartbeats(alone)
    clock.arrive("a", 7, at=1)
    assert clock.advance(1) == 7


def test_bounds_as_people_read_them():
    shown = str(Bounds.of({("a", "a"): [Pair(0, 1)], ("a", "b"): [Pair(3, 0, rows=True)]}))
    assert shown == "observed bounds of a, b\na -> a: (0, 1)\na -> b: (3 rows, 0)"


@given(st.integers(0, 10**15))
def test_durations_as_spark_writes_them_are_read_again(units):
    assert to_units(show_span(units), TimeType.TIMESTAMP) == units


@pytest.mark.parametrize("text", ["", "minutes", "3", "3 months", "1 minute and 2 seconds"])
def test_what_is_no_duration_is_rejected(text):
    with pytest.raises(UsageError, match="a number and a unit"):
        to_units(text, TimeType.TIMESTAMP)


@given(
    st.builds(
        Learning,
        window=st.none() | st.integers(1, 10**6),
        window_wall=st.none() | st.integers(1, 10**12),
        alpha=st.floats(0, 1),
        adapts=st.booleans(),
        waits=st.sets(st.integers(0, 10**9), min_size=1).map(lambda some: tuple(sorted(some))),
        across=st.booleans(),
        least=st.integers(0, 100),
        most=st.none() | st.integers(100, 10**12),
        warm_up=st.integers(0, 10**6),
    ),
    st.sampled_from(list(TimeType)),
)
def test_learned_bounds_survive_toml(spec, time):
    assert from_toml(to_toml(spec, time)) == spec


def test_learned_bounds_as_a_person_writes_them():
    text = '[learned]\ntarget_loss = 0.0001\nwindow = 10000\nmost = "1 hour"\n'
    assert from_toml(text) == Learning(target_loss=0.0001, window=10_000, most=3_600_000_000)
    assert from_toml("[learned]\nwindow = false\nalpha = 1\n") == Learning(window=None, alpha=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("windows = 3", r"b\.toml: \[learned\] has windows; expected only window, "),
        ("window = 0", r"b\.toml: learned bounds: window is 0; expected 1 up"),
        ("window = 1.5", r"\[learned\] window is 1\.5; expected a whole number"),
        ("adapts = 1", r"\[learned\] adapts is 1; expected true or false"),
        ("alpha = true", r"\[learned\] alpha is True; expected a number"),
        ('waits = "1 second"', r"\[learned\] waits is '1 second'; expected a list of spans"),
        ("most = 5", r"\[learned\] most '5': for timestamps a duration"),
        ("[alike]\ndisorder = 1", r"alike beside \[learned\]; .* remove one of them"),
    ],
)
def test_learned_bounds_that_cannot_be_read(text, message):
    with pytest.raises(InputError, match=message):
        from_toml(f"[learned]\n{text}\n", where="b.toml")
