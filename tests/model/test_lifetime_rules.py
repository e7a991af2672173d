"""Rules for new lifetimes: erratum C27 for every combination, by trying all small cases."""

from itertools import product

import pytest

from anabranch.errors import UsageError
from anabranch.model.lifetime import Lifetime
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationCapped,
    DurationConstant,
    DurationKept,
    DurationLengthened,
    GridWindows,
    Hop,
    StartKept,
    StartRounded,
    StartShifted,
    sliding,
)
from anabranch.model.time import FOREVER, NEVER

STARTS = [StartKept(), StartShifted(3), StartShifted(-3)]
STARTS += [StartRounded(step, offset=offset) for step in (1, 2, 3) for offset in (0, 1)]
DURATIONS = [DurationKept(), DurationConstant(1), DurationConstant(4)]
DURATIONS += [DurationConstant(FOREVER)]
DURATIONS += [DurationLengthened(by) for by in (0, 1, 2, 3)]
DURATIONS += [DurationCapped(at) for at in (1, 2, 3)]


def breaks_a_stable(start_rule, duration_rule):
    """Whether some adjust that is legal after a stable changes an end before its image."""
    for start, before, after, stable in product(range(-4, 4), repeat=4):
        if start < min(before, after) and stable <= min(before, after):
            begin = start_rule.of(start)
            ends = {begin + duration_rule.of(end - start) for end in (before, after)}
            if len(ends) == 2 and min(ends) < start_rule.of(stable):
                return True
    return False


@pytest.mark.parametrize("start", STARTS, ids=repr)
@pytest.mark.parametrize("duration", DURATIONS, ids=repr)
def test_erratum_c27_a_combination_is_rejected_exactly_if_it_breaks_a_stable(start, duration):
    if breaks_a_stable(start, duration):
        with pytest.raises(UsageError, match="before a stable that was passed on"):
            AlterLifetime(start, duration)
    else:
        assert AlterLifetime(start, duration).stable(7) == start.of(7)


def test_the_error_of_a_combination_names_what_would_do():
    with pytest.raises(UsageError, match=r"alter_lifetime: .*by at least 9 units"):
        AlterLifetime(StartRounded(10), DurationKept())


def test_an_event_cannot_live_shorter_by_a_constant():
    with pytest.raises(UsageError, match="kept plus -1 can be negative"):
        DurationLengthened(-1)


@pytest.mark.parametrize(
    "rule",
    [
        AlterLifetime(StartRounded(3, offset=1), DurationConstant(2)),
        Hop(4, 3),
        Hop(1, 3),
        GridWindows(5, 2),
        GridWindows(4, 4, offset=3),
        GridWindows(2, 5, offset=1, gaps_between=True),
    ],
    ids=repr,
)
def test_no_start_after_a_stable_gives_a_lifetime_before_the_output_stable(rule):
    for stable in range(-10, 10):
        later = [
            life.start
            for start in range(stable, stable + 20)
            for life in rule.lifetimes(start, start + 1)
        ]
        assert rule.stable(stable) <= min(later)
        if not isinstance(rule, Hop) and not isinstance(rule, AlterLifetime):
            assert rule.stable(stable) == min(later)


def test_the_output_stable_of_forever_and_never():
    for rule in (sliding(3), AlterLifetime(StartRounded(4), DurationConstant(4)), Hop(5, 2)):
        assert rule.stable(FOREVER) == FOREVER
        assert rule.stable(NEVER) == NEVER
    assert GridWindows(5, 2).stable(FOREVER) == FOREVER
    assert GridWindows(5, 2).stable(NEVER) == NEVER


@pytest.mark.parametrize("rule", [sliding(3), Hop(5, 2), GridWindows(5, 2)], ids=repr)
def test_what_is_removed_has_no_lifetime(rule):
    assert rule.lifetimes(4, 5) != []
    assert rule.lifetimes(4, 4) == []


def test_lifetimes_with_open_ends():
    assert AlterLifetime().lifetimes(3, FOREVER) == [Lifetime(3, FOREVER)]
    capped = AlterLifetime(StartShifted(1), DurationCapped(5))
    assert capped.lifetimes(3, FOREVER) == [Lifetime(4, 9)]
    forever = AlterLifetime(StartKept(), DurationConstant(FOREVER))
    assert forever.lifetimes(3, 4) == [Lifetime(3, FOREVER)]


def test_which_rules_read_ends():
    assert sliding(3).ends_by_start_alone
    assert AlterLifetime(StartRounded(9), DurationCapped(1)).ends_by_start_alone
    assert not AlterLifetime(duration=DurationCapped(2)).ends_by_start_alone
    assert not AlterLifetime().ends_by_start_alone


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda: sliding(0), "window: size=0 must be at least 1 unit"),
        (lambda: DurationConstant(-1), "alter_lifetime: size=-1"),
        (lambda: DurationConstant(2.5), "size=2.5 is not a whole number"),
        (lambda: DurationCapped(0), "at=0"),
        (lambda: StartRounded(0), "step=0"),
        (lambda: StartShifted(True), "by=True is not a whole number"),
        (lambda: Hop(0, 1), "hop: size=0"),
        (lambda: Hop(1, 0), "hop: slide=0"),
        (lambda: GridWindows(0, 1), "window: size=0"),
        (lambda: GridWindows(1, 0), "window: slide=0"),
        (lambda: GridWindows(2, 3), "set gaps_between=True"),
    ],
)
def test_bad_sizes_are_rejected_when_the_rule_is_built(build, expected):
    with pytest.raises(UsageError, match=expected):
        build()
