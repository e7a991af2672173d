"""Progress records of triggers, which add up to the totals of a run.

A lane writes one `LaneRecord` per trigger: how many rows came from each replica, in which
bucket each of them is, how far each replica and the output are.  Data elements are counted by
the lane that they are routed to, stables and refused rows by lane 0 alone, rows read by the
packer: so the sum over all lanes and triggers counts every row once, and `Totals.adds_up`
compares two independent counts.  `TriggerRecord` is one trigger in all lanes, `Totals` all
triggers.

A lane's record becomes JSON once, in the lane.  That text is what crosses Spark, what observers
read and what lies in `OUTPUT/progress`, one file per trigger, replaced as a whole when a
trigger is run again.  A snapshot of the totals lies beside that folder, so that a restart reads
few records, and old ones can be removed.  docs/guide/progress.md documents each field;
`version` changes when one of them changes its meaning.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from anabranch.batch.batch import FOREVER_UNITS, NEVER_UNITS
from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_time
from anabranch.errors import StateError
from anabranch.spark.clock_record import ClockRecord
from anabranch.spark.lane_share import LaneShare, shares
from anabranch.spark.step_record import (
    OperatorRecord,
    Shown,
    StepRecord,
    place,
    step_records,
)

VERSION: Final = 1
"""The version of lane records, trigger records and totals."""

BUCKETS: Final = ("emitted", "absorbed", "corrected", "late", "violation", "pending")

COUNTS: Final = ("rows", *BUCKETS, "duplicates", "lacks", "alone")
"""What is counted of a replica: rows read, rows by bucket, and of copies with gaps how many
events of the output it lacks and how many it alone has."""


def shown(units: int) -> Shown:
    """A time as records have it.

    >>> shown(7), shown(FOREVER_UNITS), shown(NEVER_UNITS)
    (7, 'forever', None)
    """
    if units == FOREVER_UNITS:
        return "forever"
    return None if units == NEVER_UNITS else int(units)


def shown_facts(value: Any) -> Any:
    """What an operator reports as facts, with its times as records have them."""
    if isinstance(value, Mapping):
        return {name: shown_facts(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shown_facts(one) for one in value]
    return shown(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass(frozen=True, kw_only=True)
class ReplicaCounts:
    """One replica in one lane and trigger: its rows by bucket, and how far it is."""

    rows: int = 0
    emitted: int = 0
    absorbed: int = 0
    corrected: int = 0
    late: int = 0
    violation: int = 0
    pending: int = 0
    lacks: int = 0
    alone: int = 0
    duplicates: int = 0
    frontier: Shown = None
    joined: bool = False
    attached: bool = False
    passed_over: bool = False

    def counts(self) -> dict[str, int]:
        """Rows read, then rows by bucket."""
        return {name: getattr(self, name) for name in ("rows", *BUCKETS)}


@dataclass(frozen=True, kw_only=True)
class LaneRecord:
    """One lane of one stage in one trigger.

    `taken` are the inserts and adjusts that came to it.  `output` counts what the lane made, by
    channel and by what a step counts.  `live` is of the operator that takes the inputs;
    `operators` has all of them.  `saved` are the bytes written to the state store; `log` is the
    last entry of the control log that the trigger read, -1 if it read none; `warm` and `cold`
    count whether the state came from a worker's copy or from the store (neither: it is new).
    Spark counts triggers from 0 in each checkpoint; `first_trigger` is what the run has before.
    """

    lane: int
    stage: int = 0
    steps: int
    replicas: Mapping[str, ReplicaCounts]
    output: Mapping[str, int]
    operators: Mapping[str, OperatorRecord]
    frontier: Shown
    live: int
    log: int = -1
    leader: str | None = None
    violators: tuple[str, ...] = ()
    frame_bytes: int = 0
    state_bytes: int = 0
    saved: int = 0
    warm: bool = False
    cold: bool = False
    first_trigger: int = 0
    taken: int = 0
    clock: ClockRecord | None = None
    version: int = VERSION

    @property
    def remembered(self) -> int:
        """What all its steps remember."""
        return sum(one.live for one in self.operators.values())

    @property
    def due(self) -> int | None:
        """When the first wait by the wall clock is over, in microseconds, if there is one."""
        found = [one.facts["due"] for one in self.operators.values() if "due" in one.facts]
        return min(found, default=None)

    def fact(self, name: str) -> Any:
        """What the first operator that reports such a fact reports; None if there is none."""
        found = (one.facts[name] for one in self.operators.values() if name in one.facts)
        return next(found, None)

    def to_json(self) -> str:
        """The one text of this record."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "LaneRecord":
        """The record of such a text; another version is refused by name."""
        fields = json.loads(text)
        _require_version(fields["version"])
        replicas = {name: ReplicaCounts(**one) for name, one in fields.pop("replicas").items()}
        operators = {n: OperatorRecord(**one) for n, one in fields.pop("operators").items()}
        known = {"replicas": replicas, "violators": tuple(fields["violators"])}
        fields |= {**known, "operators": operators}
        return cls(**fields | {"clock": ClockRecord.read(fields["clock"])})


def _require_version(version: int) -> None:
    if version != VERSION:
        message = (
            f"a progress record has version {version}, this version of anabranch reads version "
            f"{VERSION}; use the version that wrote it, or start a new run"
        )
        raise StateError(message)


@dataclass(frozen=True, kw_only=True)
class ReplicaRecord:
    """One replica in one trigger, over all lanes."""

    rows: int
    emitted: int
    absorbed: int
    corrected: int
    late: int
    violation: int
    pending: int
    lacks: int
    alone: int
    frontier: Shown
    lag: Shown
    joined: bool
    attached: bool
    standing: str
    duplicates: int = 0

    @classmethod
    def of(
        cls, lanes: Sequence[ReplicaCounts], ahead: Shown, *, is_leader: bool
    ) -> "ReplicaRecord":
        """The sum of its lanes; lanes agree on all that follows from stables and members."""
        one = lanes[-1]
        counts = {name: sum(getattr(lane, name) for lane in lanes) for name in COUNTS}
        return cls(
            **counts,
            frontier=one.frontier,
            lag=lag(one.frontier, ahead),
            joined=one.joined,
            attached=one.attached,
            standing=_standing(one, is_leader=is_leader),
        )


@dataclass(frozen=True, kw_only=True)
class TriggerRecord:
    """One trigger in all lanes: the public record."""

    trigger: int
    rows: int
    replicas: Mapping[str, ReplicaRecord]
    output: Mapping[str, int]
    frontier: Shown
    leader: str | None
    lag: Shown
    live: int
    state_bytes: int
    alarm: list[Any] | None
    stretches: list[list[Any]]
    violators: list[str]
    frame_bytes: int = 0
    lanes: list[LaneShare] = field(default_factory=list)
    steps: list[StepRecord] = field(default_factory=list)
    clock: ClockRecord | None = None
    due: int | None = None
    version: int = VERSION

    @classmethod
    def of(cls, records: Sequence[LaneRecord], trigger: int) -> "TriggerRecord":
        """The sum over the lanes of one trigger.

        Inputs belong to the first stage, the frontier to the last: the least of its lanes.
        """
        first = next((one for one in records if one.stage == 0), None)
        last = [one for one in records if one.stage == max(r.stage for r in records)]
        leader = first.leader if first else None
        names = sorted({name for record in records for name in record.replicas})
        by_name = {n: [r.replicas[n] for r in records if n in r.replicas] for n in names}
        ahead: Shown = by_name[leader][-1].frontier if leader else None
        replicas = {
            name: ReplicaRecord.of(lanes, ahead, is_leader=name == leader)
            for name, lanes in by_name.items()
        }
        frontier = min((one.frontier for one in last), key=place, default=None)
        return cls(
            trigger=trigger,
            rows=sum(one.rows for one in replicas.values()),
            replicas=replicas,
            output=added(record.output for record in records),
            frontier=frontier,
            leader=leader,
            lag=lag(frontier, ahead),
            live=sum(record.live for record in records if record.stage == 0),
            state_bytes=sum(record.state_bytes for record in records),
            alarm=first.fact("alarm") if first else None,
            stretches=(first.fact("stretches") if first else None) or [],
            violators=sorted({name for record in records for name in record.violators}),
            frame_bytes=sum(record.frame_bytes for record in records),
            lanes=shares(records),
            steps=step_records(records),
            clock=next((one.clock for one in records if one.clock), None),
            due=min((one.due for one in records if one.due is not None), default=None),
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return asdict(self)


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Sums by name."""
    sums: Counter[str] = Counter()
    for one in counts:
        sums.update(one)
    return dict(sums)


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


def _standing(one: ReplicaCounts, *, is_leader: bool) -> str:
    if not one.attached:
        return "detached"
    if not one.joined:
        return "joining"
    if one.frontier == "forever":
        return "ended"
    if one.passed_over:
        return "passed over"
    return "leader" if is_leader else "joined"


@dataclass
class ReplicaTotals:
    """One replica's rows so far, by bucket, and how far it is."""

    rows: int = 0
    duplicates: int = 0
    buckets: dict[str, int] = field(default_factory=lambda: dict.fromkeys(BUCKETS, 0))
    lacks: int = 0
    alone: int = 0
    frontier: Shown = None
    lag: Shown = None
    standing: str = "joined"
    joined: bool = True
    last_seen: float | None = None
    """When its last row came, or it attached: seconds since the epoch, of the driver."""

    @property
    def adds_up(self) -> bool:
        """Whether every row read is in exactly one bucket."""
        return sum(self.buckets.values()) == self.rows

    def is_silent(self, now: float, after: float) -> bool:
        """Whether it is attached, has not ended, and sent no row for `after` seconds."""
        waits = self.standing in ("leader", "joined", "joining", "passed over")
        return waits and self.last_seen is not None and now - self.last_seen >= after


@dataclass
class Totals:
    """All records of a run, added up; `last` is the latest trigger."""

    replicas: dict[str, ReplicaTotals] = field(default_factory=dict)
    triggers: int = 0
    next_trigger: int = 0
    output: dict[str, int] = field(default_factory=dict)
    log: int = -1
    last: TriggerRecord | None = None
    clock: ClockRecord | None = None

    @property
    def rows(self) -> int:
        """Rows read from all replicas."""
        return sum(replica.rows for replica in self.replicas.values())

    @property
    def adds_up(self) -> bool:
        """Whether every row of every replica is in exactly one bucket."""
        return all(replica.adds_up for replica in self.replicas.values())

    @property
    def duplicates(self) -> int:
        """Rows that repeat an event which their replica has already."""
        return sum(replica.duplicates for replica in self.replicas.values())

    @property
    def duplicates_by_replica(self) -> dict[str, int]:
        """The replicas that have some."""
        return {n: one.duplicates for n, one in self.replicas.items() if one.duplicates}

    @property
    def live(self) -> int:
        """Events that may still change, or are held back."""
        return self.last.live if self.last else 0

    @property
    def state_bytes(self) -> int:
        """What the lanes have in Spark's state store."""
        return self.last.state_bytes if self.last else 0

    @property
    def frontier(self) -> Shown:
        """How far the output is final."""
        return self.last.frontier if self.last else None

    @property
    def leader(self) -> str | None:
        """The joined replica with the greatest frontier; of equals the first."""
        return self.last.leader if self.last else None

    @property
    def alarm(self) -> list[Any] | None:
        """If no replica is joined: the one with the smallest guarantee, and its guarantee."""
        return self.last.alarm if self.last else None

    @property
    def stretches(self) -> list[list[Any]]:
        """Times at which the output may be wrong: from, until before, who was promoted."""
        return self.last.stretches if self.last else []

    def silent(self, now: float, after: float) -> list[str]:
        """The attached replicas that have not ended and sent no row for `after` seconds."""
        return sorted(n for n, one in self.replicas.items() if one.is_silent(now, after))

    def bucket(self, name: str) -> int:
        """Rows of all replicas in one bucket."""
        return sum(replica.buckets[name] for replica in self.replicas.values())

    def add(
        self, records: Sequence[LaneRecord], trigger: int, *, at: float | None = None
    ) -> None:
        """Add the records of one trigger, one per lane; `at` is when, in seconds."""
        self.triggers += 1
        self.next_trigger = trigger + 1
        if not records:
            return  # Spark begins a trigger without rows when Kafka's reader first looks
        self.last = TriggerRecord.of(records, trigger)
        self.output = added([self.output, self.last.output])
        self.log = max(self.log, *(one.log for one in records))
        self.clock = self.last.clock.after(self.clock) if self.last.clock else self.clock
        for name, one in self.last.replicas.items():
            self._add_replica(name, one, at)

    @property
    def lag(self) -> Shown:
        """How far the output is behind the leader."""
        return self.last.lag if self.last else None

    def _add_replica(self, name: str, one: ReplicaRecord, at: float | None) -> None:
        is_new = name not in self.replicas
        replica = self.replicas.setdefault(name, ReplicaTotals())
        for fact in ("frontier", "lag", "standing", "joined"):
            setattr(replica, fact, getattr(one, fact))
        for count in ("rows", "duplicates", "lacks", "alone"):
            setattr(replica, count, getattr(replica, count) + getattr(one, count))
        if one.rows or is_new:
            replica.last_seen = at
        for bucket in BUCKETS:
            replica.buckets[bucket] += getattr(one, bucket)

    def to_json(self) -> str:
        """All of it, for `from_json`."""
        return json.dumps({"version": VERSION, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> "Totals":
        """What `to_json` wrote; another version is refused by name."""
        fields = json.loads(text)
        _require_version(fields.pop("version"))
        last = fields.pop("last")
        if last is not None:
            inside = {name: ReplicaRecord(**one) for name, one in last["replicas"].items()}
            lanes = [LaneShare(**one) for one in last.get("lanes", ())]
            steps = [StepRecord(**one) for one in last.get("steps", ())]
            last |= {"replicas": inside, "lanes": lanes, "steps": steps}
            last = TriggerRecord(**last | {"clock": ClockRecord.read(last["clock"])})
        fields["clock"] = ClockRecord.read(fields["clock"])
        replicas = {n: ReplicaTotals(**one) for n, one in fields.pop("replicas").items()}
        return cls(replicas=replicas, last=last, **fields)

    def to_dict(self) -> dict[str, Any]:
        """The sums as JSON has them."""
        facts = ("duplicates", "lacks", "alone", "frontier", "lag", "joined", "standing")
        replicas = {
            name: {"rows": r.rows, **r.buckets, **{fact: getattr(r, fact) for fact in facts}}
            for name, r in sorted(self.replicas.items())
        }
        return {
            "version": VERSION,
            "triggers": self.triggers,
            "rows": self.rows,
            "adds_up": self.adds_up,
            "replicas": replicas,
            "output": self.output,
            "alarm": self.alarm,
            "stretches": self.stretches,
            "frontier": self.frontier,
            "leader": self.leader,
            "live": self.live,
            "state_bytes": self.state_bytes,
        }


def troubles(totals: Totals, time: TimeType) -> list[str]:
    """Warnings for those who rely on the output."""
    found = []
    if totals.alarm is not None:
        name, guarantee = totals.alarm
        promise = (
            f"'{name}' has declared no guarantee"
            if guarantee == "forever"
            else f"the smallest guarantee is {show(guarantee, time)}, of '{name}'"
        )
        found.append(
            f"only joining replicas remain, so the output stands at "
            f"{show(totals.frontier, time)}: {promise}; attach a complete replica, declare "
            "a guarantee that is not beyond the output, or choose the policy promote=true"
        )
    found += [
        f"the output may be wrong at times from {show(start, time)} to before "
        f"{show(end, time)}: '{name}' was promoted when only joining replicas were left"
        for start, end, name in totals.stretches
    ]
    return found + (totals.clock.troubles if totals.clock else [])


def show(value: Shown, time: TimeType) -> str:
    """A time of a record as people read it."""
    if value is None or isinstance(value, str):
        return value or "-"
    return f"{value:,}" if time is TimeType.BIGINT else str(show_time(value, time))
