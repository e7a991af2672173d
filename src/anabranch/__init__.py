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
    from anabranch.checker.compare import check
    from anabranch.operators.reference.r3 import MergeR3
    from anabranch.sources.inbox import inbox
    from anabranch.spark.pack.streams import elements, events
    from anabranch.spark.query.listen import listener, progress
    from anabranch.spark.query.merge import merge, union
    from anabranch.spark.query.upgrade import upgrade
    from anabranch.spark.session.start import session
    from anabranch.spark.windows import run as windows_run
    from anabranch.spark.write.read_output import read_output

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
    "inbox",
    "listener",
    "merge",
    "parse",
    "parse_marble",
    "progress",
    "read_output",
    "session",
    "show_element",
    "union",
    "upgrade",
    "windows_run",
]

_HEAVY = {
    "MergeR3": "anabranch.operators.reference.r3:MergeR3",
    "check": "anabranch.checker.compare:check",
    "elements": "anabranch.spark.pack.streams:elements",
    "events": "anabranch.spark.pack.streams:events",
    "inbox": "anabranch.sources.inbox:inbox",
    "listener": "anabranch.spark.query.listen:listener",
    "merge": "anabranch.spark.query.merge:merge",
    "progress": "anabranch.spark.query.listen:progress",
    "read_output": "anabranch.spark.write.read_output:read_output",
    "session": "anabranch.spark.session.start:session",
    "union": "anabranch.spark.query.merge:union",
    "upgrade": "anabranch.spark.query.upgrade:upgrade",
    "windows_run": "anabranch.spark.windows:run",
}
"""Where each name that is imported at first use is defined: module and name there."""


def __getattr__(name: str) -> object:
    if name not in _HEAVY:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module, _, defined = _HEAVY[name].partition(":")
    return getattr(import_module(module), defined)


def __dir__() -> list[str]:
    """Also the names that are not imported yet: completion offers them."""
    return sorted({*globals(), *_HEAVY})
