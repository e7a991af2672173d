"""What each trigger did, as records that add up.

A lane writes one record per trigger: how many rows came from each replica, in which bucket
each of them is, how far each replica and the output are.  Data elements are counted by the
lane of their identity, stables and refused rows by lane 0 alone, rows read by the packer: so
the sum over all lanes and triggers counts every row once, and `Totals.adds_up` compares two
independent counts.  `of_trigger` is one trigger in all lanes, `Totals` all triggers.

Records live in `OUTPUT/progress`, one folder per trigger, replaced as a whole when a trigger is
run again: they survive restarts as exactly as the elements do.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from anabranch.batch.schema import TimeType
from anabranch.sources.verdict import show_time

log = logging.getLogger(__name__)

BUCKETS: Final = ("emitted", "absorbed", "corrected", "late", "violation", "pending")

Record = dict[str, Any]
Shown: TypeAlias = str | int | None
"""A time in a record: a number of units, `forever`, or None where there is none yet."""

_SAY_AT: Final = (10, 100, 1000)
"""After so many triggers without a stable somebody should know."""

_STANDS: Final = ("alarm", "stretches", "frontier", "leader")


def of_trigger(records: Sequence[Record], trigger: int) -> Record:
    """One trigger in all lanes: what came of whom, what became of it, how far everybody is."""
    replicas: dict[str, Record] = {}
    output: dict[str, int] = {}
    for record in records:
        for name, counts in record["replicas"].items():
            mine = replicas.setdefault(name, dict.fromkeys(("rows", *BUCKETS), 0))
            for count in ("rows", *BUCKETS):
                mine[count] += counts.get(count, 0)
            mine |= {fact: counts[fact] for fact in ("frontier", "joined")}
            mine["attached"] = counts.get("attached", True)
        for name, count in record["output"].items():
            output[name] = output.get(name, 0) + count
        for file in record.get("files", ()):  # how rows were told by earlier versions
            replicas[file["replica"]]["rows"] += file["rows"]
    # Lanes agree on all that follows from stables and membership.
    one = {name: records[0].get(name) for name in _STANDS} if records else {}
    first = one.get("leader")
    ahead: Shown = replicas[first]["frontier"] if first else None
    for name, mine in replicas.items():
        mine["lag"] = lag(mine["frontier"], ahead)
        mine["standing"] = _standing(mine, is_leader=name == first)
    return {
        "trigger": trigger,
        "rows": sum(mine["rows"] for mine in replicas.values()),
        "replicas": dict(sorted(replicas.items())),
        "output": output,
        **one,
        "lag": lag(one.get("frontier"), ahead),
        "live": sum(record["live"] for record in records),
        "state_bytes": sum(record.get("state_bytes", 0) for record in records),
    }


def lag(frontier: Shown, leaders: Shown) -> Shown:
    """How far a frontier is behind the leader's; None where one of them is not known.

    >>> lag(3, 10), lag(12, 10), lag(3, "forever"), lag(None, 10)
    (7, 0, 'forever', None)
    """
    if frontier is None or leaders is None:
        return None
    if frontier == "forever":
        return 0
    return leaders if isinstance(leaders, str) else max(0, leaders - int(frontier))


def _standing(counts: Record, *, is_leader: bool) -> str:
    if not counts["attached"]:
        return "detached"
    if not counts["joined"]:
        return "joining"
    if counts["frontier"] == "forever":
        return "ended"
    return "leader" if is_leader else "joined"


@dataclass
class ReplicaTotals:
    """One replica's rows so far, by bucket, and how far it is."""

    rows: int = 0
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    frontier: Shown = None
    lag: Shown = None
    standing: str = "joined"
    joined: bool = True
    heard: float | None = None
    """When the last row of it came, or it came itself: in seconds, by the clock of the
    driver."""

    @property
    def adds_up(self) -> bool:
        """Whether every row read is in exactly one bucket."""
        return sum(self.buckets.values()) == self.rows

    def is_silent(self, now: float, after: float) -> bool:
        """Whether it might speak, and has not for so many seconds."""
        waits = self.standing in ("leader", "joined", "joining")
        return waits and self.heard is not None and now - self.heard >= after


@dataclass
class Totals:
    """All records of a run, added up; `last` is the trigger before now (`of_trigger`)."""

    replicas: dict[str, ReplicaTotals] = field(default_factory=dict)
    triggers: int = 0
    next_trigger: int = 0
    output: dict[str, int] = field(default_factory=dict)
    last: Record = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows read from all replicas."""
        return sum(replica.rows for replica in self.replicas.values())

    @property
    def adds_up(self) -> bool:
        """Whether every row of every replica is in exactly one bucket."""
        return all(replica.adds_up for replica in self.replicas.values())

    @property
    def live(self) -> int:
        """Events that may still change, or are held back."""
        return int(self.last.get("live", 0))

    @property
    def state_bytes(self) -> int:
        """What the lanes have in Spark's state store."""
        return int(self.last.get("state_bytes", 0))

    @property
    def frontier(self) -> Shown:
        """How far the output is final."""
        found: Shown = self.last.get("frontier")
        return found

    @property
    def leader(self) -> str | None:
        """The joined replica with the greatest frontier; of equals the first."""
        found: str | None = self.last.get("leader")
        return found

    @property
    def alarm(self) -> list[Any] | None:
        """Nobody is joined: who has the smallest guarantee, and this guarantee."""
        found: list[Any] | None = self.last.get("alarm")
        return found

    @property
    def stretches(self) -> list[list[Any]]:
        """Times at which the output may be wrong: from, until before, who was promoted."""
        return self.last.get("stretches") or []

    def silent(self, now: float, after: float) -> list[str]:
        """Who might speak, and has sent no row for so many seconds."""
        found = [name for name, one in self.replicas.items() if one.is_silent(now, after)]
        return sorted(found)

    def bucket(self, name: str) -> int:
        """Rows of all replicas in one bucket."""
        return sum(replica.buckets[name] for replica in self.replicas.values())

    def add(self, records: Sequence[Record], trigger: int, *, at: float | None = None) -> None:
        """Add the records of one trigger, one per lane; `at` is when, in seconds."""
        self.triggers += 1
        self.next_trigger = trigger + 1
        self.last = of_trigger(records, trigger)
        for name, count in self.last["output"].items():
            self.output[name] = self.output.get(name, 0) + count
        for name, counts in self.last["replicas"].items():
            self._add_replica(name, counts, at)

    def _add_replica(self, name: str, counts: Record, at: float | None) -> None:
        is_new = name not in self.replicas
        replica = self.replicas.setdefault(name, ReplicaTotals())
        for fact in ("frontier", "lag", "standing", "joined"):
            setattr(replica, fact, counts[fact])
        replica.rows += counts["rows"]
        if counts["rows"] or is_new:
            replica.heard = at
        for bucket in BUCKETS:
            replica.buckets[bucket] += counts[bucket]

    def to_dict(self) -> Record:
        """For `--json`."""
        facts = ("frontier", "lag", "joined", "standing")
        replicas = {
            name: {"rows": r.rows, **r.buckets, **{fact: getattr(r, fact) for fact in facts}}
            for name, r in sorted(self.replicas.items())
        }
        return {
            "triggers": self.triggers,
            "rows": self.rows,
            "adds_up": self.adds_up,
            "replicas": replicas,
            "output": self.output,
            **{name: getattr(self, name) for name in _STANDS},
            "live": self.live,
            "state_bytes": self.state_bytes,
        }


def troubles(totals: Totals, time: TimeType) -> list[str]:
    """What somebody should know who relies on the output, in words."""
    found = []
    if totals.alarm is not None:
        name, guarantee = totals.alarm
        promise = (
            f"'{name}' has told no guarantee"
            if guarantee == "forever"
            else f"the smallest guarantee is {show(guarantee, time)}, of '{name}'"
        )
        found.append(
            f"only joining replicas remain, so the output stands at "
            f"{show(totals.frontier, time)}: {promise}; attach a complete replica, tell a "
            "guarantee that is not beyond the output, or choose the policy promote=true"
        )
    found += [
        f"the output may be wrong at times from {show(start, time)} to before "
        f"{show(end, time)}: '{name}' was promoted when only joining replicas were left"
        for start, end, name in totals.stretches
    ]
    return found


def show(value: Shown, time: TimeType) -> str:
    """A time of a record as people read it."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    return f"{value:,}" if time is TimeType.BIGINT else str(show_time(value, time))


@dataclass
class Warner:
    """Puts each trouble into the log when it begins, and not again while it lasts."""

    time: TimeType
    said: list[str] = field(default_factory=list)

    def warn(self, totals: Totals) -> None:
        """Say what is new."""
        now = troubles(totals, self.time)
        for one in now:
            if one not in self.said:
                log.warning("%s", one)
        self.said = now
        if totals.frontier is None and totals.triggers in _SAY_AT:
            log.warning(
                "no stable in %d triggers: %d events are remembered (%d bytes of state), and "
                "none of them can become final; let some replica send stables",
                totals.triggers,
                totals.live,
                totals.state_bytes,
            )


def read_totals(progress: Path) -> Totals:
    """The totals of all triggers that were written completely."""
    import pyarrow.parquet as pq

    totals = Totals()
    folders = sorted(progress.glob("trigger-*")) if progress.exists() else []
    for folder in folders:
        done = folder / "_SUCCESS"
        if not done.exists():
            continue
        lines = pq.read_table(folder).column("record").to_pylist()
        number = int(folder.name.removeprefix("trigger-"))
        records = [json.loads(line) for line in lines]
        totals.add(records, number, at=done.stat().st_mtime)
    return totals
