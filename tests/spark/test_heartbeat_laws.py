"""Laws of clocks in the lanes: any cut into triggers and tasks, any number of lanes."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from clocked_lanes import SCHEMA, ClockedLanes, Row
from hypothesis import given
from hypothesis import strategies as st

from anabranch.clocks import Clock, disorder
from anabranch.model.history import History
from anabranch.operators.union import UnionOperator
from anabranch.testing.asserts import assert_valid

REPLICAS = ("east", "west")
SECOND = 1_000_000
Sent = tuple[str, Row]


@st.composite
def in_bounds(draw: st.DrawFn, most: int) -> list[Sent]:
    """Rows of two replicas, each at most so far behind the greatest time of its own."""
    greatest = dict.fromkeys(REPLICAS, 0)
    rows = []
    for _ in range(draw(st.integers(1, 25))):
        name = draw(st.sampled_from(REPLICAS))
        time = greatest[name] + draw(st.integers(-most, 8))
        time = max(time, greatest[name] - most)
        greatest[name] = max(greatest[name], time)
        rows.append((name, Row(time, draw(st.sampled_from("abc")))))
    return rows


ANY_ROWS = st.lists(
    st.tuples(
        st.sampled_from(REPLICAS),
        st.builds(Row, st.integers(0, 40), st.sampled_from("abc")),
    ),
    min_size=1,
    max_size=25,
)


@st.composite
def cuts(draw: st.DrawFn, rows: Sequence[Sent]) -> list[list[Sent]]:
    """Consecutive pieces of these rows."""
    ends = sorted(draw(st.sets(st.integers(1, max(1, len(rows) - 1)), max_size=6)))
    bounds = [0, *ends, len(rows)]
    return [list(rows[a:b]) for a, b in pairwise(bounds) if b > a]


def run(
    pieces: Sequence[Sequence[Sent]],
    *,
    lanes: int = 2,
    tasks: int = 1,
    clock: Clock | None = None,
    union: bool = False,
) -> ClockedLanes:
    """Each piece is a trigger; the triggers are a second apart."""
    options = {"operator": UnionOperator(SCHEMA)} if union else {}
    made = ClockedLanes(clock or Clock(disorder(5)), lanes=lanes, replicas=REPLICAS, **options)
    for number, piece in enumerate(pieces, start=1):
        rows: dict[str, list[Row]] = {}
        for name, row in piece:
            rows.setdefault(name, []).append(row)
        made.trigger(rows, number * SECOND, tasks)
    return made


def summed_up(made: ClockedLanes) -> tuple[object, ...]:
    final = Counter((one.payload, one.start, one.end) for one in made.final)
    return made.frontier, History.of(made.runtime.output()), final


@given(st.data(), in_bounds(5), st.integers(1, 3), st.integers(1, 3))
def test_any_cut_gives_the_same_history_while_bounds_hold(
    data: st.DataObject, rows: list[Sent], lanes: int, tasks: int
) -> None:
    whole = run([[row] for row in rows])
    other = run(data.draw(cuts(rows)), lanes=lanes, tasks=tasks)
    assert summed_up(whole) == summed_up(other)
    for made in (whole, other):
        assert_valid(made.runtime.output())
        assert (made.bucket("late"), made.bucket("violation")) == (0, 0)


@given(st.data(), ANY_ROWS, st.integers(1, 3), st.booleans(), st.booleans())
def test_every_row_is_in_one_bucket_where_bounds_do_not_hold(
    data: st.DataObject, rows: list[Sent], lanes: int, idle: bool, union: bool
) -> None:
    clock = Clock(disorder(5), idle_after=2 * SECOND if idle else None)
    made = run(data.draw(cuts(rows)), lanes=lanes, clock=clock, union=union)
    assert_valid(made.runtime.output())  # its stables are true
    assert made.bucket("violation") == 0
    counted = made.bucket("emitted") + made.bucket("absorbed") + made.bucket("late")
    assert counted == len(rows)
    late = [row.batch for row in made.runtime.rows if row.channel == "late"]
    assert sum(len(batch) for batch in late if batch is not None) == made.bucket("late")


@given(st.data(), ANY_ROWS)
def test_lanes_agree_and_a_restart_changes_nothing(
    data: st.DataObject, rows: list[Sent]
) -> None:
    clock, pieces = Clock(disorder(3), idle_after=2 * SECOND), data.draw(cuts(rows))
    steady = run(pieces, lanes=2, clock=clock)
    other = ClockedLanes(clock, lanes=2, replicas=REPLICAS)
    for number, piece in enumerate(pieces, start=1):
        mine: dict[str, list[Row]] = {}
        for name, row in piece:
            mine.setdefault(name, []).append(row)
        parcels = other.packed(mine, number * SECOND, tasks=2)
        other.runtime.attempt(0, parcels)  # it fails, and is run again
        other.restart()
        other.runtime.commit(parcels)
    assert summed_up(steady) == summed_up(other)
    clocks = [
        {part: data for part, data in lane.items() if part[0].startswith("clock/")}
        for lane in other.runtime.stores
    ]
    assert clocks[0] == clocks[1]
