"""Several engines on Spark that share one streaming query, for tests with many small runs.

    errors = run_together(spark, [Run("merge", {"case": "r3"}, play), ...])

A query takes seconds to start, and a trigger takes as long for one element as for a hundred.
So each run has an `Engine` of its own and a thread that plays with it, and one query has them
all (`anabranch.testing.several`).  A trigger begins when every run that has not ended waits for
one.  A run cannot restart by itself.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Element
from anabranch.operators.contract import ControlEntry, Operator
from anabranch.testing.backends import Pushed, Reference
from anabranch.testing.element_lines import crossing
from anabranch.testing.engine import TEXT, Engine
from anabranch.testing.ledger import Account
from anabranch.testing.on_spark import OnSpark
from anabranch.testing.operators import COMPLETE, OPERATORS, Entry
from anabranch.testing.several import SeveralOperator, emitted, name_in, run_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = ElementSchema(TimeType.BIGINT, TEXT)


@dataclass(frozen=True)
class Run:
    """An operator with its options and payload columns, and what to do with an engine of it."""

    operator: str
    options: Mapping[str, Any]
    play: Callable[[Engine], None]
    payload: pa.Schema = TEXT


def run_together(
    spark: "SparkSession", runs: Sequence[Run], *, folder: str | Path | None = None
) -> list[BaseException | None]:
    """Play all runs on one query; for each what it raised."""
    shared = _Shared(OnSpark.start(spark, _entry(runs), _SCHEMA, 1, folder, {}), runs)
    threads = [
        threading.Thread(target=shared.play, args=(number, run), daemon=True)
        for number, run in enumerate(runs)
    ]
    try:
        for thread in threads:
            thread.start()
        shared.serve()
        for thread in threads:
            thread.join()
    finally:
        shared.query.close()
    return shared.raised


def _entry(runs: Sequence[Run]) -> Entry:
    entries = [OPERATORS[run.operator] for run in runs]
    finals = frozenset(n for n, entry in enumerate(entries) if entry.view == "final")

    def made(schema: ElementSchema, _: Mapping[str, Any]) -> Operator:
        operators = tuple(
            entry.operator(ElementSchema(TimeType.BIGINT, run.payload), run.options)
            for run, entry in zip(runs, entries, strict=True)
        )
        return SeveralOperator(schema, operators, finals)

    return Entry(made, _no_reference, spark_options=COMPLETE)


def _no_reference(_: Mapping[str, Any]) -> Reference:
    message = "engine: several runs have a reference each, and none together"
    raise UsageError(message)


@dataclass
class _Member:
    """One run's share of the query: what an `Engine` asks for."""

    shared: "_Shared"
    number: int
    may_leave: bool
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=dict)
    expelled: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)
    reasons: None = None
    gaps: None = None

    def control(self, entry: ControlEntry) -> None:
        """An input of this run comes or leaves."""
        self.expelled.discard(entry.input)
        self.shared.ask(self.number, _Asked(control=(entry,)))

    def step(self, pushed: Sequence[Pushed]) -> None:
        """Take elements of this run."""
        if pushed:
            self.shared.ask(self.number, _Asked(pushed=tuple(pushed)))

    def restart(self) -> None:
        """Refused: the query is that of all runs."""
        message = "engine: runs that share a query cannot restart; start an engine by itself"
        raise UsageError(message)

    def close(self) -> None:
        """The query runs on for the others."""


@dataclass(frozen=True)
class _Asked:
    """What a run asks of the next trigger."""

    control: tuple[ControlEntry, ...] = ()
    pushed: tuple[Pushed, ...] = ()


class _Shared:
    """The query, and the runs that play on it; a trigger serves all that wait."""

    def __init__(self, query: OnSpark, runs: Sequence[Run]) -> None:
        self.query = query
        self.members = [
            _Member(self, number, OPERATORS[run.operator].has_members)
            for number, run in enumerate(runs)
        ]
        self.raised: list[BaseException | None] = [None] * len(runs)
        self._playing = set(range(len(runs)))
        self._asked: dict[int, _Asked] = {}
        self._failure: Exception | None = None
        self._changed = threading.Condition()

    def play(self, number: int, run: Run) -> None:
        """What the thread of a run does."""
        try:
            run.play(Engine("spark", run.operator, self.members[number]))
        except BaseException as error:  # raised again where the results are read
            self.raised[number] = error
        finally:
            with self._changed:
                self._playing.remove(number)
                self._changed.notify_all()

    def ask(self, number: int, asked: _Asked) -> None:
        """Wait for the trigger that serves this."""
        with self._changed:
            self._asked[number] = asked
            self._changed.notify_all()
            self._changed.wait_for(lambda: number not in self._asked)
            if self._failure is not None:
                raise self._failure

    def serve(self) -> None:
        """Run triggers until the last run has ended."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked.keys() >= self._playing)
                if not self._playing:
                    return
                asked = dict(self._asked)
            try:
                self._trigger(asked)
            except Exception as error:  # raised in every run
                self._failure = error
            with self._changed:
                self._asked.clear()
                self._changed.notify_all()

    def _trigger(self, asked: Mapping[int, _Asked]) -> None:
        before = len(self.query.output)
        self.query.take(
            [
                replace(entry, input=name_in(number, entry.input))
                for number, one in asked.items()
                for entry in one.control
            ],
            [
                (name_in(number, name), attachment, list(map(crossing, elements)))
                for number, one in asked.items()
                for name, attachment, elements in one.pushed
            ],
        )
        for number, element in emitted(self.query.output[before:]):
            self.members[number].output.append(element)
        for whole, buckets in self.query.account.items():
            number, name = run_of(whole)
            self.members[number].account[name] = buckets
        expelled = [run_of(whole) for whole in self.query.expelled]
        for member in self.members:
            if member.may_leave:
                member.expelled = {name for number, name in expelled if number == member.number}
