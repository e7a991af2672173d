"""What is shown parses back to the same; what is not notation is refused with its place."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.errors import NotationError
from anabranch.model.element import Adjust, Event, Insert, Stable
from anabranch.model.notation import (
    Marble,
    Row,
    parse,
    parse_element,
    parse_event,
    parse_events,
    parse_marble,
    show_element,
    show_elements,
    show_event,
    show_marble,
    show_payload,
    split_rows,
)
from anabranch.model.time import FOREVER

numbers = st.integers(-(2**63), 2**63)
payloads = st.one_of(st.text(), numbers, st.sampled_from(["a", "b_2", "für", "forever", "7"]))
times = st.one_of(numbers, st.just(FOREVER))
elements = st.one_of(
    st.builds(Insert, payloads, numbers, times),
    st.builds(Adjust, payloads, numbers, times, times),
    st.builds(Stable, times),
)
rows = st.lists(st.lists(st.lists(elements, max_size=2).map(tuple), min_size=1, max_size=3))


@pytest.mark.parametrize(
    ("text", "element"),
    [
        ("insert a 3..9", Insert("a", 3, 9)),
        ("insert a 3..forever", Insert("a", 3, FOREVER)),
        ("adjust a 3..9->7", Adjust("a", 3, 9, 7)),
        ("adjust a 3..9->3", Adjust("a", 3, 9, 3)),
        ("adjust a 3..forever -> forever", Adjust("a", 3, FOREVER, FOREVER)),
        ("stable 5", Stable(5)),
        ("stable forever", Stable(FOREVER)),
        ("insert 12 -3..-1", Insert(12, -3, -1)),
        (r'insert "a \"|; # b" 3..9', Insert('a "|; # b', 3, 9)),
        ("  stable   5 ", Stable(5)),
    ],
)
def test_the_forms_of_an_element(text, element):
    assert parse_element(text) == element


@given(st.lists(elements))
def test_elements_come_back(stream):
    assert parse(show_elements(stream)) == stream
    assert parse("\n".join(map(show_element, stream))) == stream


@given(payloads, numbers, times)
def test_events_come_back(payload, start, end):
    event = Event(payload, start, end)
    assert parse_event(show_event(event)) == event


@given(rows)
def test_marble_tables_come_back(cells):
    marble = Marble(tuple(Row(f"row {n}", tuple(row)) for n, row in enumerate(cells)))
    again = parse_marble(show_marble(marble))
    assert [row.name for row in again.rows] == [row.name for row in marble.rows]
    assert again.arrivals() == marble.arrivals()
    for before, after in zip(marble.rows, again.rows, strict=True):
        assert after.cells[: len(before.cells)] == before.cells
        assert not any(after.cells[len(before.cells) :])


@given(st.lists(st.tuples(st.sampled_from(["x", "y", "z z"]), elements)))
def test_the_picture_of_arrivals_has_them_in_order(arrivals):
    assert parse_marble(show_marble(Marble.of(arrivals))).arrivals() == arrivals


def test_other_payloads_are_shown_for_people():
    assert show_payload((1, "a")) == "(1, 'a')"


def test_comments_and_empty_lines_are_skipped():
    text = 'stable 1  # one\n\n# nothing\n stable 2;; insert "#" 1..2;'
    assert parse(text) == [Stable(1), Stable(2), Insert("#", 1, 2)]


def test_a_marble_table():
    marble = parse_marble(
        """
        # The second replica runs ahead.
        replica 0 | insert a 3..9 | stable 5 |               |
        replica 1 |               |          | insert a 3..7 | stable 8; stable 9
        """
    )
    assert marble.stream("replica 1") == parse("insert a 3..7; stable 8; stable 9")
    names = [name for name, _ in marble.arrivals()]
    assert names == ["replica 0"] * 2 + ["replica 1"] * 3
    assert show_marble(marble).splitlines() == [
        "replica 0 | insert a 3..9 | stable 5 |               |",
        "replica 1 |               |          | insert a 3..7 | stable 8; stable 9",
    ]
    with pytest.raises(KeyError):
        marble.stream("replica 2")


def test_an_empty_table():
    assert parse_marble("") == Marble(())
    assert show_marble(Marble(())) == ""
    assert Marble(()).arrivals() == []


@pytest.mark.parametrize(
    "text",
    [
        "insert a 3",
        "insert a forever..9",
        "adjust a 3..9",
        "stable",
        "stable never",
        "a 3..9",
        '"',
    ],
)
def test_what_is_no_element_is_shown_in_the_error(text):
    with pytest.raises(NotationError, match="is not an element; write 'insert") as caught:
        parse(f"stable 1; {text}")
    assert repr(text) in str(caught.value)


def test_what_is_no_event():
    with pytest.raises(NotationError, match=r"'insert a 3\.\.9' is not an event"):
        parse_events("a 1..2; insert a 3..9")


def test_text_in_quotes_is_as_in_json():
    assert parse_event('"tab\tand \\u00e4" 1..2').payload == "tab\tand ä"
    with pytest.raises(NotationError, match="not text in quotes as JSON writes it"):
        parse_event(r'"\q" 1..2')


@pytest.mark.parametrize("line", ["no bar", " | stable 1"])
def test_what_is_no_row(line):
    with pytest.raises(NotationError, match="is not a row of a table"):
        split_rows(line)


def test_a_row_is_there_once():
    with pytest.raises(NotationError, match="the row 'x' is there twice"):
        split_rows("x | stable 1\nx | stable 2")
