"""The meaning of a stream, in plain Python; every faster implementation is compared with it.

* A physical stream is a sequence of elements; a prefix of it stands for a history, a bag of
  events with lifetimes.  Two streams mean the same when their histories are equal.
* A stable freezes a part of the history for good; whether a stream keeps that promise is
  decided here and nowhere else.
* Only the standard library is used.

>>> History.of(parse("insert a 3..9; adjust a 3..9->7")).events()
[Event(payload='a', start=3, end=7)]
"""

from anabranch.model.element import Adjust, Element, Event, Identity, Insert, Stable
from anabranch.model.equivalence import (
    compatible,
    consistent,
    equivalent,
    equivalent_until,
    settled,
)
from anabranch.model.frozen import Status, status
from anabranch.model.history import History, Reason, Replay, Violation, replay, replays
from anabranch.model.lifetime import Lifetime
from anabranch.model.notation import (
    Marble,
    parse,
    parse_element,
    parse_events,
    parse_marble,
    show_element,
    show_elements,
    show_marble,
)
from anabranch.model.properties import (
    MergeCase,
    StreamProperties,
    cheapest,
    missing_for,
    observe,
    permits,
)
from anabranch.model.time import FOREVER, NEVER, Time

__all__ = [
    "FOREVER",
    "NEVER",
    "Adjust",
    "Element",
    "Event",
    "History",
    "Identity",
    "Insert",
    "Lifetime",
    "Marble",
    "MergeCase",
    "Reason",
    "Replay",
    "Stable",
    "Status",
    "StreamProperties",
    "Time",
    "Violation",
    "cheapest",
    "compatible",
    "consistent",
    "equivalent",
    "equivalent_until",
    "missing_for",
    "observe",
    "parse",
    "parse_element",
    "parse_events",
    "parse_marble",
    "permits",
    "replay",
    "replays",
    "settled",
    "show_element",
    "show_elements",
    "show_marble",
    "status",
]
