"""The views of a merge: elements, changes, final events, and rows that were not merged.

Each view is a function of the rows that the lanes make (`LANE_ROWS`).

    elements   the merged stream: sort by `seq` to get a valid physical stream
    changes    `_change_type`: insert, delete, update_preimage, update_postimage; no stables
    final      events that nothing can change any more, each once
    late       rows that were not merged: `bucket` (late, violation), reason, replica, place
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.batch.schema import ElementSchema
from anabranch.sources.channels import CHANGES, ELEMENTS, FINAL, LATE, VIOLATIONS
from anabranch.spark.columns import spark_schema
from anabranch.spark.write.formats import (
    ApartForm,
    ChangesForm,
    ElementsForm,
    FinalForm,
    Form,
    LateForm,
    NaiveForm,
    Unpacker,
)
from anabranch.spark.write.quarantine import Keeper, Keeping

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class View:
    """The rows of the lanes that a view is made of, and the form that they take in it."""

    channels: tuple[str, ...]
    form: Form
    schema: ElementSchema

    def of(self, rows: "DataFrame", keeper: Keeper | None = None) -> "DataFrame":
        """The view as a DataFrame; a keeper stores what the view does not show."""
        columns = spark_schema(self.form.columns)
        if keeper is not None:
            return rows.mapInArrow(Keeping(keeper, self.form, self.channels), columns)
        listed = ", ".join(f"'{channel}'" for channel in self.channels)
        unpacker = Unpacker(self.form, self.schema)
        return rows.where(f"channel in ({listed})").mapInArrow(unpacker, columns)


@dataclass(frozen=True)
class Views:
    """The columns of every view; `is_ntz`: times come out without a zone, as they came.

    `apart_schema` are the columns of rows that were not taken, if they are not the output's.
    `key` identifies rows of changes: one whose value changes is an update pair.
    """

    schema: ElementSchema
    lanes: int
    is_ntz: bool = False
    apart_schema: ElementSchema | None = None
    key: tuple[str, ...] = ()

    def view(self, name: str) -> View:
        """A view by its name."""
        if name == ELEMENTS:
            return self._made((ELEMENTS,), ElementsForm(self.schema, self.lanes))
        if name == CHANGES:
            return self._made((ELEMENTS,), ChangesForm(self.schema, self.lanes, self.key))
        if name == FINAL:
            return self._made((FINAL,), FinalForm(self.schema))
        schema = self.apart_schema or self.schema
        return self._made((LATE, VIOLATIONS), LateForm(schema), schema)

    def apart(self, channel: str) -> View:
        """Late rows alone, or violations alone, as an output folder has them."""
        schema = self.apart_schema or self.schema
        return self._made((channel,), ApartForm(schema), schema)

    def _made(
        self, channels: tuple[str, ...], form: Form, schema: ElementSchema | None = None
    ) -> View:
        made = NaiveForm(form) if self.is_ntz else form
        return View(channels, made, schema or self.schema)
