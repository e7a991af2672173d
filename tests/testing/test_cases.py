"""Case files: pictures in, streams out; a wrong picture is named with its file and line."""

import pytest

from anabranch.errors import FileError, NotationError
from anabranch.model.history import History
from anabranch.model.notation import parse, parse_events
from anabranch.testing import load_cases

CASES = """
# All cases of one kind.

# The second replica runs ahead and knows a shorter end;
# merge must emit it before it freezes.
replica 0 | insert a 3..9 | stable 5 |               |
replica 1 |               |          | insert a 3..7 | stable 8
out       | insert a 3..9 | stable 5 |               | adjust a 3..9->7; stable 8
history   | a 3..7

replica x y | stable 1
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "some.case"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_file_of_cases(write):
    first, second = load_cases(write(CASES))
    assert first.name == "some.case:4"
    assert first.description == (
        "The second replica runs ahead and knows a shorter end; "
        "merge must emit it before it freezes."
    )
    assert [row.name for row in first.replicas] == ["0", "1"]
    assert first.out is not None
    assert first.out.elements == parse("insert a 3..9; stable 5; adjust a 3..9->7; stable 8")
    assert first.history == History.from_events(parse_events("a 3..7"))
    assert [name for name, _ in first.arrivals()] == ["0", "0", "1", "1"]
    assert (second.name, second.description, second.out, second.history) == (
        "some.case:11",
        "",
        None,
        None,
    )


def test_steps_are_columns(write):
    first, second = load_cases(write(CASES))
    assert first.steps()[3] == (
        [("1", *parse("stable 8"))],
        tuple(parse("adjust a 3..9->7; stable 8")),
    )
    assert second.steps() == [([("x y", *parse("stable 1"))], ())]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("out | stable 1", "a case without input"),
        ("replica | stable 1", "row 'replica'; rows are"),
        ("inputs 0 | stable 1", "row 'inputs 0'; rows are"),
        ("replica 0 | stabel 1", "'stabel 1' is not an element"),
        ("replica 0 | stable 1\nreplica 0 | stable 1", "the row 'replica 0' is there twice"),
        ("replica 0 | stable 1\nhistory | a 3..2", "starts at 3 and ends at 2"),
    ],
)
def test_wrong_pictures_are_named(write, text, what):
    with pytest.raises(NotationError, match=r"some\.case:2: ") as caught:
        load_cases(write("\n" + text))
    assert what in str(caught.value)


def test_a_file_without_cases_tests_nothing(write):
    with pytest.raises(NotationError, match="no case in it"):
        load_cases(write("# only words\n"))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError, match="no such file of cases"):
        load_cases(tmp_path / "none.case")
