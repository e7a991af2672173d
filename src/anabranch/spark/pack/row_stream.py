"""A DataFrame in the element format: its rows, and what is known about them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

from anabranch.batch.schema import ElementSchema
from anabranch.model.properties import StreamProperties
from anabranch.operators.key import Key
from anabranch.spark.pack.beats import Beating
from anabranch.spark.pack.bounds import Asked
from anabranch.spark.pack.heartbeats import Heartbeat, with_heartbeats
from anabranch.spark.pack.ordering import ORDERS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame

    from anabranch.clocks.bounds import AnyBounds
    from anabranch.clocks.clock import Clock
    from anabranch.clocks.learn import Learning


@dataclass(frozen=True, eq=False)
class RowStream:
    """A DataFrame in the element format, with what orders its rows and names its replicas.

    `df` has the reserved columns (`replica` only if it holds several replicas), the payload,
    and the columns `order`, copies of the columns `ordering` that order its rows.  `copies` are
    the DataFrames of replicas that have one each, by name: `df` is their union.  `key`
    identifies one event within a replica; `is_plain`: made by `ab.events`.  `lifetime`
    describes when events end, as a run records it; `replaced_by` are the columns of which the
    next row ends an event, if a step of the query finds it.  `heartbeat` is how its stables
    arise if its rows have none; `beating` the same of all replicas, None: of those that a
    column names.  `is_timed`: a step of the query goes by the time of the trigger.
    """

    df: "DataFrame"
    schema: ElementSchema
    order: tuple[str, ...] = ()
    ordering: tuple[str, ...] = ()
    name: str | None = None
    properties: StreamProperties | None = None
    has_stables: bool = True
    is_ntz: bool = False
    copies: "tuple[tuple[str, DataFrame], ...]" = ()
    key: Key | None = None
    is_plain: bool = False
    lifetime: str = "as its elements end"
    replaced_by: tuple[str, ...] = ()
    heartbeat: Heartbeat | None = None
    beating: tuple[tuple[str | None, Beating], ...] = ()
    heartbeat_words: tuple[tuple[str, str], ...] = ()
    is_timed: bool = False

    @property
    def needs_time(self) -> bool:
        """Whether a clock needs the time of each trigger, or a step that waits by it."""
        return self.is_timed or any(how.needs_time for _, how in self.beating)

    def heartbeats(
        self,
        bounds: "str | Path | AnyBounds | Learning | Clock | None" = None,
        *,
        disorder: str | int | None = None,
        delay: str | None = None,
        idle_after: str | None = None,
        timeout: str | None = None,
        source: str | None = None,
        group: str | Mapping[str, str] | None = None,
        arrival: str | None = None,
        resolution: str = "1 second",
        guard: str | int | None = "1 hour",
        target_loss: float | None = None,
    ) -> Self:
        """The stream with progress that is inferred from its rows' times; no effect on a batch.

        Distances are application time, waits and `idle_after` wall-clock time.

        Args:
            bounds: What is known of the sources: `ab.clocks.Bounds` or `Alike`, the path of a
                TOML file, `ab.clock(...)`, or "adaptive": learned from the rows.
            disorder: The greatest distance of a row behind the greatest time of its source.
            delay: The longest time from a row's timestamp to its arrival.
            idle_after: A source that sends nothing for this long is not waited for.
            timeout: If all send nothing for this long, they have reached the greatest time.
            source: The column that names the source of a row.  Default: its replica; with
                order="kafka" its partition.
            group: The column that names a group of sources with one heartbeat.
            arrival: The column with the time at which a row arrived; it is no payload.
                Default: the time of its trigger.
            resolution: The unit of the wall clock in which arrivals are counted.
            guard: A time that is more than this ahead of its arrival moves nothing (bigint
                times: ahead of all times before, if given).
            target_loss: With "adaptive": the share of rows that may be late.
        """
        asked = Asked(
            bounds, disorder, delay, idle_after, timeout, source, group, arrival, resolution,
            guard, target_loss,
        )  # fmt: skip
        return with_heartbeats(self, asked)

    @property
    def schema_in_lanes(self) -> ElementSchema:
        """The schema of one replica's elements, without the column `replica`."""
        return replace(self.schema, has_replica=False)

    @property
    def is_streaming(self) -> bool:
        """Whether the DataFrame is a streaming one."""
        return bool(self.df.isStreaming)

    @property
    def has_positions(self) -> bool:
        """Whether each row has its place in Kafka: an upgrade can go on after the last one."""
        return self.ordering == ORDERS["kafka"]

    @property
    def ordered_by(self) -> str:
        """The columns that order a replica's rows, as `explain` shows them."""
        if self.schema.has_seq:
            return "seq"
        names = ", ".join(self.ordering)
        return names or "none: rows are read as Spark delivers them, partition by partition"
