"""DataFrames of a run that come and go between two starts: sources that Spark has by name.

Spark finds the source of a DataFrame in its checkpoint by position, and rejects another number
of them.  From 4.2 on a reader can have a name (`spark.readStream.name("east")`); with the
setting `CONF` all sources of a query must have one, and then they may change.  The setting
belongs to the checkpoint from its first start on.

The replicas of such a run change with its DataFrames, through the control log: one that is new
attaches, one that is gone is detached, one that returns has a greater attachment number.  The
record of the run has who is there, and with which number (`Run.attachments`); entries of the
log follow from it at every start, so that a start which is killed before is completed later.
"""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.errors import StateError
from anabranch.spark.checkpoint.control_log import FOLDER, ControlLog
from anabranch.spark.checkpoint.kafka import forget
from anabranch.spark.checkpoint.run_record import Run, home, require_same
from anabranch.spark.query.streams import Stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

CONF: Final = "spark.sql.streaming.queryEvolution.enableSourceEvolution"

_SHOWN: Final = re.compile(r'\bname="(\w+)"')
"""How a plan shows the name of a source."""

CONTROL: Final = "anabranch_control"
"""The name of our own source, the control log."""


def are_named(stream: Stream) -> bool:
    """Whether the sources of a query of these DataFrames have names, if it starts now."""
    return has_names() and _is_set(stream.df.sparkSession)


def _is_set(spark: "SparkSession") -> bool:
    return str(spark.conf.get(CONF, "false")).lower() == "true"


@contextmanager
def as_recorded(spark: "SparkSession", *, is_named: bool) -> Iterator[None]:
    """The setting as the run has it: one of inboxes alone has no names, whatever is set."""
    if not has_names() or _is_set(spark) == is_named:
        yield
        return
    spark.conf.set(CONF, str(is_named).lower())
    try:
        yield
    finally:
        spark.conf.set(CONF, str(not is_named).lower())


def named(reader: "DataStreamReader", *, is_named: bool) -> "DataStreamReader":
    """Our own reader, with a name where all sources must have one."""
    return reader.name(CONTROL) if is_named else reader


def names_of(stream: Stream) -> dict[str, list[str]]:
    """The names of the sources of each replica, as Spark shows them in a plan.

    A DataFrame has no other public place for them.  None are found if the text changes.
    """
    found = {}
    for replica, df in stream.copies:
        text = io.StringIO()
        with redirect_stdout(text):
            df.explain(extended=True)
        found[replica] = sorted(set(_SHOWN.findall(text.getvalue())))
    return found


def has_names() -> bool:
    """Whether this PySpark has names of sources: 4.2 and later."""
    from pyspark.sql.streaming.readwriter import DataStreamReader

    return hasattr(DataStreamReader, "name")


def changed(found: Run, wanted: Run, folder: Path | None, where: Path | str) -> Run:
    """The wanted run with the numbers of its replicas, if it may go on so; else it raises."""
    same = replace(wanted, attachments=found.attachments, left=found.left)
    if wanted.named != found.named:
        message = f"{where}: {_setting(found)}"
        raise StateError(message)
    if folder is None or not found.named or not wanted.sources:
        if wanted.replicas != found.replicas:
            message = f"{where}: {_refusal(found, wanted)}"
            raise StateError(message)
        require_same(found, same, where)
        return same
    require_same(_comparable(found, wanted), same, where)
    _require_own_sources(found, wanted, where)
    numbers = dict(zip(found.replicas, found.attachments, strict=True))
    members = ControlLog(home(folder, found) / FOLDER).members
    for name in wanted.replicas:
        if name not in numbers:
            before = members[name].attachment if name in members else int(name in found.left)
            numbers[name] = before + 1
    gone = {*found.replicas, *found.left} - {*wanted.replicas}
    attachments = tuple(numbers[name] for name in wanted.replicas)
    known = {**found.sources, **wanted.sources}
    return replace(same, attachments=attachments, left=tuple(sorted(gone)), sources=known)


def _require_own_sources(found: Run, wanted: Run, where: Path | str) -> None:
    """Reject a reader whose name is not that of its replica's source until now.

    Spark would read a source with a new name from its beginning, and one with the name of
    another replica from where that one was.
    """
    for replica, now in wanted.sources.items():
        was = found.sources.get(replica)
        others = {n: o for o, some in found.sources.items() for n in some if o != replica}
        taken = next((name for name in now if name in others), None)
        if was and now and was != now:
            message = (
                f"{where}: replica '{replica}' was read from the source {', '.join(was)}, now "
                f"from {', '.join(now)}, which Spark would read from its beginning; keep "
                f"spark.readStream.name('{was[0]}'), or give the replica another name="
            )
            raise StateError(message)
        if was is None and taken is not None:
            message = (
                f"{where}: the source {taken} of replica '{replica}' was that of replica "
                f"'{others[taken]}', and Spark would go on where that one was; give the reader "
                "a name of its own"
            )
            raise StateError(message)


def _comparable(found: Run, wanted: Run) -> Run:
    """The run as it was, with the DataFrames that are wanted now."""
    words = {one.partition(": ")[0]: one for one in found.lifetimes}
    lifetimes = tuple(words.get(one.partition(": ")[0], one) for one in wanted.lifetimes)
    return replace(found, lifetimes=lifetimes)


def write_changes(run: Run, log: ControlLog, generation: Path, *, complete: bool) -> None:
    """Write what follows from the record of the run and is not in its log yet."""
    for name in run.left:
        log.detach(name)
    forget(generation, run.left)
    for name, number in zip(run.replicas, run.attachments, strict=True):
        member = log.members.get(name)
        known = member.attachment if member else int(name in run.founders)
        if number > known:
            # A file source that returns goes on where it was, and so is never complete.
            is_complete = complete and number == 1
            log.attach(name, None if is_complete else int(FOREVER_UNITS), attachment=number)


def _refusal(found: Run, wanted: Run) -> str:
    names = [", ".join(one.replicas) or "none" for one in (found, wanted)]
    head = f"this run was started with the DataFrames {names[0]}, now it has {names[1]}; "
    if not has_names():
        return (
            f"{head}this PySpark finds sources by their position alone, so none may be added, "
            "removed or moved; PySpark 4.2 and later has names of sources. Keep them as they "
            "were (name= and order), or start a new run in new folders"
        )
    first = next(iter(found.replicas), "east")
    return (
        f"{head}Spark finds sources without names by their position alone. Keep them as they "
        "were (name= and order), or start a new run in new folders, with "
        f"spark.conf.set('{CONF}', 'true') and a name for each reader "
        f"(spark.readStream.name('{first}')...): then DataFrames may come and go"
    )


def _setting(found: Run) -> str:
    was, now = ("with", "without") if found.named else ("without", "with")
    return (
        f"this run was started {was} names of sources, but this start is {now} them; keep "
        f"the setting {CONF} as it was ({str(found.named).lower()}), or start a new "
        "run in new folders"
    )
