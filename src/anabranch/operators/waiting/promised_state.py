"""What is remembered of a stream with promises, over batches.

A step

    count      each element by its sync time, in the order of arrival; promises as they come
    follow     the elements of each identity, after its ends and what waits (`chains`)
    force      what waits behind the forced stable is late
    advance    complete promises, and forget what the frontier has passed

A step looks at the identities that it touches, and at those that are due; of what waits the
least sync time is found in a queue.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import dumps, loads
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from anabranch.batch.batch import (
    ADJUST,
    INSERT,
    NEVER_UNITS,
    Batch,
    Codes,
    Ints,
    concat,
)
from anabranch.batch.events import nothing
from anabranch.operators.contract import (
    BUCKET_OF,
    INPUT,
    Arrival,
    Inputs,
    Reason,
    StepResult,
)
from anabranch.operators.state.blocks import Saved
from anabranch.operators.state.codec import StateKind, column_of, to_table
from anabranch.operators.state.seq_set import SeqSet
from anabranch.operators.trusting import reasons_of, stable_of
from anabranch.operators.unary import OneInput, changes_nothing, require_schema
from anabranch.operators.waiting.chain_kernel import TAKEN
from anabranch.operators.waiting.chains import OF_CODE, Chains
from anabranch.operators.waiting.hold_arcs import Taken
from anabranch.operators.waiting.pace import Pace
from anabranch.operators.waiting.promise_book import PROMISES, PromiseBook

if TYPE_CHECKING:
    from anabranch.operators.waiting.promised import PromisedOperator

KIND: Final = StateKind("anabranch promises", version=1)


class PromisedState(OneInput):
    """Chains, promises, and the numbers that were consumed, by input.

    `shown` is the frontier of the output.
    """

    def __init__(self, operator: "PromisedOperator") -> None:
        self.operator, self.output = operator, operator.output
        self.pace = Pace(operator.remember)
        self.book = PromiseBook(operator.origin)
        self.chains = Chains(self.output)
        self.seqs: dict[str, tuple[int, SeqSet]] = {}
        self.names: list[str] = []
        self.shown = int(NEVER_UNITS)

    def __repr__(self) -> str:
        return f"PromisedState(frontier {self.shown}, {self.book!r}, {self.chains!r})"

    @property
    def frontier(self) -> int:
        """How far the output is final."""
        return self.shown

    @property
    def live(self) -> int:
        """How many ends and waiting adjusts are remembered."""
        return len(self.chains)

    @property
    def facts(self) -> Mapping[str, Any]:
        """What waits and what the stable waits for, for the progress record."""
        book, waits = self.book, None
        if len(book.open) and book.hole is None:
            start, end, expected, received = book.open[0].tolist()
            waits = {"start": start, "end": end, "count": expected, "arrived": received}
        return {
            "pending": self.chains.pending,
            "waits_for": waits,
            "hole": None if book.hole is None else list(book.hole),
            "exceeded": book.exceeded,
        }

    def step(self, inputs: Inputs) -> StepResult:
        """Take what arrived, change the state, return the net change."""
        self.chains.mark += 1
        taken = self._read(inputs.arrivals)
        data, forced = taken.data, self.pace.limit
        late = _sync(data) < forced
        followed = self.chains.follow(data, taken.number, late, self.shown, self.names)
        codes = OF_CODE[followed.codes]
        direct = (followed.codes == TAKEN) & ~followed.mixed
        codes[(followed.codes == TAKEN) & followed.mixed] = Reason.APPLIED.code
        codes[direct & (data.kind == ADJUST)] = Reason.CORRECTED.code
        taken.give_each(codes)
        self.pace.take(inputs.control)
        resolved = followed.resolved
        if self.pace.limit > forced:
            resolved += self.chains.force(self.pace.limit, self.names)
        output = [data if direct.all() else data.take(direct), followed.net]
        visits = self._advance(output)
        return StepResult(
            concat(output),
            buckets=tuple(BUCKET_OF[one] for one in taken.reasons),
            reasons=taken.reasons,
            frontier=self.shown,
            resolved=tuple(resolved),
            added_adjusts=int(np.count_nonzero(followed.net.kind == ADJUST)),
            added_inserts=int(np.count_nonzero(followed.net.kind == INSERT)),
            counts={"visits": visits, "looks": followed.looks},
        )

    def _read(self, arrivals: Sequence[Arrival]) -> Taken:
        """The elements to be followed, and promises into the book, in the order of arrival."""
        data, numbers, places = [], [], []
        reasons = tuple(reasons_of(one.batch) for one in arrivals)
        for at, one in enumerate(arrivals):
            is_promise = one.input == self.operator.promises_of
            schema = self.operator.ports[PROMISES if is_promise else INPUT].schema
            require_schema(self.operator.name, schema, [one])
            if is_promise:
                self._promise(one.batch, reasons[at])
                continue
            rows = self._accept(one, reasons[at])
            if one.input not in self.names:
                self.names.append(one.input)
            some = one.batch if len(rows) == len(one.batch) else one.batch.take(rows)
            data.append(replace(some, schema=self.output, seq=None))
            numbers.append(np.full(len(rows), self.names.index(one.input), np.int64))
            places.append((at, rows))
        every = concat(data) if data else nothing(self.output)
        number = np.concatenate(numbers) if numbers else np.empty(0, np.int64)
        return Taken(every, number, places, reasons)

    def _promise(self, batch: Batch, codes: Codes) -> None:
        """Note promises; what is none, or overlaps, is refused."""
        is_insert = batch.kind == INSERT
        codes[(batch.kind == ADJUST)] = Reason.NOT_PROMISED.code
        rows = np.flatnonzero(is_insert)
        count = batch.payload.column(0).to_numpy()[rows].astype(np.int64)
        refused = self.book.promise(batch.start[rows], batch.end[rows], count)
        codes[rows] = np.where(refused, Reason.NOT_PROMISED.code, Reason.APPLIED.code)

    def _accept(self, one: Arrival, codes: Codes) -> Ints:
        """Count the elements of an input; the rows that change something, and may."""
        batch, news = one.batch, one.batch.is_data
        if batch.seq is not None:
            attachment, seen = self.seqs.get(one.input, (0, SeqSet()))
            seen = SeqSet() if one.attachment > attachment else seen
            self.seqs[one.input] = max(one.attachment, attachment), seen
            fresh = seen.take(batch.seq)
            codes[~fresh] = Reason.REDELIVERY.code
            news &= fresh
        rows = np.flatnonzero(news)
        refused = self.book.count(_sync(batch)[rows])
        codes[rows[refused]] = Reason.NOT_PROMISED.code
        rows = rows[~refused]
        backwards = batch.end < batch.start
        unfounded = (batch.kind == ADJUST) & (batch.old_end <= batch.start)
        unfounded &= ~changes_nothing(batch)
        codes[rows[unfounded[rows]]] = Reason.NO_SUCH_EVENT.code
        codes[rows[backwards[rows]]] = Reason.BACKWARDS.code
        leaves = backwards | unfounded | changes_nothing(batch)
        stays: Ints = rows[~leaves[rows]]
        return stays

    def _advance(self, output: list[Batch]) -> int:
        """Complete promises; forget, and add the stable, if that is news; how many looks."""
        self.book.advance()
        missing, visits = self.chains.missing(self.book.done)
        frontier = max(min(self.book.done, missing), self.pace.limit)
        if frontier <= self.shown:
            return visits
        self.shown = frontier
        output.append(stable_of(self.output, frontier))
        return visits + self.chains.forget(frontier)

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        numbers = {name: attachment for name, (attachment, _) in self.seqs.items()}
        facts: dict[str, int | str] = {
            "names": dumps(self.names),
            "attachments": dumps(numbers),
            "pace": self.pace.to_text(),
            "shown": self.shown,
        }
        sets = [one.ranges for _, one in self.seqs.values()]
        of = np.repeat(np.arange(len(sets)), [len(one) for one in sets])
        ranges = np.concatenate([np.empty((0, 2), np.int64), *sets])
        columns = {"of": of, "first": ranges[:, 0], "last": ranges[:, 1]}
        more = [*self.book.tables(), to_table(columns)]
        return self.chains.parts(KIND, since, facts, more)

    @classmethod
    def restored(cls, parts: Mapping[str, bytes], operator: "PromisedOperator") -> Self:
        """The state that was saved; StateError if of another kind, version or schema."""
        state = cls(operator)
        header, tables = state.chains.restore(KIND, parts, more=3)
        state.shown, state.names = int(header["shown"]), loads(header["names"])
        state.pace.read(header["pace"])
        promises, early, ranges = tables
        state.book.read(promises, early)
        of, first, last = (column_of(ranges, name) for name in ("of", "first", "last"))
        for number, (name, attachment) in enumerate(loads(header["attachments"]).items()):
            seen = SeqSet()
            seen.ranges = np.stack([first, last], axis=1)[of == number]
            state.seqs[name] = attachment, seen
        return state

    def check(self) -> None:
        """Assert every invariant."""
        self.chains.check()
        self.book.check()
        missing, _ = self.chains.missing(self.book.done)
        frontier = max(min(self.book.done, missing), self.pace.limit)
        assert frontier == self.shown, f"the frontier is {frontier}, shown is {self.shown}"


def _sync(batch: Batch) -> Ints:
    """When each element first changes a snapshot; of a stable its time."""
    least = np.minimum(batch.old_end, batch.end)
    sync: Ints = np.where(batch.kind == ADJUST, least, batch.start)
    return sync
