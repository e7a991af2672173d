"""CEDR: the tables of both papers and the examples of the errata, at the level of meaning.

*Theory* is the first of the two papers, *operators* the second.  Where an example has streams
of elements, they are replayed, and the answers are those of an operator that waits for nothing.
"""

from operator_models import answered, answers

from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationConstant,
    GridWindows,
    StartRounded,
    sliding,
)
from anabranch.model.net_change import difference_of, sync_time
from anabranch.model.normal_form import normal_form
from anabranch.model.notation import parse, parse_events, parse_marble
from anabranch.model.operators import (
    aggregate,
    alter_lifetime,
    deletes,
    difference,
    distinct,
    grid_windows,
    hop,
    inserts,
    join,
    on_columns,
    project,
    top_k,
    union,
    where,
    window,
)
from anabranch.model.time import FOREVER


def history(text):
    """Events whose one column is what the text has as payload."""
    return columns(History.from_events(parse_events(text)))


def columns(plain):
    return project(plain, lambda e: (e.payload,))


def summed(plain):
    """The sum of the payloads that are alive, where any are."""
    return aggregate(plain, lambda _: (), lambda alive: (sum(alive),))


def turns(text):
    return [(0, element) for element in parse(text)]


def equal_join(left, right):
    return join(columns(left), columns(right), on_columns({0: 0}))


PHYSICAL = "insert P1 1..forever; {} adjust P1 1..forever->10; adjust P1 1..10->5; {}"
STREAM = PHYSICAL.format("stable 1;", "insert P2 4..9; stable 10")
CANONICAL = "P1 1..5; P2 4..9"


def test_cedr_theory_tables_1_and_2():
    """The bitemporal stream and its canonical history table."""
    seen = replay(parse(STREAM))
    assert seen.violations == ()
    assert seen.history == History.from_events(parse_events(CANONICAL))
    assert seen.frontier == 10


def test_cedr_operators_tables_1_and_2_of_sections_2_and_3():
    """The history table row by row, then its physical stream: one canonical table."""
    rows = [Event("P1", 1, FOREVER), Event("P1", 1, 10), Event("P1", 1, 5), Event("P2", 4, 9)]
    physical = parse(PHYSICAL.format("", "insert P2 4..9"))
    assert [element.event for element in physical] == rows
    assert History.of(physical) == History.from_events(parse_events(CANONICAL))


JOIN = parse_marble(
    """
S1 | insert A0 0..2 | stable 1 | insert A1 2..6 |                |          | adjust A1 2..6->4
S2 |                |          |                | insert A1 3..5 | stable 3 |
    """
)


def test_cedr_operators_tables_1_to_3_of_the_join():
    """Table 2 has [0,1) for A0; the stream of Table 1 gives [0,2)."""
    left, right = (replay(JOIN.stream(name)) for name in ("S1", "S2"))
    assert left.violations == right.violations == ()
    assert left.history == History.from_events(parse_events("A0 0..2; A1 2..4"))
    assert right.history == History.from_events(parse_events("A1 3..5"))
    expected = History.from_events([Event(("A1", "A1"), 3, 4)])
    assert equal_join(left.history, right.history) == expected


def test_cedr_operators_table_4_physical_output_of_the_join():
    arrivals = [(("S1", "S2").index(name), element) for name, element in JOIN.arrivals()]
    row = ("A1", "A1")
    expected = [Insert(row, 3, 5), Stable(1), Adjust(row, 3, 5, 4)]
    assert answered(equal_join, arrivals, inputs=2) == expected


def test_cedr_operators_definition_3_select():
    kept = where(history("1 0..3; 2 1..4; 2 1..4"), lambda e: e.payload == (2,))
    assert kept == history("2 1..4; 2 1..4")


def test_cedr_theory_section_3_1_sum():
    assert summed(History.from_events(parse_events("1 1..5; 2 3..9"))) == history(
        "1 1..3; 3 3..5; 2 5..9"
    )


def test_cedr_theory_section_3_1_equal_neighbours_stay_apart():
    assert summed(History.from_events(parse_events("1 1..3; 1 3..9"))) == history(
        "1 1..3; 1 3..9"
    )


def test_cedr_operators_inserts_and_deletes():
    both = history("a 1..5; b 2..forever")
    assert inserts(both) == history("a 1..forever; b 2..forever")
    assert deletes(both) == history("a 5..forever")


# Errata

C8 = "insert 1 1..forever; insert 1 3..forever; stable 2; adjust 1 3..forever->3"


def test_erratum_c8_the_exact_table_and_every_stable():
    """An end point that disappears lengthens the event before it, after stable(2)."""
    last = answers(summed, turns(C8))[-1]
    assert last == [Adjust((2,), 3, FOREVER, 3), Adjust((1,), 1, 3, FOREVER)]
    seen = replay(answered(summed, turns(C8)))
    assert seen.violations == ()
    assert seen.frontier == 2
    assert seen.history == history("1 1..forever")


def test_erratum_c8_retractions_that_only_shrink_break_the_stable():
    """The paper's retraction of (1, [1, 3)) after stable(2), for comparison."""
    first = answered(summed, turns(C8)[:3])
    shrinking = [Adjust((2,), 3, FOREVER, 3), Adjust((1,), 1, 3, 1), Insert((1,), 1, FOREVER)]
    assert len(replay([*first, *shrinking]).violations) == 2


def test_erratum_c9_ordered_input_gives_ordered_output():
    stream = turns("insert 1 1..forever; insert 1 3..forever; adjust 1 3..forever->3")
    output = answered(summed, stream)
    times = [sync_time(element) for element in output]
    assert times == sorted(times)
    assert History.of(output) == history("1 1..forever")


def test_erratum_c12_and_d10_nothing_where_nothing_is_alive():
    gap = History.from_events(parse_events("7 2..4; 7 6..8"))
    assert summed(gap) == history("7 2..4; 7 6..8")


def test_erratum_c13_a_removed_event_joins_nothing():
    arrivals = [
        (1, Insert(1, 1, FOREVER)),
        (1, Adjust(1, 1, FOREVER, 1)),
        (0, Insert(1, 0, FOREVER)),
    ]
    assert answered(equal_join, arrivals, inputs=2) == []


def test_erratum_c26_an_adjust_that_changes_nothing_is_not_emitted():
    output = answers(
        lambda plain: window(plain, 3), turns("insert 2 0..6; stable 5; adjust 2 0..6->5")
    )
    assert output == [[Insert(2, 0, 3)], [Stable(5)], []]


def test_erratum_c26_a_removal_stays_a_removal():
    stream = turns("insert 2 0..6; adjust 2 0..6->0")
    assert answers(lambda plain: window(plain, 3), stream)[-1] == [Adjust(2, 0, 3, 0)]


def test_erratum_c27_half_the_duration_breaks_a_stable():
    """No rule of ours halves durations; this is the paper's function, which it permits."""

    def halved(plain):
        lives = ((e, (e.end - e.start) // 2 if e.end < FOREVER else FOREVER) for e in plain)
        return History.from_events(Event(e.payload, e.start, e.start + d) for e, d in lives)

    stream = turns("insert 2 1..forever; stable 5; adjust 2 1..forever->7")
    output = answered(halved, stream)
    assert output[-1] == Adjust(2, 1, FOREVER, 4)
    assert [found.element for found in replay(output).violations] == [output[-1]]


def test_erratum_c28_deletes_moves_its_start():
    output = answers(deletes, turns("insert 1 4..9; adjust 1 4..9->8"))
    assert output == [
        [Insert(1, 9, FOREVER)],
        [Adjust(1, 9, FOREVER, 9), Insert(1, 8, FOREVER)],
    ]


def test_erratum_d12_only_differences_are_emitted():
    def greatest(plain):
        return aggregate(plain, lambda _: (), lambda alive: (max(alive),))

    def first(plain):
        return top_k(plain, lambda _: (), 1, lambda payload: -payload)

    stream = turns("insert 5 0..10; insert 3 2..4; adjust 3 2..4->2; insert 7 8..9")
    assert answers(greatest, stream)[2:] == [
        [Adjust((5,), 2, 4, 2), Adjust((5,), 0, 2, 10), Adjust((5,), 4, 10, 4)],
        [Adjust((5,), 0, 10, 8), Insert((7,), 8, 9), Insert((5,), 9, 10)],
    ]
    assert answers(first, stream)[1:] == [
        [],
        [],
        [Adjust(5, 0, 10, 8), Insert(7, 8, 9), Insert(5, 9, 10)],
    ]


def test_erratum_d15_windows():
    rows = History.from_events(parse_events("a 7..8; b 9..30"))
    assert window(rows, 5) == History.from_events(parse_events("a 7..12; b 9..14"))
    tumbling = AlterLifetime(StartRounded(4), DurationConstant(4))
    assert alter_lifetime(rows, tumbling) == History.from_events(
        parse_events("a 4..8; b 8..12")
    )
    assert hop(rows, 6, 4) == History.from_events(parse_events("a 8..16; b 12..16"))


def test_erratum_d15_no_absolute_values():
    early = History.from_events(parse_events("a -7..-6"))
    assert window(early, 5) == History.from_events(parse_events("a -7..-2"))
    assert sliding(5).stable(-7) == -7
    assert hop(early, 5, 4) == History.from_events(parse_events("a -4..0"))


def test_windows_of_the_grid_leave_gaps_where_the_slide_is_greater():
    rows = history("a 1..2; b 5..6; c 11..12")
    sparse = grid_windows(rows, GridWindows(4, 10, gaps_between=True))
    assert sparse == History.from_events(
        [Event(("a", (0, 4)), 0, 4), Event(("c", (10, 14)), 10, 14)]
    )


def test_overlapping_windows_have_a_column_that_distinguishes_them():
    rows = grid_windows(history("a 5..6"), GridWindows(4, 2))
    counts = aggregate(rows, lambda row: row, lambda alive: (len(alive),))
    assert counts == History.from_events(
        [Event(("a", (2, 6), 1), 2, 6), Event(("a", (4, 8), 1), 4, 8)]
    )


def test_erratum_d16_union_passes_and_difference_is_in_maximal_runs():
    left, right = history("a 0..4; a 4..9; b 2..3"), history("a 2..6")
    assert union(left, right) == history("a 0..4; a 4..9; b 2..3; a 2..6")
    assert difference(left, right) == history("a 0..2; a 6..9; b 2..3")


def test_erratum_d17_two_equal_events_are_two():
    output = answers(summed, turns("insert 1 0..9; insert 1 0..9; adjust 1 0..9->0"))
    assert output[1:] == [
        [Adjust((1,), 0, 9, 0), Insert((2,), 0, 9)],
        [Adjust((2,), 0, 9, 0), Insert((1,), 0, 9)],
    ]


def test_erratum_x1_copies_that_cut_their_results_differently_have_one_distinct():
    cut, whole = history("a 5..13; a 13..14"), history("a 5..14")
    assert cut != whole
    assert distinct(cut) == distinct(whole) == whole
    assert normal_form(cut) == whole


def test_erratum_x2_stables_of_the_input_do_not_cut_the_results():
    plain, stable = "insert 1 0..3; {} stable forever", "stable 1;"
    outputs = [replay(answered(summed, turns(plain.format(s)))) for s in ("", stable)]
    assert outputs[0].history == outputs[1].history == history("1 0..3")


def test_erratum_x4_adjusts_that_lengthen_are_read():
    stream = turns("insert 1 1..3; insert 1 2..9; stable 3; adjust 1 1..3->5")
    seen = replay(answered(summed, stream))
    assert seen.violations == ()
    assert seen.history == history("1 1..2; 2 2..5; 1 5..9")


def test_difference_of_pairs_ends_of_one_identity():
    before = History.from_events(parse_events("a 1..3; a 1..5; a 1..9"))
    after = History.from_events(parse_events("a 1..4; a 1..9; b 0..2"))
    assert difference_of(before, after) == parse(
        "adjust a 1..5->1; adjust a 1..3->4; insert b 0..2"
    )
