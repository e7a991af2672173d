"""One lane's stateful step, as Spark runs it.

Spark calls `handleInputRows` once per trigger and lane with that lane's parcels.  All that
the lane remembers is one value in Spark's state store: the merge's own versioned bytes.  A
step is a function of that value and the parcels, so that Spark may run it again after any
failure.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import (
    StatefulProcessor,
    StatefulProcessorHandle,
)
from pyspark.sql.types import BinaryType, StructField, StructType

from anabranch.batch.schema import ElementSchema
from anabranch.operators.merge.r3_state import R3State
from anabranch.spark.lane import Founder, make
from anabranch.spark.write import LANE_ROWS

if TYPE_CHECKING:
    import pandas as pd


class MergeProcessor(StatefulProcessor):
    """The merge of one lane; the hooks are Spark's."""

    def __init__(
        self, schema: ElementSchema, founders: Sequence[Founder], *, strict: bool = False
    ) -> None:
        self._schema = schema
        self._founders = tuple(founders)
        self._strict = strict

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the one value that this lane keeps."""
        value = StructType([StructField("state", BinaryType())])
        self._state = handle.getValueState("merge", value)

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> Iterator["pd.DataFrame"]:
        """One trigger of one lane."""
        import pandas as pd

        parcels: list[dict[str, Any]] = [
            parcel for frame in rows for parcel in frame.to_dict("records")
        ]
        state = self._load()
        made = list(make(int(key[0]), state, parcels, self._schema, strict=self._strict))
        self._state.update((state.to_bytes(),))
        yield pd.DataFrame(made, columns=[field.split()[0] for field in LANE_ROWS.split(", ")])

    def close(self) -> None:
        """Nothing is held open."""

    def _load(self) -> R3State:
        kept = self._state.get() if self._state.exists() else None
        if kept is None:
            state = R3State.empty(self._schema)
            for founder in self._founders:
                state.attach(
                    founder.name, guarantee=founder.guarantee, attachment=founder.attachment
                )
            return state
        return R3State.from_bytes(bytes(kept[0]), self._schema)
