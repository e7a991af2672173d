"""The pictures of the pages about clocks, drawn by `pictures.py`."""

from anabranch.pictures.diagram import Part, draw_diagram


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
