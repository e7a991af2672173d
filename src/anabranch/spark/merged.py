"""`ab.merge`: copies of one stream, each a DataFrame or told apart by a column, into one.

What a merge is made of is looked at when it is built: schemas that differ, times of two types,
a case that the replicas do not permit, batch beside streaming, all raise then and name the
column.  Nothing is read before a view is.

The same plan runs on batch and streaming DataFrames: pack, shuffle by lane, merge, unpack.  A
batch is one step; its history is that of the stream.
"""

import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.batch.batch import FOREVER_UNITS
from anabranch.batch.schema import ElementSchema
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase, StreamProperties
from anabranch.operators.merge.choose import Choice, choose, explain_choice
from anabranch.operators.merge.policy import Policy
from anabranch.spark.agree import agree
from anabranch.spark.depot import Depot
from anabranch.spark.forms import LATE
from anabranch.spark.keep import Keeper
from anabranch.spark.lane import Founder, LaneSpec
from anabranch.spark.lane_case import LaneCase
from anabranch.spark.machine import cores
from anabranch.spark.merge import require_lanes
from anabranch.spark.plan import in_lanes, in_lanes_once
from anabranch.spark.receive import Order
from anabranch.spark.rows import packed
from anabranch.spark.run import new_id
from anabranch.spark.streams import Stream, elements
from anabranch.spark.views import CHANGES, Views
from anabranch.spark.write import ELEMENTS, FINAL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from anabranch.spark.started import Sink, StartedMerge

log = logging.getLogger(__name__)


def merge(
    *streams: "Stream | DataFrame",
    case: str = "auto",
    policy: str | Policy = "default",
    lanes: int | None = None,
    gaps: bool = False,
    replicas: Sequence[str] = (),
    assume_complete: bool = False,
    quarantine: str | Path | None = None,
) -> "Merged":
    """Merge DataFrames that are copies of one stream, or one with a `replica` column.

    A DataFrame is taken as `ab.elements(df)`.  Copies that are DataFrames are called as
    `name=` says, else by their position.  `replicas` are copies of a column that are known to
    take part before they say something; one that appears after the first trigger is `joining`
    unless `assume_complete`.  `quarantine` is where views that are started by themselves keep
    what was not merged.
    """
    made = [one if isinstance(one, Stream) else elements(one) for one in streams]
    joined, names = agree(made)
    known: dict[str, StreamProperties | None]
    known = dict.fromkeys([*names, *replicas], joined.properties)
    for one, name in zip(made, names, strict=False):
        known[name] = one.properties
    asked = None if case == "auto" else MergeCase(_case_name(case))
    told = known or {"every replica": joined.properties}
    choice = choose(told, gaps_possible=gaps, asked=asked)
    rules = policy if isinstance(policy, Policy) else Policy.parse(policy)
    count = cores() if lanes is None else lanes
    require_lanes(count)
    if not joined.has_stables:
        _warn_endless()
    newcomers = None if assume_complete else int(FOREVER_UNITS)
    spec = LaneSpec(
        new_id(),
        count,
        LaneCase.of(choice, rules),
        Order(joined.schema_in_lanes, joined.order, newcomers),
        tuple(Founder(name) for name in known),
    )
    return Merged(joined, spec, choice, None if quarantine is None else str(quarantine))


def _case_name(case: str) -> str:
    if case not in [one.value for one in MergeCase]:
        message = f"ab.merge: case {case!r}; it is auto, r0, r1, r2, r3 or r4"
        raise UsageError(message)
    return case


def _warn_endless() -> None:
    warnings.warn(
        "ab.merge: these streams have no stables, so nothing becomes final and every event is "
        "remembered for ever; give progress as stables (ab.elements), or merge batches",
        UserWarning,
        stacklevel=3,
    )


@dataclass(frozen=True, eq=False)
class Merged:
    """A merge that is built, and not yet run; its views are DataFrames."""

    stream: Stream
    spec: LaneSpec
    choice: Choice
    quarantine: str | None = None

    def elements(self) -> "DataFrame":
        """Elements with stables; sorted by `seq` they are a valid physical stream."""
        return self._view(ELEMENTS)

    def changes(self) -> "DataFrame":
        """Change rows: `_change_type` insert, delete, update_preimage, update_postimage."""
        return self._view(CHANGES)

    def final(self) -> "DataFrame":
        """Events that nothing can change any more, each once: for any sink that appends."""
        return self._view(FINAL)

    def late(self) -> "DataFrame":
        """What was not merged, with the reason: late rows, and rows that break a promise."""
        return self._view(LATE)

    @property
    def schema(self) -> ElementSchema:
        """The type of the times, and the payload columns."""
        return self.stream.schema

    @property
    def views(self) -> Views:
        """How the lanes' rows become DataFrames."""
        schema = self.stream.schema_in_lanes
        return Views(schema, self.spec.lanes, is_ntz=self.stream.is_ntz)

    @property
    def explanation(self) -> str:
        """The chosen case and why, lanes, order, what is remembered."""
        lanes, case = self.spec.lanes, self.spec.case
        by = "start" if case.by_start else "start and payload"
        lines = [
            explain_choice(self.choice),
            f"lanes: {lanes}, by {by}; fixed at the first start, in the checkpoint",
            f"order within a replica: {self.stream.ordered_by}",
            f"policy: {case.policy}",
        ]
        if case.by_start and lanes > 1:
            lines.append("the output is in the order of starts only with lanes=1")
        if not self.stream.has_stables:
            lines.append("no stables: nothing becomes final, every event is remembered")
        return "\n".join(lines)

    def explain(self) -> None:
        """Print the explanation."""
        print(self.explanation)

    def start(
        self,
        checkpoint: str | Path,
        *,
        elements: "Sink | None" = None,
        changes: "Sink | None" = None,
        final: "Sink | None" = None,
        late: "Sink | None" = None,
        once: bool = False,
        interval: str = "1 second",
        on_trigger: Callable[..., None] | None = None,
    ) -> "StartedMerge":
        """ONE query, several sinks: a folder (Parquet, a folder per trigger) or a function.

        A function is called with a DataFrame and the trigger's id, perhaps again with both the
        same after a failure: key what it writes by the id.  What was not merged goes to `late`,
        or to a folder `late` in the checkpoint.
        """
        from anabranch.spark.started import start

        sinks = {ELEMENTS: elements, CHANGES: changes, FINAL: final, LATE: late}
        return start(
            self, str(checkpoint), sinks, once=once, interval=interval, on_trigger=on_trigger
        )

    def parcels(self, depot: Depot | None = None) -> "DataFrame":
        """The rows of all replicas, packed for the lanes; only addresses, with a depot."""
        by_start = self.spec.case.by_start
        return packed(self.stream, self.spec.lanes, by_start=by_start, depot=depot)

    def _view(self, view: str) -> "DataFrame":
        spec = replace(self.spec, final=view == FINAL)
        if not self.stream.is_streaming:
            return self.views.of(view, in_lanes_once(self.parcels(), spec))
        keeper = None if view == LATE else self._keeper(view)
        return self.views.of(view, in_lanes(self.parcels(), spec), keeper)

    def _keeper(self, view: str) -> Keeper:
        folder = self.quarantine
        if folder is None:
            folder = str(Path("anabranch-quarantine", self.spec.run).absolute())
        log.warning("the query of %s() keeps what is not merged in %s", view, folder)
        return Keeper(folder, self.stream.schema_in_lanes)


def describe(merged: Merged) -> dict[str, Any]:
    """What fixes a run of this merge: it must be the same at every start."""
    payload = merged.schema.payload
    return {
        "lanes": merged.spec.lanes,
        "case": merged.spec.case.name,
        "policy": str(merged.spec.case.policy),
        "time": merged.schema.time.value,
        "columns": tuple(f"{field.name}: {field.type}" for field in payload),
    }
