"""Anabranch: merge redundant, fallible copies of a stream into one complete stream.

The names of this package are those for daily work, `import anabranch as ab`:

    input      session, events, elements, inbox, clock
    queries    merge, union, windows_run; methods of streams and merges (`Query`)
    aggregates count, sum, avg, min, max, count_distinct, stddev, collect, quantile,
               user_defined
    results    read_output, check
    operation  progress, listener, upgrade, starting_offsets
    types      Stream, Inbox, Merged, Query, Grouped, RunningQuery, Totals, Policy
    errors     AnabranchError; the others are in `ab.errors`

Submodules: `ab.model` (elements, histories, the text notation), `ab.windows` (window semantics
of other engines), `ab.clocks` (heartbeats for plain rows), `ab.sinks` (the contract of your own
sinks), `ab.pictures` (queries and timelines as SVG), `ab.testing` (strategies, assertions,
engines for tests), `ab.errors`.

Layers, inner to outer; imports point inwards:

    errors     every error, drawn as a tree
    model      the meaning of a stream, in plain Python; tests compare everything with it
    windows    the results of a window query on other engines (SECRET), in plain Python
    batch      elements as Arrow and NumPy columns
    clocks     heartbeats and stables for sources that send plain rows
    operators  merge, union, join, aggregate, windows and others
    plan       a query as data, cut into stages
    sinks      folders and functions that get results
    sources    files and inboxes to elements
    generator, checker   test streams with their truth; recorded streams, judged
    spark      the runtime on Structured Streaming; DataFrames to elements
    pictures   timelines and plans as SVG, PNG and text
    cli, testing   commands, and tools for tests

Importing this package loads neither Spark nor Arrow: a name is imported at its first use.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

if _TYPE_CHECKING:
    from anabranch import clocks, errors, model, pictures, sinks, testing, windows
    from anabranch.checker.compare import check
    from anabranch.errors import AnabranchError
    from anabranch.operators.merge.policy import Policy
    from anabranch.plan.aggregates import (
        avg,
        collect,
        count,
        count_distinct,
        max,
        min,
        quantile,
        stddev,
        sum,
        user_defined,
    )
    from anabranch.sources.inbox import Inbox, inbox
    from anabranch.spark.checkpoint.kafka import starting_offsets
    from anabranch.spark.pack.heartbeats import clock
    from anabranch.spark.progress import Totals
    from anabranch.spark.query.grouped import Grouped
    from anabranch.spark.query.merge import merge, union
    from anabranch.spark.query.merged import Merged
    from anabranch.spark.query.query import Query
    from anabranch.spark.query.streams import Stream, elements, events
    from anabranch.spark.run.listen import listener, progress
    from anabranch.spark.run.running import RunningQuery
    from anabranch.spark.run.upgrade import upgrade
    from anabranch.spark.session.start import session
    from anabranch.spark.windows import run as windows_run
    from anabranch.spark.write.read_output import read_output

__version__ = "0.1.0"

__all__ = [
    "AnabranchError",
    "Grouped",
    "Inbox",
    "Merged",
    "Policy",
    "Query",
    "RunningQuery",
    "Stream",
    "Totals",
    "avg",
    "check",
    "clock",
    "clocks",
    "collect",
    "count",
    "count_distinct",
    "elements",
    "errors",
    "events",
    "inbox",
    "listener",
    "max",
    "merge",
    "min",
    "model",
    "pictures",
    "progress",
    "quantile",
    "read_output",
    "session",
    "sinks",
    "starting_offsets",
    "stddev",
    "sum",
    "testing",
    "union",
    "upgrade",
    "user_defined",
    "windows",
    "windows_run",
]

_HOMES = {
    "AnabranchError": "anabranch.errors:AnabranchError",
    "Grouped": "anabranch.spark.query.grouped:Grouped",
    "Inbox": "anabranch.sources.inbox:Inbox",
    "Merged": "anabranch.spark.query.merged:Merged",
    "Policy": "anabranch.operators.merge.policy:Policy",
    "Query": "anabranch.spark.query.query:Query",
    "RunningQuery": "anabranch.spark.run.running:RunningQuery",
    "Stream": "anabranch.spark.query.streams:Stream",
    "Totals": "anabranch.spark.progress:Totals",
    "avg": "anabranch.plan.aggregates:avg",
    "check": "anabranch.checker.compare:check",
    "clock": "anabranch.spark.pack.heartbeats:clock",
    "clocks": "anabranch.clocks",
    "collect": "anabranch.plan.aggregates:collect",
    "count": "anabranch.plan.aggregates:count",
    "count_distinct": "anabranch.plan.aggregates:count_distinct",
    "elements": "anabranch.spark.query.streams:elements",
    "errors": "anabranch.errors",
    "events": "anabranch.spark.query.streams:events",
    "inbox": "anabranch.sources.inbox:inbox",
    "listener": "anabranch.spark.run.listen:listener",
    "max": "anabranch.plan.aggregates:max",
    "merge": "anabranch.spark.query.merge:merge",
    "min": "anabranch.plan.aggregates:min",
    "model": "anabranch.model",
    "pictures": "anabranch.pictures",
    "progress": "anabranch.spark.run.listen:progress",
    "quantile": "anabranch.plan.aggregates:quantile",
    "read_output": "anabranch.spark.write.read_output:read_output",
    "session": "anabranch.spark.session.start:session",
    "sinks": "anabranch.sinks",
    "starting_offsets": "anabranch.spark.checkpoint.kafka:starting_offsets",
    "stddev": "anabranch.plan.aggregates:stddev",
    "sum": "anabranch.plan.aggregates:sum",
    "testing": "anabranch.testing",
    "union": "anabranch.spark.query.merge:union",
    "upgrade": "anabranch.spark.run.upgrade:upgrade",
    "user_defined": "anabranch.plan.aggregates:user_defined",
    "windows": "anabranch.windows",
    "windows_run": "anabranch.spark.windows:run",
}
"""Where each public name is defined: a module, or a module and a name in it."""

_MOVED = {
    "FOREVER": "anabranch.model",
    "Adjust": "anabranch.model",
    "Event": "anabranch.model",
    "History": "anabranch.model",
    "Insert": "anabranch.model",
    "MergeCase": "anabranch.model",
    "MergeR3": "anabranch.testing",
    "Stable": "anabranch.model",
    "StreamProperties": "anabranch.model",
    "parse": "anabranch.model",
    "parse_marble": "anabranch.model",
    "show_element": "anabranch.model",
}
"""The module of each name that was public here before."""


def __getattr__(name: str) -> object:
    if name in _MOVED:
        message = f"ab.{name} has moved: import it with `from {_MOVED[name]} import {name}`"
        raise AttributeError(message)
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    module, _, defined = _HOMES[name].partition(":")
    found = _import_module(module)
    return getattr(found, defined) if defined else found


def __dir__() -> list[str]:
    """The public names, also those that are not imported yet: completion offers these."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
