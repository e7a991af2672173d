"""Reconciling one identity of merge R4, for any two bags: what is owed suffices."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, units

from anabranch.batch.codec import from_elements, to_elements
from anabranch.batch.hashing import hash_payload
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.time import FOREVER
from anabranch.operators.merge.contract import Arrival
from anabranch.operators.merge.r4_agree import Change, is_denied, is_due, owed
from anabranch.operators.merge.r4_kernel import step
from anabranch.operators.merge.r4_restore import Written, restore
from anabranch.operators.merge.r4_state import R4State
from anabranch.operators.state_parts import Blocks

START = 1
ENDS = st.lists(st.one_of(st.integers(START + 1, 9), st.just(FOREVER)), max_size=5)


def apply(have, changes):
    """The bag after the changes; each event may be touched once."""
    after, untouched = Counter(have), Counter(have)
    for old_end, end in changes:
        if old_end is not None:
            assert untouched[old_end] > 0
            untouched[old_end] -= 1
            after[old_end] -= 1
        if end is not None:
            after[end] += 1
    return +after


@given(ENDS, ENDS, st.integers(START + 1, 10), st.booleans())
def test_a_free_identity_can_follow_its_decider_afterwards(have, want, time, shrink_only):
    changes = owed(
        Counter(have), Counter(want), free=True, frontier=0, time=time, shrink_only=shrink_only
    )
    after = apply(have, changes)
    assert after.total() == len(want)
    assert sorted(e for e in after.elements() if e < time) == sorted(
        e for e in want if e < time
    )
    if shrink_only:
        assert after == Counter(want)
        assert not any(None not in c and c.end > c.old_end for c in changes)
    assert len(changes) <= max(len(have), len(want)) + (len(want) if shrink_only else 0)


@given(ENDS, ENDS, st.integers(START + 1, 8), st.integers(1, 4), st.booleans())
def test_what_was_promised_is_kept_whatever_the_decider_wants(have, want, at, more, shrink):
    """Errata L4: no event comes or goes, nothing moves from or to before the frontier."""
    changes = owed(
        Counter(have),
        Counter(want),
        free=False,
        frontier=at,
        time=at + more,
        shrink_only=shrink,
    )
    assert apply(have, changes).total() == len(have)
    for change in changes:
        assert change.old_end is not None
        assert change.end is not None
        assert change.old_end != change.end
        assert min(change) >= at


@given(st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), max_size=5), st.integers(2, 9))
def test_a_half_frozen_identity_follows_a_consistent_decider(pairs, frontier):
    """Both agree on what is frozen, and on the number of the rest."""
    frozen = [a for a, _ in pairs if a < frontier]
    have = frozen + [a for a, _ in pairs if a >= frontier]
    want = frozen + [max(b, frontier) for a, b in pairs if a >= frontier]
    for time in range(frontier + 1, 11):
        changes = owed(Counter(have), Counter(want), free=False, frontier=frontier, time=time)
        after = sorted(apply(have, changes).elements())
        assert [e for e in after if e < time] == sorted(e for e in want if e < time)


@pytest.mark.parametrize(
    ("have", "want", "changes"),
    [
        ([], [3], [Change(None, 3)]),
        ([], [9], [Change(None, 9)]),
        ([3], [], [Change(3, None)]),
        ([9], [], [Change(9, None)]),
        ([2, 9], [3], [Change(2, 3), Change(9, None)]),
        ([7, 8], [6, 9], []),
    ],
)
def test_counts_are_made_equal_while_an_identity_is_free(have, want, changes):
    assert owed(Counter(have), Counter(want), free=True, frontier=0, time=5) == changes


def state_of(have, want, other, frontier, shrink_only):
    """A merge with one identity, as no stream may have left it, and two replicas."""
    state = R4State.empty(SCHEMA, shrink_only=shrink_only)
    for name in ("decider", "other"):
        state.attach(name)
    state.frontier = frontier
    payload = from_elements([Insert("a", START, START + 1)], SCHEMA).payload
    low, high = (half.view(np.int64) for half in hash_payload(payload))
    rows = [
        (0, column, units(end), count)
        for column, bag in enumerate((have, want, other))
        for end, count in sorted(Counter(bag).items())
    ]
    names = np.array([[START, high[0], low[0]]])
    ends = np.array(rows, np.int64).reshape(-1, 4)
    one = np.zeros(1, np.int64)
    blocks = Blocks.none()
    blocks.add(one, state.mark)
    restore(state, Written(one, names, one, one, ends, payload), blocks)
    return state


@given(ENDS, ENDS, ENDS, st.integers(0, 9), st.integers(2, 11), st.booleans())
def test_the_kernel_owes_the_same_for_any_bags(have, want, other, frontier, time, shrink):
    """Also for bags that no merge comes to: the output may lack events while it is free."""
    free = frontier <= START
    assume(time > frontier and (free or any(end >= frontier for end in have)))
    state = state_of(have, want, other, frontier, shrink)
    bags, times = (Counter(have), Counter(want)), {"frontier": frontier, "time": time}
    due = free or is_due(*bags, **times)
    changes = owed(*bags, free=free, **times, shrink_only=shrink) if due else []
    arrivals = [Arrival("decider", batch_of([Stable(time)]))]
    result = step(state, arrivals, granularity="element")
    assert to_elements(result.output) == [*map(element, changes), Stable(time)]
    assert result.conflicts == (due and not free and is_denied(*bags, frontier=frontier))
    if state.live:
        state.check()


def element(change):
    end = START if change.end is None else change.end
    if change.old_end is None:
        return Insert("a", START, end)
    return Adjust("a", START, change.old_end, end)
