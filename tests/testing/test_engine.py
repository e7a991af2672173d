"""What an engine promises, on every engine; and what it rejects."""

import pytest

from anabranch import testing
from anabranch.errors import UsageError, ViolationError
from anabranch.model.element import Adjust, Insert, Stable
from anabranch.model.history import History, replay
from anabranch.model.notation import parse, parse_events
from anabranch.model.time import FOREVER


def events(text):
    return History.from_events(parse_events(text))


def test_what_is_pushed_is_visible_after_the_cut_in_text_or_as_elements(engine):
    with engine(case="r3") as merge:
        merge.push("east", "insert a 3..9; insert b 4..5")
        assert merge.output == ()
        assert set(merge.cut()) == {Insert("a", 3, 9), Insert("b", 4, 5)}
        merge.push("west", [Insert("a", 3, 7), Insert("b", 4, 5)])
        merge.push("west", [Stable(8)])
        assert merge.cut() == (Adjust("a", 3, 9, 7), Stable(8))
        assert merge.cut() == ()
        assert merge.history == events("a 3..7; b 4..5")


def test_the_account_has_every_element_in_one_bucket(engine):
    with engine(case="r3") as merge:
        merge.push("east", "insert a 3..9; insert a 3..5; stable 4; insert z 1..2")
        merge.cut()
        merge.push("west", "insert a 3..9; stable 3")
        merge.cut()
        account = merge.account
        assert {name: sum(some.values()) for name, some in account.items()} == {
            "east": 4,
            "west": 2,
        }
        assert (account["east"]["emitted"], account["east"]["violation"]) == (2, 2)
        assert account["west"]["absorbed"] == 2


def test_after_a_restart_it_goes_on_where_it_was(engine):
    with engine(case="r4") as merge:
        merge.push("east", "insert a 1..4; insert a 1..6; stable 3")
        merge.restart()
        merge.push("east", "adjust a 1..6->9; stable forever")
        merge.push("west", "insert a 1..4; insert a 1..9")
        merge.restart()
        assert merge.history == events("a 1..4; a 1..9")
        assert replay(merge.output).frontier == FOREVER
        assert sum(merge.account["east"].values()) == 5


def test_who_attaches_late_is_believed_from_its_guarantee_on(engine):
    with engine(case="r3") as merge:
        merge.push("east", "insert a 1..9; insert b 2..12; stable 3")
        merge.attach("late", guarantee=10)
        # It need not have a, which ends before its guarantee; its stable must wait.
        merge.push("late", "insert b 2..11; stable 20")
        merge.cut()
        assert replay(merge.output).frontier == 3
        merge.push("east", "stable 10")
        merge.cut()
        assert merge.history == events("a 1..9; b 2..11")


def test_what_a_detached_input_brought_stays_and_it_may_come_back(engine):
    with engine(case="r3") as merge:
        merge.push("east", "insert a 1..9")
        merge.push("west", "insert b 2..3")
        merge.detach("west")
        merge.attach("west")
        merge.push("west", "insert a 1..9; insert b 2..3; stable 5")
        merge.cut()
        assert merge.history == events("a 1..9; b 2..3")
        assert replay(merge.output).frontier == 5


def test_a_policy_is_part_of_the_question(engine):
    with engine(case="r3", policy="stable_lag=3") as merge:
        merge.push("east", "insert a 1..9; stable 8")
        merge.cut()
        assert replay(merge.output).frontier == 5


def test_who_is_detached_for_a_violation_may_attach_again(engine):
    with engine(case="r3", policy="violations=detach") as merge:
        merge.push("east", "insert a 1..9; stable 3; insert b 1..2")
        merge.cut()
        merge.push("west", "insert a 1..9; stable 4")
        merge.cut()
        merge.attach("east")
        merge.push("east", "insert a 1..9; stable 7")
        merge.cut()
        assert merge.account["east"]["violation"] == 1
        assert replay(merge.output).frontier == 7


@pytest.mark.parametrize("name", ["reference", "kernel", "lanes"])
def test_violations_raise_where_the_policy_is_raise(name):
    merge = testing.engine(name, case="r3", policy="violations=raise")
    merge.push("east", "stable 4; insert a 1..2")
    with pytest.raises(ViolationError, match="insert a"):
        merge.cut()


def test_what_cannot_be_is_rejected_by_name():
    with pytest.raises(UsageError, match="'fast'; engines are reference, kernel, lanes, spark"):
        testing.engine("fast")
    with pytest.raises(UsageError, match="operator 'sort'; operators are merge"):
        testing.engine("kernel", "sort")
    with pytest.raises(UsageError, match="no option 'cases'; it has case and policy"):
        testing.engine("kernel", cases="r3")
    merge = testing.engine("kernel", case="r3")
    merge.push("east", "stable 1")
    with pytest.raises(UsageError, match="'east' is attached already"):
        merge.attach("east")
    with pytest.raises(UsageError, match="'west' is not attached"):
        merge.detach("west")
    merge.detach("east")
    merge.push("east", "stable 2")
    with pytest.raises(UsageError, match="'east' was detached; attach it again"):
        merge.cut()


def test_the_lanes_together_have_one_frontier_and_every_event_once():
    with testing.engine("lanes", case="r3", lanes=3) as merge:
        merge.push("east", [Insert(f"p{n}", n, n + 5) for n in range(20)])
        merge.push("east", "stable 4")
        assert [type(one) for one in merge.cut()] == [Insert] * 20 + [Stable]
        merge.push("east", "stable forever")
        assert merge.cut() == tuple(parse("stable forever"))


@pytest.mark.parametrize("operator", ["normalise", "cleanse", "align"])
def test_operators_of_one_input_emit_the_same_on_every_engine(operator):
    # Lanes of cleanse have frontiers of their own; an order is that of one lane.
    lanes = 2 if operator == "normalise" else 1
    runs = {
        name: testing.engine(name, operator, lanes=lanes)
        for name in ("reference", "kernel", "lanes")
    }
    for text in (
        "insert a 1..4; insert a 4..9; insert b 2..3",
        "stable 5; adjust a 4..9->7; insert c 1..2; adjust b 2..9->8",
        "stable 8; insert d 9..9; stable 6",
    ):
        for run in runs.values():
            run.push("feed", text)
            run.restart()
    expected = runs["reference"]
    assert expected.account["feed"]["violation"] == 2
    for run in runs.values():
        assert replay(run.output) == replay(expected.output)
        assert run.account == expected.account
    with pytest.raises(UsageError, match=f"{operator} has no option 'case'"):
        testing.engine("kernel", operator, case="r3")
