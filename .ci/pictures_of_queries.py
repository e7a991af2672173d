"""Draws the pictures of the pages on queries again: `make pictures`.

Each is drawn from the data of the page it is on; `tests/pictures/test_flow.py` compares the
committed files with what this draws.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from anabranch.model import FOREVER, Event, History, operators, parse_events
from anabranch.model.emission import Emit, shown
from anabranch.model.lifetimes import AlterLifetime, DurationCapped, GridWindows, StartShifted
from anabranch.model.normal_form import normal_form
from anabranch.pictures.diagram import Part, draw_diagram
from anabranch.pictures.lifetimes import draw_lifetimes

ROOT: Final = Path(__file__).parents[1]


def operator(
    title: str, inputs: Mapping[str, str], result: History, times: Mapping[str, int]
) -> str:
    """The events that an operator reads, and those of its result as the model has them."""
    rows: dict[Event, str] = {}
    for name, text in inputs.items():
        for event in parse_events(text):
            rows[_new(event, rows)] = name
    for event in result.events():
        values = event.payload if isinstance(event.payload, tuple) else (event.payload,)
        shown = event._replace(payload=f"→ {' '.join(map(str, values))}")
        rows[_new(shown, rows)] = "result"
    return draw_lifetimes(rows, times, title=title)


def _new(event: Event, rows: Mapping[Event, str]) -> Event:
    """An event under a name of its own: two equal events are two rows."""
    while event in rows:
        event = event._replace(payload=f"{event.payload} again")
    return event


def history(text: str) -> History:
    """The events of a text such as `a 1..5; b 2..9`."""
    return History.from_events(parse_events(text))


def columns(text: str) -> History:
    """The same with payloads of one column."""
    found = (event._replace(payload=(event.payload,)) for event in parse_events(text))
    return History.from_events(found)


def query_where() -> str:
    """A filter and a projection leave lifetimes as they are."""
    given = "a4 1..5; b1 2..7; a9 6..9"
    kept = operators.where(history(given), lambda one: one.payload != "b1")
    result = operators.project(kept, lambda one: one.payload[0])
    title = "where price > 1, then select symbol"
    return operator(title, {"input": given}, result, {"stable 6": 6})


def query_alter_lifetime() -> str:
    """A start that moves, a duration with a limit."""
    given = "a 1..4; b 3..12"
    rule = AlterLifetime(StartShifted(2), DurationCapped(5))
    result = operators.alter_lifetime(history(given), rule)
    title = "alter_lifetime(shift=2, at_most=5)"
    return operator(title, {"input": given}, result, {"stable 4": 4, "stable 6 behind it": 6})


def query_inserts() -> str:
    """All that ended, from its end on."""
    given = "a 1..4; b 3..9"
    return operator(
        "deletes()", {"input": given}, operators.deletes(history(given)), {"stable 5": 5}
    )


def query_window() -> str:
    """One event per window that contains the start."""
    given = "a 5..7"
    result = operators.grid_windows(columns(given), GridWindows(6, 4))
    return operator("window(size=6, slide=4)", {"input": given}, result, {"the start": 5})


def query_hop() -> str:
    """The papers' hopping window."""
    given = "a 5..6; b 4..20"
    result = operators.hop(history(given), 6, 4)
    return operator("hop(size=6, slide=4)", {"input": given}, result, {"a hop": 8})


def query_join() -> str:
    """A left join: pairs, and the runs of a left event without a partner."""
    left, right = "a 0..9", "a 2..4"
    result = operators.left_join(
        columns(left), columns(right), operators.on_columns({0: 0}), absent=("null",)
    )
    sides = {"left side": left, "right side": right}
    return operator('join(..., how="left")', sides, result, {"stable 6": 6})


def query_aggregate() -> str:
    """One result between neighbouring end points."""
    given = "tea4 1..5; tea6 3..9"
    result = operators.aggregate(
        columns(given),
        lambda one: (one[0][:3],),
        lambda alive: (
            f"n={len(alive)} mean={sum(int(one[0][3:]) for one in alive) / len(alive):g}",
        ),
    )
    title = "group_by(symbol).aggregate(n=ab.count(), mean=ab.avg(price))"
    return operator(title, {"input": given}, result, {"stable 4": 4})


def query_emission() -> str:
    """A count in the three ways to emit, when time has passed until 5."""
    given = "a 1..9; b 3..12"
    table = operators.aggregate(columns(given), lambda _: (), lambda alive: (len(alive),))
    rows: dict[Event, str] = dict.fromkeys(parse_events(given), "input")
    for emit in Emit:
        for event in shown(table, emit, passed=5).events():
            named = event._replace(payload=f"{emit.value} → {event.payload[0]}")
            rows[named] = "no end yet" if event.end == FOREVER else ""
    return draw_lifetimes(rows, {"stable 5": 5}, title="aggregate(n=ab.count(), emit=...)")


def query_top_k() -> str:
    """The first row, at every time."""
    given = "b 1..9; a 3..5"
    result = operators.top_k(columns(given), lambda _: (), 1, lambda one: one)
    return operator("group_by().top_k(1, by=name)", {"input": given}, result, {"stable 4": 4})


def query_distinct() -> str:
    """Maximal runs."""
    given = "a 1..5; a 3..9; a 11..13"
    result = operators.distinct(history(given))
    return operator("distinct()", {"input": given}, result, {"stable 10": 10})


def query_difference() -> str:
    """What is left of the left side."""
    sides = {"left side": "a 1..9; a 1..9", "right side": "a 3..5; a 4..7"}
    left = operators.difference(*map(history, sides.values()))
    return operator("left.difference(right)", sides, left, {"stable 6": 6})


def query_union() -> str:
    """Two equal events stay two; the least frontier counts."""
    sides = {"left": "a 1..5; b 6..9", "right": "a 1..5"}
    both = operators.union(*map(history, sides.values()))
    return operator("left.union(right)", sides, both, {"right and union": 4, "left": 8})


def query_merge() -> str:
    """Two plans with the same snapshots, and the merge behind normalise."""
    sides = {"filtered": "tea 1..5", "summed": "tea 1..3; tea 3..5"}
    result, name = normal_form(history(sides["summed"])), "ab.merge(filtered, summed)"
    return operator(name, sides, result, {"stable 4": 4})


def query_session() -> str:
    """A late row joins two sessions."""
    rows, first = dict[Event, str](), "a 1..2; a 9..10"
    for given, more in ((first, "one row"), (f"{first}; a 6..7", "three rows")):
        word = "row" if given == first else "row, comes last"
        rows |= {one: word for one in parse_events(given) if one not in rows}
        made = operators.session(columns(given), 5, lambda one: one)
        rows |= {one._replace(payload="a"): f"session, {more}" for one in made}
    return draw_lifetimes(rows, {"stable 4": 4, "stable behind it": 1}, title="session(5)")


def patterns() -> str:
    """An order that is paid, and one that is due."""
    rows = {
        "o1 0..10": "order, window(10)", "o1 4..5": "payment, a point",
        "paid_o1 4..5": "A then B: the pair", "o3 18..19": "order at 8, shifted by 10",
        "o3 2..12": "payment at 2, window(10)", "due_o3 18..19": "A with no B: due, not paid",
    }  # fmt: skip
    drawn = {parse_events(event)[0]: words for event, words in rows.items()}
    return draw_lifetimes(drawn, {"order o3": 8, "due": 18}, title="A then B; A with no B")


def query_replaced_by() -> str:
    """A row lives until the next one of its key."""
    rows = {
        Event("red", 1, 5): "row at 1; the row at 5 came first",
        Event("green", 5, 9): "row at 5",
        Event("blue", 9, FOREVER): "row at 9: no row comes after it yet",
    }
    return draw_lifetimes(rows, {"stable 7": 7}, title="replaced_by: the rows of one key")


def queries() -> str:
    """The first program of the page about queries."""
    columns = [
        [Part("trades", ("ab.elements, ab.events,", "ab.merge, ab.union"))],
        [Part("steps", ("where, window, join,", "group_by, ..."), main=True)],
        [
            Part("changes()", ("what is new, what is corrected",)),
            Part("final()", ("what cannot change any more",)),
            Part("elements()", ("both, as a stream of elements",)),
            Part("late()", ("rows not taken, with reasons",), wrong=True),
        ],
    ]
    arrows = {("trades", "steps"): ""} | {("steps", one.name): "" for one in columns[2]}
    return draw_diagram(columns, arrows, title="A query answers at once and corrects itself")


def consistency() -> str:
    """Where finalize and align are in a query."""
    columns = [
        [Part("rows", ("in any order",))],
        [Part("where, window", ("no state: nothing waits",))],
        [
            Part("finalize", ("how long to remember",), main=True),
            Part("late()", ("with step and distance",), wrong=True),
        ],
        [Part("align", ("how long to wait",), main=True)],
        [Part("join, group_by", ("with a state",))],
    ]
    arrows = {("rows", "where, window"): "", ("where, window", "finalize"): ""}
    arrows |= {("finalize", "align"): "", ("finalize", "late()"): ""}
    arrows |= {("align", "join, group_by"): ""}
    return draw_diagram(columns, arrows, title="A level of consistency: two steps of a query")


def query_stages() -> str:
    """The stages of a query with two sources."""
    columns = [
        [Part("trades", ("validated here",)), Part("rates", ("validated here",))],
        [
            Part("stage 0", ("lanes by start and payload", "elements of both sources")),
            Part("Spark", ("where price > 0", "as columns of a DataFrame")),
        ],
        [Part("stage 1", ("lanes by symbol", "aggregate, join"), main=True)],
        [Part("views", ("changes, final,", "elements, late"))],
    ]
    arrows = {("trades", "stage 0"): "", ("rates", "stage 0"): "", ("stage 0", "Spark"): ""}
    arrows |= {("stage 0", "stage 1"): "", ("Spark", "stage 1"): "", ("stage 1", "views"): ""}
    return draw_diagram(
        columns, arrows, title="Stages of a query, with one shuffle between two"
    )


DRAWN: Final[tuple[Callable[[], str], ...]] = (
    consistency, patterns, queries, query_aggregate, query_alter_lifetime, query_difference,
    query_distinct, query_emission, query_hop, query_inserts, query_join, query_merge,
    query_replaced_by, query_session, query_stages, query_top_k, query_union, query_where,
    query_window,
)  # fmt: skip
PICTURES: Final = {f"docs/pictures/{draw.__name__}.svg": draw for draw in DRAWN}
"""By file, what draws it."""

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(draw())
        print(name)
