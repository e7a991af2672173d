"""What readers see of a merge: elements, changes, final events, and what was kept apart.

Each view is a function of the rows that the lanes make (`LANE_ROWS`).

    elements   the merged stream: sort by `seq` to get a valid physical stream
    changes    `_change_type`: insert, delete, update_preimage, update_postimage; no stables
    final      events that nothing can change any more, each once
    late       rows that were not merged: `bucket` (late, violation), reason, replica, place
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.batch.schema import ElementSchema
from anabranch.spark.columns import spark_schema
from anabranch.spark.direct import Shelf
from anabranch.spark.forms import (
    LATE,
    ChangesForm,
    ElementsForm,
    FinalForm,
    Form,
    LateForm,
    NaiveForm,
    Unpacker,
)
from anabranch.spark.keep import Keeper, Keeping
from anabranch.spark.write import ELEMENTS, FINAL, VIOLATIONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGES: Final = "changes"


@dataclass(frozen=True)
class Views:
    """The columns of every view; `is_ntz`: times come out without a zone, as they came."""

    schema: ElementSchema
    lanes: int
    is_ntz: bool = False

    def of(self, view: str, rows: "DataFrame", keeper: Keeper | None = None) -> "DataFrame":
        """One view of the lanes' rows; a keeper stores what the view does not show."""
        form, channels = self._form(view)
        columns = spark_schema(form.columns)
        if keeper is not None and view != LATE:
            return rows.mapInArrow(Keeping(keeper, form, channels), columns)
        listed = ", ".join(f"'{channel}'" for channel in channels)
        return rows.where(f"channel in ({listed})").mapInArrow(Unpacker(form), columns)

    def shelf(self, view: str, folder: str) -> Shelf:
        """One view as a folder that lanes write."""
        form, channels = self._form(view)
        return Shelf(folder, channels, form)

    def channels(self, view: str) -> tuple[str, ...]:
        """The rows of the lanes that a view is made of."""
        return self._form(view)[1]

    def _form(self, view: str) -> tuple[Form, tuple[str, ...]]:
        form: Form
        channels: tuple[str, ...] = (ELEMENTS,)
        if view == ELEMENTS:
            form = ElementsForm(self.schema, self.lanes)
        elif view == CHANGES:
            form = ChangesForm(self.schema, self.lanes)
        elif view == FINAL:
            form, channels = FinalForm(self.schema), (FINAL,)
        else:
            form, channels = LateForm(self.schema), (LATE, VIOLATIONS)
        return NaiveForm(form) if self.is_ntz else form, channels
