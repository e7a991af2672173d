"""Anabranch's own windows, as `run(like="anabranch")` answers.

Spark's grid, so that results compare with Spark's.  `anabranch` answers at once and corrects
itself: with each batch it shows the windows that the batch changed.  `anabranch-final` shows
each window once, when nothing can change it any more.  Time goes on by stables alone: what
makes them is the source's clock, which is not part of the window; with `delay=5` that is a
clock at 5 less than the greatest time seen.  Rows behind a stable are late, and kept.
"""

from dataclasses import replace
from typing import Final

from anabranch.windows.engine import Engine, Progress, Source
from anabranch.windows.report import Report
from anabranch.windows.scope import Start

_PAGE = "docs/guide/windows-run.md, Anabranch's own windows"

ANABRANCH: Final = Engine(
    name="anabranch",
    start=Start("grid"),
    report=Report(content_change=True, non_empty=True),
    tick="batch",
    windows="every",
    progress=Progress(delay=None),
    options=("delay", "offset"),
    sources=tuple(
        Source(parameter, f"{_PAGE}: {what}", "documentation")
        for parameter, what in (
            ("start", "Spark's grid"),
            ("gaps", "any slide"),
            ("report", "answers at once, corrected later"),
            ("tick", "once per batch"),
            ("progress", "stables alone, late rows kept"),
        )
    ),
)

ANABRANCH_FINAL: Final = replace(
    ANABRANCH,
    name="anabranch-final",
    report=Report(window_close=True, non_empty=True),
    sources=(
        *ANABRANCH.sources[:2],
        Source("report", f"{_PAGE}: final once closed", "documentation"),
        *ANABRANCH.sources[3:],
    ),
)
