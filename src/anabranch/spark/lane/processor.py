"""One lane's stateful step, as Spark runs it.

Spark calls `handleInputRows` once per trigger and lane with that lane's parcels.  All that the
lane remembers is in Spark's state store, in parts (`anabranch.spark.lane.state`).  A step is a
function of that and the parcels, so that Spark may run it again after any failure.

When a query starts, Spark loads the processor in a Python process of its own, only to ask which
states it has.  So neither this module nor the processor needs an operator: the specification
is pickled, and read where rows come.  It saves half of what that process costs.
"""

import pickle
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from anabranch.spark.worker_gc import settle

if TYPE_CHECKING:
    from anabranch.spark.lane.bundles import Parts
    from anabranch.spark.lane.spec import LaneSpec


class LaneProcessor(StatefulProcessor):
    """The pipeline of one lane; the hooks are Spark's."""

    def __init__(self, spec: "LaneSpec") -> None:
        self._spec = pickle.dumps(spec)

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the parts that this lane keeps."""
        key = StructType([StructField("part", StringType())])
        value = StructType([StructField("data", BinaryType())])
        parts: Any = handle.getMapState("parts", key, value)
        self._parts: Parts = parts

    def handleInputRows(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """One trigger of one lane."""
        from anabranch.spark.lane.work import in_trigger

        spec = pickle.loads(self._spec)
        made = in_trigger(spec, self._parts, [row.asDict() for row in rows])
        yield from (Row(**row) for row in made)
        settle()

    def close(self) -> None:
        """Nothing is held open."""
