"""What each trigger did, as records that add up.

A lane writes one record per trigger: how many rows came from each replica, in which bucket
each of them is, how far each replica and the output are.  Data elements are counted by the
lane of their identity, stables and refused rows by lane 0 alone, rows read by the packer: so
the sum over all lanes and triggers counts every row once, and `Totals.adds_up` compares two
independent counts.

Records live in `OUTPUT/progress`, one folder per trigger, replaced as a whole when a trigger is
run again: they survive restarts as exactly as the elements do.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

BUCKETS: Final = ("emitted", "absorbed", "corrected", "late", "violation", "pending")

Record = dict[str, Any]


@dataclass
class ReplicaTotals:
    """One replica's rows so far, by bucket, and how far it is."""

    rows: int = 0
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    frontier: str | int | None = None
    joined: bool = True
    heard: int = 0
    """The last trigger (counted from 0) that had a row of it."""

    @property
    def adds_up(self) -> bool:
        """Whether every row read is in exactly one bucket."""
        return sum(self.buckets.values()) == self.rows


@dataclass
class Totals:
    """All records of a run, added up."""

    replicas: dict[str, ReplicaTotals] = field(default_factory=dict)
    triggers: int = 0
    next_trigger: int = 0
    output: dict[str, int] = field(default_factory=dict)
    live: int = 0
    frontier: str | int | None = None
    leader: str | None = None

    @property
    def rows(self) -> int:
        """Rows read from all replicas."""
        return sum(replica.rows for replica in self.replicas.values())

    @property
    def adds_up(self) -> bool:
        """Whether every row of every replica is in exactly one bucket."""
        return all(replica.adds_up for replica in self.replicas.values())

    def bucket(self, name: str) -> int:
        """Rows of all replicas in one bucket."""
        return sum(replica.buckets[name] for replica in self.replicas.values())

    def add(self, records: Sequence[Record], trigger: int) -> None:
        """Add the records of one trigger, one per lane (lane 0 has the files)."""
        self.triggers += 1
        self.next_trigger = trigger + 1
        self.live = sum(record["live"] for record in records)
        for record in records:
            self.frontier, self.leader = record["frontier"], record["leader"]
            for name, count in record["output"].items():
                self.output[name] = self.output.get(name, 0) + count
            for name, counts in record["replicas"].items():
                self._add_replica(name, counts)
            for file in record["files"]:
                self.replicas[file["replica"]].rows += file["rows"]
                self.replicas[file["replica"]].heard = self.triggers - 1

    def _add_replica(self, name: str, counts: Record) -> None:
        replica = self.replicas.setdefault(name, ReplicaTotals())
        replica.frontier, replica.joined = counts["frontier"], counts["joined"]
        for bucket in BUCKETS:
            replica.buckets[bucket] += counts[bucket]

    def to_dict(self) -> Record:
        """For `--json`."""
        replicas = {
            name: {"rows": r.rows, **r.buckets, "frontier": r.frontier, "joined": r.joined}
            for name, r in sorted(self.replicas.items())
        }
        return {
            "triggers": self.triggers,
            "rows": self.rows,
            "adds_up": self.adds_up,
            "replicas": replicas,
            "output": self.output,
            "frontier": self.frontier,
            "leader": self.leader,
            "live": self.live,
        }


def read_totals(progress: Path) -> Totals:
    """The totals of all triggers that were written completely."""
    import pyarrow.parquet as pq

    totals = Totals()
    folders = sorted(progress.glob("trigger-*")) if progress.exists() else []
    for folder in folders:
        if not (folder / "_SUCCESS").exists():
            continue
        lines = pq.read_table(folder).column("record").to_pylist()
        number = int(folder.name.removeprefix("trigger-"))
        totals.add([json.loads(line) for line in lines], number)
    return totals
