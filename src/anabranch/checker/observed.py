"""Which properties the files of an inbox have so far, and where each is first violated.

The fast twin of `anabranch.model.properties.observe`: the same properties hold, found in
columns, and for each that does not, the first file and row that breaks it.  A measurement, not
a promise: the next file may break what held so far.

The order of a replica is its `seq` if it has one (what comes again under a `seq` is left out),
else file name and row.  `ties_in_same_order` compares all replicas: where one has another
event in a place, the first of them by name is taken as the measure.

Papers: LMerge III-C, IV-G.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from anabranch.batch.batch import ADJUST, INSERT, Codes, Ints
from anabranch.batch.history import replay
from anabranch.batch.intern import Interner
from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_time
from anabranch.checker.gather import Gathered, Progress, Refusals, gather
from anabranch.model.properties import PROPERTIES, StreamProperties
from anabranch.sources.files import Folder

ALIVE_TWICE: Final = "a second event with this start and payload is alive"


@dataclass(frozen=True)
class Break:
    """The first element of a replica that breaks a property."""

    property: str
    file: str
    row: int
    what: str


@dataclass(frozen=True)
class Observed:
    """One replica: how many elements were looked at, and what they break."""

    elements: int
    breaks: tuple[Break, ...]

    @property
    def holds(self) -> dict[str, bool]:
        """What held so far, by property.

        Not `StreamProperties`: of one replica alone, starts that increase imply ties in the
        same order, but another replica may have another event at one of them.
        """
        broken = {one.property for one in self.breaks}
        return {name: name not in broken for name in PROPERTIES}

    def broken(self, declared: StreamProperties) -> tuple[Break, ...]:
        """Those of the breaks that were declared not to be."""
        return tuple(one for one in self.breaks if getattr(declared, one.property))

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON has."""
        return {**asdict(self), "properties": self.holds}


def observe_inbox(
    folder: Folder, *, refusals: Refusals, on_progress: Progress = lambda _: None
) -> dict[str, Observed]:
    """Look at every row of an inbox; rows that are not elements are counted in `refusals`."""
    interner = Interner(folder.payload)
    left = {str(replica.name) for replica in folder.replicas if replica.detached}
    streams = {
        str(stream.replica): _Stream(stream, folder)
        for stream in gather(folder, interner, refusals, on_progress=on_progress)
        if stream.replica not in left
    }
    breaks = {name: [*_breaks(stream)] for name, stream in streams.items()}
    ordered = {
        name: stream
        for name, stream in streams.items()
        if not any(one.property == "ordered" for one in breaks[name])
    }
    for name, one in _ties(ordered):
        breaks[name].append(one)
    return {
        name: Observed(len(stream.at), tuple(breaks[name])) for name, stream in streams.items()
    }


def held_so_far(observed: Mapping[str, Observed]) -> StreamProperties:
    """What held in every replica; nothing, if there are none."""
    held = {name: all(one.holds[name] for one in observed.values()) for name in PROPERTIES}
    return StreamProperties(**held) if observed else StreamProperties()


class _Stream:
    """The columns of one replica in its order."""

    def __init__(self, stream: Gathered, folder: Folder) -> None:
        self._stream = stream
        self._root = folder.path
        self._time: TimeType = folder.time
        self.at = _order(stream)
        self.kind: Codes = stream.kind[self.at]
        self.ids, self.start = stream.ids[self.at], stream.start[self.at]
        self.end, self.old_end = stream.end[self.at], stream.old_end[self.at]
        self.inserts: Ints = np.flatnonzero(self.kind == INSERT)

    def broken(self, name: str, position: int, what: str) -> Break:
        file, row = self._stream.place(int(self.at[position]))
        return Break(name, str(file.relative_to(self._root)), row, what)

    def show(self, units: int) -> str:
        return str(show_time(units, self._time))


def _order(stream: Gathered) -> Ints:
    if stream.seq is None:
        return np.arange(len(stream.kind))
    order = np.argsort(stream.seq, kind="stable")
    seq = stream.seq[order]
    return order[np.append(True, seq[1:] != seq[:-1])] if len(seq) else order


def _breaks(stream: _Stream) -> Iterator[Break]:
    """The first break of each property that one replica can break by itself."""
    adjusts = np.flatnonzero(stream.kind == ADJUST)
    if len(adjusts):
        yield stream.broken("insert_only", int(adjusts[0]), "is an adjust")
    starts = stream.start[stream.inserts]
    back = np.flatnonzero(starts[1:] < starts[:-1])
    still = np.flatnonzero(starts[1:] <= starts[:-1])
    if len(back):
        yield _out_of_order(stream, "ordered", int(back[0]) + 1)
        yield _out_of_order(stream, "ties_in_same_order", int(back[0]) + 1)
    if len(still):
        yield _out_of_order(stream, "strictly_increasing", int(still[0]) + 1)
    twice = _alive_twice(stream)
    if len(twice):
        yield stream.broken("keyed", int(twice[0]), ALIVE_TWICE)


def _out_of_order(stream: _Stream, name: str, number: int) -> Break:
    """The insert with this number does not start after the one before it."""
    here, before = stream.inserts[number], stream.inserts[number - 1]
    start, earlier = (stream.show(int(stream.start[one])) for one in (here, before))
    what = f"starts at {start}, after an insert that starts at {earlier}"
    return stream.broken(name, int(here), what)


def _alive_twice(stream: _Stream) -> Ints:
    """The inserts, in order, that make an identity name more than one event."""
    columns = (stream.ids, stream.kind, stream.start, stream.end, stream.old_end)
    starts, ends, old_ends = columns[2:]
    change = np.zeros(len(stream.at), np.int64)
    change[(stream.kind == INSERT) & (ends > starts)] = 1
    change[(stream.kind == ADJUST) & (ends == starts) & (old_ends > starts)] = -1
    change[replay(*columns).positions] = 0  # what breaks a promise changes nothing
    rows = np.flatnonzero(change)
    rows = rows[np.argsort(stream.ids[rows], kind="stable")]
    ids = stream.ids[rows]
    alive = np.cumsum(change[rows])
    first = np.flatnonzero(np.diff(ids, prepend=-1))
    before = alive[first] - change[rows[first]]
    alive -= np.repeat(before, np.diff(np.append(first, len(rows))))
    return np.sort(rows[(alive > 1) & (change[rows] > 0)])


def _ties(streams: Mapping[str, _Stream]) -> Iterator[tuple[str, Break]]:
    """For each replica the first insert that is another event than the measure's."""
    names, ordered = [*streams], [*streams.values()]
    columns = _inserts(ordered)
    rows = np.lexsort(columns[2::-1])
    start, nth, number, ids, end = columns[:, rows]
    is_first = np.append(True, (start[1:] != start[:-1]) | (nth[1:] != nth[:-1]))[: len(rows)]
    measure = np.maximum.accumulate(np.where(is_first, np.arange(len(rows)), 0))
    differ = (ids != ids[measure]) | (end != end[measure])
    begins = np.cumsum([0, *(len(one.inserts) for one in ordered)])
    for which, name in enumerate(names):
        mine = np.flatnonzero(differ & (number == which))
        if not len(mine):
            continue
        at = mine[np.argmin(rows[mine])]
        insert = int(ordered[which].inserts[rows[at] - begins[which]])
        other = names[int(number[measure[at]])]
        what = (
            f"is another event than '{other}' has as number {int(nth[at]) + 1} of start "
            f"{ordered[which].show(int(start[at]))}"
        )
        yield name, ordered[which].broken("ties_in_same_order", insert, what)


def _inserts(ordered: Sequence[_Stream]) -> Ints:
    """All inserts, stream after stream: start, place in it, number of the stream, id, end."""
    parts = [np.empty((5, 0), np.int64)]
    for number, one in enumerate(ordered):
        start, ids, end = (column[one.inserts] for column in (one.start, one.ids, one.end))
        parts.append(np.stack([start, _places(start), np.full_like(start, number), ids, end]))
    return np.concatenate(parts, axis=1)


def _places(starts: Ints) -> Ints:
    """The position of each insert among those of its start, from 0; starts never decrease."""
    here = np.arange(len(starts))
    is_new = np.append(True, starts[1:] != starts[:-1])[: len(starts)]
    return here - np.maximum.accumulate(np.where(is_new, here, 0))
