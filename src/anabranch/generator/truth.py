"""The true history of a workload: its events and its phantoms.

Drawn once per workload, from its seed, in columns; every replica presents the same `Truth`.

* Events are in the order of their starts; none has an empty lifetime.
* `identity[i]` numbers the payload of event i.  Two events have the same start and the same
  identity only in case R4; else (start, payload) names one event, phantoms included.
* A phantom is an event that some replicas insert and remove again; it is not in the history.
* `mark` is a place (an event and the next one) where the case asked for is made to show: a tie
  (R1, R2) or two events of one identity (R4).  No replica misses these two.

Papers: LMerge VI-B, MaxGap and EventDuration.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from anabranch.batch.batch import FOREVER_UNITS, Ints, Mask
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase

if TYPE_CHECKING:
    from anabranch.generator.workload import Workload

VALUES: Final = 401
"""Payload values are in [0, 400], as in the paper; a prime, so that strides visit all."""

TIES: Final = 0.1
"""Share of gaps that are made 0 for R1 and R2, where ties are the point."""

NEVER_ENDING: Final = 0.01
"""Share of events whose end is never set, where there are revisions."""

PHANTOMS: Final = 0.2
"""Phantoms per revised event."""


@dataclass(frozen=True, eq=False)
class Truth:
    """Events, then phantoms, as columns."""

    start: Ints
    end: Ints  # of a phantom: its start, since nothing of it stays
    identity: Ints
    value: Ints
    phantom: Mask
    mark: int

    def __len__(self) -> int:
        return len(self.start)

    @property
    def events(self) -> Ints:
        """The rows that are in the history."""
        return np.flatnonzero(~self.phantom)


def draw(workload: "Workload") -> Truth:
    """The events and phantoms of a workload; the same seed, the same draw."""
    rng = np.random.default_rng(np.random.SeedSequence(workload.seed, spawn_key=(0,)))
    gaps = _gaps(workload, rng)
    mark = int(rng.integers(0, max(1, workload.events - 1)))
    _show_case(workload, gaps, mark)
    copies = _copies(workload, rng, gaps, mark)
    start = workload.first + np.cumsum(gaps) - gaps[0]
    end = start + _lifetimes(workload, rng)
    if workload.revision_share > 0:
        end[rng.random(workload.events) < NEVER_ENDING] = FOREVER_UNITS
    # Every second copy is a copy in every column: bag semantics must count it twice.
    twins = np.flatnonzero(copies & (rng.random(workload.events) < 0.5))
    end[twins] = end[twins - 1]
    identity = np.cumsum(~copies) - 1
    return _with_phantoms(workload, rng, start, end, identity, mark)


def _gaps(workload: "Workload", rng: np.random.Generator) -> Ints:
    least = 1 if workload.case is MergeCase.R0 else 0
    gaps: Ints = rng.integers(least, workload.max_gap, workload.events, endpoint=True)
    if workload.case in (MergeCase.R1, MergeCase.R2):
        gaps[rng.random(workload.events) < TIES] = 0
    return gaps


def _show_case(workload: "Workload", gaps: Ints, mark: int) -> None:
    if workload.case in (MergeCase.R1, MergeCase.R2):
        gaps[mark + 1] = 0
    elif workload.case is MergeCase.R3 and len(gaps) > 1 and not gaps[1:].any():
        gaps[1] = workload.max_gap  # disorder needs something to overtake


def _copies(workload: "Workload", rng: np.random.Generator, gaps: Ints, mark: int) -> Mask:
    """Events that repeat the identity of the event before them (R4 only); sets their gaps."""
    copies = np.zeros(workload.events, np.bool_)
    if workload.case is not MergeCase.R4:
        return copies
    copies |= rng.random(workload.events) < workload.duplicate_share
    copies[0] = False
    copies[mark + 1] = True
    gaps[copies] = 0
    if len(gaps) > 2 and not gaps[1:].any():
        other = mark if mark > 0 else mark + 2
        copies[other] = False
        gaps[other] = workload.max_gap
    return copies


def _lifetimes(workload: "Workload", rng: np.random.Generator) -> Ints:
    """All alike as in the paper; where ends are revised, around that duration."""
    mean = workload.lifetime
    if workload.revision_share == 0 and workload.case is not MergeCase.R4:
        return np.full(workload.events, mean, np.int64)
    low, high = max(1, mean // 2), mean + mean // 2
    return rng.integers(low, high, workload.events, endpoint=True)


def _with_phantoms(
    workload: "Workload",
    rng: np.random.Generator,
    start: Ints,
    end: Ints,
    identity: Ints,
    mark: int,
) -> Truth:
    count = workload.phantoms
    where = start[rng.integers(0, len(start), count)]
    everything = np.concatenate([start, where])
    names = np.concatenate([identity, identity[-1] + 1 + np.arange(count)])
    return Truth(
        everything,
        np.concatenate([end, where]),
        names,
        _values(rng, everything, names),
        np.arange(len(everything)) >= len(start),
        mark,
    )


def _values(rng: np.random.Generator, start: Ints, identity: Ints) -> Ints:
    """Values in [0, 400]: the same for one identity, different for different ones at one start.

    Within a group of one start they walk by a random stride from a random place, so that the
    first `VALUES` identities of a group are distinct by the value alone, for any data.
    """
    order = np.lexsort((identity, start))
    starts, names = start[order], identity[order]
    new_group = np.diff(starts, prepend=starts[0] - 1) != 0
    new_name = new_group | (np.diff(names, prepend=-1) != 0)
    group = np.cumsum(new_group) - 1
    rank = np.cumsum(new_name) - 1
    rank -= rank[new_group][group]
    if rank.max() >= VALUES:
        message = (
            f"max_gap 0 puts {rank.max() + 1} events at one time, and only {VALUES} payloads "
            "are distinct there; raise --max-gap, or ask for fewer --events"
        )
        raise UsageError(message)
    place = rng.integers(0, VALUES, group[-1] + 1)
    stride = rng.integers(1, VALUES, group[-1] + 1)
    values = np.empty(len(start), np.int64)
    values[order] = (place[group] + rank * stride[group]) % VALUES
    return values
