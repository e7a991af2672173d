"""The back end of an `Engine` on Spark: files in, a streaming query, files out.

A step is a trigger: its elements are one file, which Spark reads when it is there.  A control
entry is a trigger of its own.  A restart stops the query and starts it from its checkpoint, as
another process would.
"""

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.batch.codec import decode, encode, from_elements, to_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.errors import UsageError
from anabranch.model.element import Element, Insert
from anabranch.model.time import FOREVER
from anabranch.operators.contract import Attach, ControlEntry, Detach, NewSettings, Operator
from anabranch.operators.merge.policy import Policy
from anabranch.sinks.published import Piece, pieces_in
from anabranch.testing.backends import COUNTED, Pushed
from anabranch.testing.ledger import Account
from anabranch.testing.operators import Entry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from anabranch.spark.query.merged import Merged
    from anabranch.spark.query.streams import Stream
    from anabranch.spark.run.running import RunningQuery


@dataclass
class OnSpark:
    """A query that runs, and the folders that it reads and writes."""

    spark: "SparkSession"
    entry: Entry
    payload: pa.Schema
    options: Mapping[str, Any]
    lanes: int
    folder: Path
    is_temporary: bool
    output: list[Element] = field(default_factory=list)
    account: Account = field(default_factory=dict)
    expelled: set[str] = field(default_factory=set)
    files: int = 0
    seen: set[Piece] = field(default_factory=set)
    query: "RunningQuery | None" = None
    counts: dict[str, int] = field(default_factory=dict)
    reasons: None = None
    gaps: None = None

    @classmethod
    def start(
        cls,
        spark: "SparkSession",
        entry: Entry,
        schema: ElementSchema,
        lanes: int,
        folder: str | Path | None,
        options: Mapping[str, Any],
    ) -> "OnSpark":
        """Begin in a new folder."""
        operator = entry.operator(schema, options)  # raises if an option does not exist
        _require_same_columns(operator)
        place = Path(tempfile.mkdtemp(prefix="anabranch-engine-") if folder is None else folder)
        made = cls(spark, entry, schema.payload, options, lanes, place, folder is None)
        (place / "in").mkdir(parents=True)
        made._begin()
        return made

    def control(self, entry: ControlEntry) -> None:
        """An input comes or leaves, by the query's own calls."""
        self.take([entry], [])

    def step(self, pushed: Sequence[Pushed]) -> None:
        """One file for all that was pushed, in its order."""
        if pushed:
            self.take([], pushed)

    def take(self, control: Sequence[ControlEntry], pushed: Sequence[Pushed]) -> None:
        """Entries and elements that do not depend on one another, and what comes of them."""
        query = self._running()
        for entry in control:
            self.expelled.discard(entry.input)
            if isinstance(entry, Attach):
                query.attach(entry.input, guarantee=entry.guarantee)
            elif isinstance(entry, Detach):
                query.detach(entry.input)
            elif isinstance(entry, NewSettings):
                _change(query, Policy.parse(entry.settings))
                self.options = {**self.options, "policy": entry.settings}
            else:
                query.pass_over(entry.input)
        if pushed:
            name = f"{self.files:08d}.parquet"
            self.files += 1
            # Spark must not see a file that is being written.
            pq.write_table(self._table(pushed), self.folder / name)
            os.rename(self.folder / name, self.folder / "in" / name)
        self._trigger()

    def restart(self) -> None:
        """Stop the query; another one goes on from its checkpoint."""
        self._running().stop()
        self._begin()

    def close(self) -> None:
        """Stop the query; a temporary folder goes with it."""
        if self.query is not None:
            self.query.stop()
            self.query = None
        if self.is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self) -> None:
        from anabranch.spark.columns import canonical_schema, spark_schema
        from anabranch.spark.query.streams import elements

        columns = spark_schema(canonical_schema(self._table([]).schema, where="engine"))
        rows = self.spark.readStream.schema(columns).parquet(str(self.folder / "in"))
        built = self._built(elements(rows, replica="replica", order="file"))
        sink: dict[str, Any] = {self.entry.view: self.folder / "out"}
        self.query = built.start(self.folder / "checkpoint", interval="0 seconds", **sink)

    def _built(self, stream: "Stream") -> "Merged":
        """What the public call makes of the stream; without one, the operator by itself."""
        import anabranch as ab
        from anabranch.spark.query.asked import Asked
        from anabranch.spark.query.merge import build
        from anabranch.spark.query.merged import Hosted

        if self.entry.call is not None:
            options = {**self.options, **self.entry.spark_options, "lanes": self.lanes}
            made: Merged = getattr(ab, self.entry.call)(stream, **options)
            return made
        hosted = Hosted(
            lambda columns: self.entry.operator(columns, self.options), "engine", "engine"
        )
        asked = Asked(lanes=self.lanes, **self.entry.spark_options)
        return replace(build([stream], asked), hosted=hosted)

    def _running(self) -> "RunningQuery":
        if self.query is None:
            message = "engine: it is closed; make another one"
            raise UsageError(message)
        return self.query

    def _trigger(self) -> None:
        """Wait until everything that is there was merged, and read what came out."""
        running = self._running()
        assert running.query is not None
        try:
            running.query.processAllAvailable()
        except Exception:
            running.wait()  # raises what ended the query, in our words
            raise
        running.publish()
        for piece in pieces_in(self.folder / "out"):
            if piece not in self.seen:
                self.seen.add(piece)
                self.output += self._read(self.folder / "out" / piece.name)
        totals, replicas = running.totals, running.totals.replicas
        self.counts = {name: totals.output.get(name, 0) for name in COUNTED}
        self.counts |= {"live": totals.live}
        self.account = {
            name: Counter(one.buckets) for name, one in replicas.items() if one.rows
        }
        if self.entry.has_members:
            self.expelled = {n for n, one in replicas.items() if one.standing == "detached"}

    def _table(self, pushed: Sequence[Pushed]) -> pa.Table:
        schema = ElementSchema(TimeType.BIGINT, self.payload, has_replica=True)
        empty = encode(from_elements([], schema))
        tables = [encode(from_elements(some, schema), replica=name) for name, _, some in pushed]
        return pa.concat_tables([empty, *tables]).combine_chunks()

    def _read(self, file: Path) -> list[Element]:
        table = pq.read_table(file)
        if self.entry.view == "final":
            return [self._final(row) for row in table.to_pylist()]
        schema = ElementSchema(TimeType.BIGINT, self.payload)
        table = table.sort_by("seq").select(schema.arrow.names)
        return to_elements(decode(table, schema).batch)

    def _final(self, row: Mapping[str, Any]) -> Element:
        values = tuple(row[name] for name in self.payload.names)
        end = FOREVER if row["end"] is None else row["end"]
        return Insert(values[0] if len(values) == 1 else values, row["start"], end)


def _require_same_columns(operator: Operator) -> None:
    """A query that hosts one operator writes the columns that it reads."""
    made = operator.output
    if not isinstance(made, ElementSchema) or made.payload != operator.schema.payload:
        message = (
            f"engine: on Spark {operator.name} is a step of a query, since its output has "
            "other columns than its input; use anabranch.testing.together, or the engine lanes"
        )
        raise UsageError(message)


def _change(query: "RunningQuery", policy: Policy) -> None:
    """Let a query go on with all choices of a policy, named or not."""
    from anabranch.spark.query.asked import NO_LIMIT

    remember = NO_LIMIT if policy.remember is None else policy.remember
    query.change(policy=policy, gaps=policy.gaps, wait=policy.wait, remember=remember)
