"""Reconciling one identity of merge R4, for any two bags: what is owed suffices."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from merge_driver import SCHEMA, batch_of, step, units

from anabranch.batch.codec import to_elements
from anabranch.model.element import Insert, Stable
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.bags import fill_bags
from anabranch.operators.merge.layout import ENDS, OUT
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.reference.r4_agree import NewEnd, heeded, is_denied, owed

START = 1
LATER = st.lists(st.one_of(st.integers(START + 1, 9), st.just(FOREVER)), max_size=5)


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


@given(LATER, LATER, st.integers(START + 1, 10), st.booleans())
def test_a_free_identity_can_follow_its_deciding_replica_afterwards(
    have, want, time, shrink_only
):
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


@given(LATER, LATER, st.integers(START + 1, 8), st.integers(1, 4), st.booleans())
def test_what_was_promised_is_kept_whatever_the_deciding_replica_wants(
    have, want, at, more, shrink
):
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
def test_a_half_frozen_identity_follows_a_consistent_deciding_replica(pairs, frontier):
    """Both agree on what is frozen, and on the number of the rest."""
    frozen = [a for a, _ in pairs if a < frontier]
    have = frozen + [a for a, _ in pairs if a >= frontier]
    want = frozen + [max(b, frontier) for a, b in pairs if a >= frontier]
    for time in range(frontier + 1, 11):
        changes = owed(Counter(have), Counter(want), free=False, frontier=frontier, time=time)
        after = sorted(apply(have, changes).elements())
        assert [e for e in after if e < time] == sorted(e for e in want if e < time)


@given(
    st.lists(st.tuples(st.integers(2, 9), st.integers(2, 9)), max_size=5),
    st.lists(st.integers(2, 9), max_size=2),
    st.tuples(*[st.integers(2, 9)] * 2),
    st.data(),
)
def test_a_half_frozen_identity_follows_a_deciding_replica_from_its_guarantee_on(
    pairs, strangers, joined, data
):
    """It omits some of what ended before, and has other events there (erratum L9)."""
    guarantee, frontier = sorted(joined)
    frozen = [a for a, _ in pairs if a < frontier]
    ends = [max(b, frontier) for a, b in pairs if a >= frontier]
    known = [end for end in frozen if end >= guarantee or data.draw(st.booleans())]
    want = Counter(known + ends + [end for end in strangers if end < guarantee])
    have = Counter(a for a, _ in pairs)
    for time in range(frontier + 1, 11):
        times = {"frontier": frontier, "time": time}
        bags = heeded(have, want, frontier=frontier, guarantee=guarantee)
        assert not is_denied(*bags, frontier=frontier)
        after = sorted(apply(have, owed(*bags, free=False, **times)).elements())
        assert [e for e in after if e < time] == sorted(e for e in frozen + ends if e < time)


@pytest.mark.parametrize(
    ("have", "want", "changes"),
    [
        ([], [3], [NewEnd(None, 3)]),
        ([], [9], [NewEnd(None, 9)]),
        ([3], [], [NewEnd(3, None)]),
        ([9], [], [NewEnd(9, None)]),
        ([2, 9], [3], [NewEnd(2, 3), NewEnd(9, None)]),
        ([7, 8], [6, 9], []),
    ],
)
def test_counts_are_made_equal_while_an_identity_is_free(have, want, changes):
    assert owed(Counter(have), Counter(want), free=True, frontier=0, time=5) == changes


def state_of(have, want, other, frontier, shrink_only, guarantee):
    """A merge with one identity, as no stream may have left it, and two replicas."""
    policy = Policy(shrink_only=shrink_only)
    state = MergeState.empty(SCHEMA, keyed=False, policy=policy)
    state.add_replica("deciding", guarantee=guarantee)
    step(state, [Arrival("other", batch_of([Insert("a", START, START + 1)]))])
    state.frontier, nodes = frontier, state.nodes
    rows = [
        (0, column, units(end), count)
        for column, bag in enumerate((have, want, other))
        for end, count in sorted(Counter(bag).items())
    ]
    nodes.make_room_in_bags(64, 1)
    columns, ends = np.array([OUT, ENDS, ENDS + 1]), np.array(rows, np.int64).reshape(-1, 4)
    fill_bags(nodes.bags, nodes.rows, np.zeros(1, np.int64), columns, ends)
    return state.restored()


@given(
    LATER, LATER, LATER, st.tuples(*[st.integers(0, 9)] * 2), st.integers(2, 11), st.booleans()
)
def test_the_kernel_owes_the_same_for_any_bags(have, want, other, joined, time, shrink):
    """Also for bags that no merge comes to: the output may lack events while it is free."""
    guarantee, frontier = sorted(joined)
    free = frontier <= START
    assume(time > frontier and (free or any(end >= frontier for end in have)))
    state = state_of(have, want, other, frontier, shrink, guarantee)
    bags, times = (Counter(have), Counter(want)), {"frontier": frontier, "time": time}
    if not free:
        bags = heeded(*bags, frontier=frontier, guarantee=guarantee)
    changes = owed(*bags, free=free, **times, shrink_only=shrink)
    result = step(state, [Arrival("deciding", batch_of([Stable(time)]), guarantee)])
    *emitted, last = to_elements(result.output)
    assert last == Stable(time)
    assert apply(have, map(change_of, emitted)) == apply(have, changes)
    assert result.conflicts == (not free and is_denied(*bags, frontier=frontier))
    if state.live:
        state.check()


@given(LATER, LATER, st.integers(2, 9), st.integers(1, 4))
def test_nothing_is_owed_where_a_stable_freezes_nothing(have, want, frontier, more):
    have, want, time = Counter(have), Counter(want), frontier + more
    freezes = any(frontier <= end < time for end in have)
    if not freezes and not any(end < time for end in want - have):
        assert owed(have, want, free=False, frontier=frontier, time=time) == []


def change_of(element):
    if isinstance(element, Insert):
        return NewEnd(None, element.end)
    return NewEnd(element.old_end, None if element.is_removal else element.end)
