"""Spark Structured Streaming, Flink, Kafka Streams and Beam, from their documentation.

All of them cut time into `[k * slide + offset, + size)` and keep every window that holds a
tuple (erratum D18).  Times are in any unit, but one for the whole query.

* **Spark**: a batch is a micro-batch; `delay` is that of `withWatermark`.  A batch is judged by
  the batches before it; a batch without data follows when the watermark has moved
  (`idle_batches=False` for a query that never catches up).  Append shows a window once, when
  it has closed; update shows the windows that a batch changed; complete shows all, always.
  The watermark is 0, which is 1970, before any tuple: what was before is late, and a first
  tuple within `delay` of it does not move it.  There is no lateness beside the delay.
  Without a watermark nothing is late: `engine("spark-update").without_source_delay()`.
* **Flink**: `delay` is that of bounded out-of-orderness, with a watermark after each tuple;
  `lateness` is the allowed lateness, and each late tuple fires its windows at once.
* **Kafka Streams**: `delay` is the grace.  Without suppress (and without caching) each record
  shows all its windows; with suppress-until-close each window is shown once.  No window starts
  before 0.
* **Beam**: default trigger; `lateness` is the allowed lateness; late panes come once a bundle
  (here: a batch).  The watermark is the source's: `delay=0` is that of a source whose
  watermark is the greatest time seen; `without_source_delay()` leaves it to stables.

Sources follow the table of current engines in the errata: `run` is what was seen there on
Spark 3.5.1 and Beam 2.77, `documentation` what was read in documentation or source text.
"""

from dataclasses import replace
from typing import Final

from anabranch.windows.engine import Engine, Progress, Source
from anabranch.windows.report import Report
from anabranch.windows.scope import Start

_GRID = Start("grid")
_FINAL = Report(window_close=True, non_empty=True)
_CHANGES = Report(content_change=True, non_empty=True)
_SPARK_GUIDE = "Spark, Structured Streaming programming guide: output modes, watermarks"
_SPARK_STATE = "Spark source, statefulOperators.scala: end <= watermark is evicted or late"
_SPARK_OPTIONS = ("delay", "offset", "idle_batches")
_SPARK_GRID = Source("start", "Spark, function `window`: startTime; TimeWindow.scala", "run")
_SPARK_GAPS = Source("gaps", "Spark source, TimeWindow.scala: slide <= size", "documentation")
_SPARK_TICK = Source("tick", f"{_SPARK_GUIDE}: micro-batches", "documentation")

SPARK_APPEND: Final = Engine(
    name="spark-append",
    start=_GRID,
    report=_FINAL,
    tick="batch",
    windows="every",
    progress=Progress(known="next", starts=0),
    gaps=False,
    options=_SPARK_OPTIONS,
    sources=(
        _SPARK_GRID,
        _SPARK_GAPS,
        Source("report", f"{_SPARK_GUIDE}: append mode", "run"),
        _SPARK_TICK,
        Source("progress", f"{_SPARK_STATE}; SPARK-24157 for batches without data", "run"),
    ),
)

SPARK_UPDATE: Final = Engine(
    name="spark-update",
    start=_GRID,
    report=_CHANGES,
    tick="batch",
    windows="every",
    progress=Progress(known="next", starts=0),
    gaps=False,
    options=_SPARK_OPTIONS,
    sources=(
        _SPARK_GRID,
        _SPARK_GAPS,
        Source("report", f"{_SPARK_GUIDE}: update mode", "run"),
        _SPARK_TICK,
        Source("progress", _SPARK_STATE, "run"),
    ),
)

SPARK_COMPLETE: Final = Engine(
    name="spark-complete",
    start=_GRID,
    report=Report(non_empty=True),
    tick="batch",
    windows="every",
    progress=Progress(known="next", lateness=None, starts=0),
    gaps=False,
    options=_SPARK_OPTIONS,
    sources=(
        _SPARK_GRID,
        _SPARK_GAPS,
        Source("report", f"{_SPARK_GUIDE}: complete mode", "run"),
        _SPARK_TICK,
        Source("progress", f"{_SPARK_GUIDE}: complete mode drops no state", "documentation"),
    ),
)

FLINK: Final = Engine(
    name="flink",
    start=_GRID,
    report=_FINAL,
    tick="tuple",
    windows="every",
    progress=Progress(known="after", latest_first=True),
    options=("delay", "lateness", "offset", "keeps"),
    sources=(
        Source("start", "Flink source, SlidingEventTimeWindows: offset", "documentation"),
        Source("gaps", "Flink source, SlidingEventTimeWindows: any slide", "documentation"),
        Source("report", "Flink source, EventTimeTrigger", "documentation"),
        Source(
            "tick", "one watermark per record: BoundedOutOfOrdernessWatermarks", "inference"
        ),
        Source("progress", "Flink, windows: allowed lateness, late firings", "documentation"),
    ),
)

KAFKA_STREAMS: Final = Engine(
    name="kafka-streams",
    start=Start("grid", earliest=0),
    report=_CHANGES,
    tick="tuple",
    windows="every",
    progress=Progress(known="before"),
    gaps=False,
    options=("delay",),
    sources=(
        Source(
            "start", "Kafka source, TimeWindows.windowsFor: no start below 0", "documentation"
        ),
        Source("gaps", "Kafka source, TimeWindows.advanceBy: advance <= size", "documentation"),
        Source("report", "Kafka source, KStreamWindowAggregate", "documentation"),
        Source(
            "tick", "Kafka Streams, record caches: off, each record is shown", "documentation"
        ),
        Source("progress", "Kafka source, KStreamWindowAggregate: grace", "documentation"),
    ),
)

KAFKA_STREAMS_SUPPRESS: Final = replace(
    KAFKA_STREAMS,
    name="kafka-streams-suppress",
    report=_FINAL,
    sources=(
        *KAFKA_STREAMS.sources[:2],
        Source(
            "report",
            "Kafka source, KTableSuppressProcessor: untilWindowCloses",
            "documentation",
        ),
        Source("tick", "a record that gets through checks what has closed", "documentation"),
        KAFKA_STREAMS.sources[4],
    ),
)

BEAM: Final = Engine(
    name="beam",
    start=_GRID,
    report=_FINAL,
    tick="batch",
    windows="every",
    progress=Progress(known="after", late_at_limit=True),
    options=("delay", "lateness", "offset", "keeps"),
    sources=(
        Source("start", "Beam source, SlidingWindows", "run"),
        Source("gaps", "Beam source, SlidingWindows: no check of period and size", "inference"),
        Source("report", "Beam source, DefaultTrigger", "run"),
        Source("tick", "late panes once per bundle, Python SDK", "run"),
        Source("progress", "a window takes data while end + lateness >= watermark", "run"),
    ),
)

BEAM_DISCARDING: Final = replace(
    BEAM,
    name="beam-discarding",
    progress=Progress(known="after", late_at_limit=True, keeps="discarding"),
)
