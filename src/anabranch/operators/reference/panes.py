"""Aggregates by key and window, one element at a time: windows, then the aggregate by them.

This is the meaning of `operators.aggregate.panes`, which computes it without copying rows and
is compared with this.

>>> from anabranch.model.element import Insert
>>> counts = PanesByElement(
...     pa.schema({"x": pa.int64()}),
...     GridWindows(4, 2),
...     (WINDOW,),
...     (Aggregate("count", None, "n"),),
... )
>>> for element in counts.push(Insert(7, 5, 6)):
...     print(element)
Insert(payload=((2, 6), 1), start=2, end=6)
Insert(payload=((4, 8), 1), start=4, end=8)
"""

from collections.abc import Sequence

import pyarrow as pa

from anabranch.model.element import Element
from anabranch.model.emission import Emit
from anabranch.model.lifetimes import GridWindows
from anabranch.operators.aggregate.functions import Aggregate
from anabranch.operators.grid_windows import WINDOW
from anabranch.operators.reference.aggregate import AggregateByElement
from anabranch.operators.reference.lifetimes import NewLifetimes


class PanesByElement:
    """The references of windows and of the aggregate, one behind the other.

    `payload` has the columns before the windows; `keys` name the column `window`.
    """

    def __init__(
        self,
        payload: pa.Schema,
        windows: GridWindows,
        keys: Sequence[str],
        functions: Sequence[Aggregate],
        *,
        emit: Emit = Emit.AT_ONCE,
    ) -> None:
        with_window = payload.append(pa.field(WINDOW, pa.null()))
        self.windows = NewLifetimes(windows)
        self.aggregate = AggregateByElement(
            with_window.names, keys, functions, with_window, emit=emit, by_window=True
        )

    @property
    def live(self) -> int:
        """The end points that are still needed."""
        return self.aggregate.live

    def push(self, element: Element) -> tuple[Element, ...]:
        """Take the next element of the input; what comes out at once."""
        copied = self.windows.push(element)
        return tuple(out for one in copied for out in self.aggregate.push(one))
