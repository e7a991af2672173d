"""`ab.starting_offsets`: where readers of Kafka continue after an upgrade.

    CHECKPOINT/kafka.json    of the generation in force (`generations`)

`consumed` is how far the lanes of the generation before had read, exactly: their own positions
(`anabranch.spark.pack.positions`).  `ends` is how far each source of Spark's was by its last
progress that was noted: not later than the lanes, and with all partitions, also those without
rows.  A reader must name all of them.
"""

import json
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from anabranch.sinks.json_file import read_json, write_json
from anabranch.spark.checkpoint import run_record as runs
from anabranch.spark.pack.positions import Partition
from anabranch.spark.write.reports import local

FILE: Final = "kafka.json"
FORMAT: Final = 1

_EVERY: Final = 30.0
"""Seconds between two notes of the same partitions: lanes know the positions themselves."""

Offsets: TypeAlias = dict[str, dict[str, int]]
"""An offset by topic and partition, as Spark writes it."""


@dataclass
class KafkaOffsets:
    """What is known of Kafka in one generation of a run."""

    consumed: dict[Partition, int] = field(default_factory=dict)
    ends: list[Offsets] = field(default_factory=list)

    @classmethod
    def read(cls, home: Path) -> "KafkaOffsets":
        """What was noted in the folder of a generation."""
        fields = read_json(home / FILE, FORMAT) or {"consumed": [], "ends": []}
        consumed = {(name, topic, part): at for name, topic, part, at in fields["consumed"]}
        return cls(consumed, fields["ends"])

    def write(self, home: Path) -> None:
        """Replace what was noted."""
        rows = [[*key, offset] for key, offset in sorted(self.consumed.items())]
        write_json(home / FILE, {"format": FORMAT, "consumed": rows, "ends": self.ends})

    def starting(self, topic: str) -> dict[str, int] | None:
        """The offset from which each partition must be read; None: not all are known.

        It is the last one that was consumed: that it comes again shows that none is left out.
        """
        sources = [one[topic] for one in self.ends if topic in one]
        if not sources:
            return None
        found: dict[str, int] = {}
        for partition in sorted({name for one in sources for name in one}, key=int):
            last = [
                offset
                for (_, name, number), offset in self.consumed.items()
                if (name, number) == (topic, int(partition))
            ]
            # Sources that read one topic may be at different places.
            if not last or len(sources) > 1:
                last += [one[partition] for one in sources if partition in one]
            found[partition] = min(last)
        return found


def starting_offsets(checkpoint: str | Path, *topics: str, default: str = "earliest") -> str:
    """The `startingOffsets` of Kafka's reader for the topics that it subscribes to.

    After `ab.upgrade` this is where the run goes on, as JSON.  Before, and for topics that the
    run has not read, it is `default`; Spark's checkpoint decides then, if there is one.
    """
    folder = local(str(checkpoint))
    run = None if folder is None else runs.read(folder)
    if folder is None or run is None or run.generation == 0:
        return default
    known = KafkaOffsets.read(runs.home(folder, run))
    found = {topic: known.starting(topic) for topic in topics}
    return default if None in found.values() else json.dumps(found)


def forget(home: Path, replicas: Collection[str]) -> None:
    """Drop how far replicas were read that have left: what they bring later is new."""
    known = KafkaOffsets.read(home)
    stays = {key: one for key, one in known.consumed.items() if key[0] not in replicas}
    if stays != known.consumed:
        KafkaOffsets(stays, known.ends).write(home)


class EndsNoted:
    """Notes how far the sources of a running query are, now and then."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._known = KafkaOffsets.read(home)
        self._at = -_EVERY

    def note(self, query: Any, *, last: bool = False) -> None:
        """Look at Spark's last progress; new partitions are noted at once."""
        found = ends_of(query)
        if not found or found == self._known.ends:
            return
        now = time.monotonic()
        same = [_partitions(one) for one in found] == [
            _partitions(one) for one in self._known.ends
        ]
        if last or not same or now - self._at >= _EVERY:
            self._known.ends, self._at = found, now
            self._known.write(self._home)


def ends_of(query: Any) -> list[Offsets]:
    """The end offsets of a query's sources that are Kafka's, by its last progress."""
    try:
        progress = query.lastProgress
        ends = [json.loads(one.endOffset) for one in progress.sources if one.endOffset]
    except Exception:  # Spark is gone, or has no progress yet
        return []
    return [one for one in ends if _is_of_kafka(one)]


def _is_of_kafka(end: Any) -> bool:
    return (
        isinstance(end, dict)
        and bool(end)
        and all(
            isinstance(one, dict) and all(str(name).isdecimal() for name in one)
            for one in end.values()
        )
    )


def _partitions(end: Offsets) -> set[tuple[str, str]]:
    return {(topic, partition) for topic, offsets in end.items() for partition in offsets}
