"""One lane's stateful step, as Spark runs it.

Spark calls `handleInputRows` once per trigger and lane with that lane's parcels.  All that the
lane remembers is in Spark's state store, in parts (`anabranch.spark.store`).  A step is a
function of that and the parcels, so that Spark may run it again after any failure.
"""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from anabranch.spark.bundles import Parts
from anabranch.spark.direct import Written
from anabranch.spark.forms import LANE_COLUMNS, travelling
from anabranch.spark.lane import LaneSpec, make
from anabranch.spark.parcels import delivered
from anabranch.spark.store import WARM, load, store
from anabranch.spark.worker import settle
from anabranch.spark.write import PROGRESS, STAGED_FILES

if TYPE_CHECKING:
    import pandas as pd


class MergeRows(StatefulProcessor):
    """The merge of one lane; the hooks are Spark's."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the parts that this lane keeps."""
        self._parts = _parts(handle)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator[Row]:
        """One trigger of one lane."""
        parcels = [delivered(row.asDict()) for row in rows]
        yield from (Row(**row) for row in _step(self._spec, self._parts, parcels))
        settle()

    def close(self) -> None:
        """Nothing is held open."""


class MergeFrames(StatefulProcessor):
    """The same, for a checkpoint that began with pandas frames."""

    def __init__(self, spec: LaneSpec) -> None:
        self._spec = spec

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the parts that this lane keeps."""
        self._parts = _parts(handle)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,  # noqa: ARG002
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator["pd.DataFrame"]:
        """One trigger of one lane."""
        import pandas as pd

        parcels: list[dict[str, Any]] = [
            delivered(row) for frame in rows for row in frame.to_dict("records")
        ]
        made = _step(self._spec, self._parts, parcels)
        yield pd.DataFrame(made, columns=list(LANE_COLUMNS))
        settle()

    def close(self) -> None:
        """Nothing is held open."""


def _parts(handle: StatefulProcessorHandle) -> Parts:
    key = StructType([StructField("part", StringType())])
    value = StructType([StructField("data", BinaryType())])
    parts: Any = handle.getMapState("parts", key, value)
    found: Parts = parts
    return found


def _step(spec: LaneSpec, parts: Parts, parcels: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a lane makes of its parcels, as it crosses Spark; its state is stored."""
    number = parcels[0]["lane"]
    if spec.depot is not None:
        parcels = spec.depot.fetch(parcels)
    which = spec.lane_id(number)
    hits = WARM.hits
    lane = load(parts, which)
    is_new, was_warm = lane is None, WARM.hits > hits
    lane = lane or spec.new_lane()
    made = list(make(number, lane, parcels, spec))
    staged: Written = {}
    with ThreadPoolExecutor(1) as beside:  # while Spark takes the state, write the files
        direct = spec.direct
        files = None if direct is None else beside.submit(direct.write, made)
        written = store(parts, which, lane)
        if files is not None:
            made, staged = files.result()
    for row in made:
        if row["channel"] == PROGRESS:
            facts: dict[str, Any] = {"warm": was_warm, "saved": written}
            facts["cold"] = not (is_new or was_warm)
            facts["state_bytes"] = lane.kept.stored
            facts[STAGED_FILES] = staged
            row["note"] = json.dumps(json.loads(row["note"]) | facts)
    return travelling(made)
