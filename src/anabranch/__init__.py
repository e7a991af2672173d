"""Anabranch: many fallible copies of a stream in, one clean, complete stream out.

Layers, inner to outer; imports point inwards:

    errors     every error, drawn as a tree
    model      what a stream means, in plain Python: the judge of all that is faster
    windows    what a window query returns on an engine, and why: SECRET, in plain Python
    batch      the same elements as Arrow and NumPy columns
    operators  how a stream changes: merge
    sources    outside records to elements: files, inboxes, generated streams
    spark      the runtime on Structured Streaming
    cli, testing   for people, and for their tests

The names below are public; heavy ones are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from anabranch.errors import AnabranchError
from anabranch.model import (
    FOREVER,
    Adjust,
    Event,
    History,
    Insert,
    MergeCase,
    Stable,
    StreamProperties,
    parse,
    parse_marble,
    show_element,
)

if TYPE_CHECKING:
    from anabranch.operators.merge.r3 import MergeR3
    from anabranch.sources.compare import check
    from anabranch.spark.listen import listener, progress
    from anabranch.spark.merged import merge
    from anabranch.spark.read import read_output
    from anabranch.spark.session import session
    from anabranch.spark.streams import elements, events

__version__ = "0.1.0"

__all__ = [
    "FOREVER",
    "Adjust",
    "AnabranchError",
    "Event",
    "History",
    "Insert",
    "MergeCase",
    "MergeR3",
    "Stable",
    "StreamProperties",
    "check",
    "elements",
    "events",
    "listener",
    "merge",
    "parse",
    "parse_marble",
    "progress",
    "read_output",
    "session",
    "show_element",
]

_HEAVY = {
    "MergeR3": "anabranch.operators.merge.r3",
    "check": "anabranch.sources.compare",
    "elements": "anabranch.spark.streams",
    "events": "anabranch.spark.streams",
    "listener": "anabranch.spark.listen",
    "merge": "anabranch.spark.merged",
    "progress": "anabranch.spark.listen",
    "read_output": "anabranch.spark.read",
    "session": "anabranch.spark.session",
}


def __getattr__(name: str) -> object:
    if name not in _HEAVY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HEAVY[name]), name)
