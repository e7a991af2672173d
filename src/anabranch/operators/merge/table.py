"""The event table of a merge: a row per identity, and bags for those with several events.

Papers: LMerge IV-D, in2t and IV-E, in3t (Figure 1).
"""

import numpy as np
import pyarrow as pa

from anabranch.batch.batch import Ints
from anabranch.operators.merge.bags import free_column, no_bags, with_room
from anabranch.operators.merge.layout import BAG, ENDS
from anabranch.operators.state.events import FLAGS, LIVE, Events


class Nodes(Events):
    """The rows (see `layout`), one column of ends per replica, and the bags beside them."""

    def __init__(self, payload: pa.Schema, *, replicas: int = 0) -> None:
        super().__init__(payload, width=ENDS + replicas)
        self.bags = no_bags()

    @property
    def nbytes(self) -> int:
        """Bytes of rows, names, free numbers and bags; payloads not counted."""
        return super().nbytes + sum(array.nbytes for array in self.bags)

    def bag_ids(self) -> Ints:
        """The numbers of the rows that are bags; costs a look at each row."""
        return np.flatnonzero(self.rows[: self.used, FLAGS] & (LIVE | BAG) == LIVE | BAG)

    def make_room_in_bags(self, events: int = 0, records: int = 0) -> None:
        """For what one visit may add, and for so many events and bags more."""
        self.bags = with_room(self.bags, events, records)

    def remove_replica(self, replica: int) -> None:
        """Drop the column of this replica."""
        if len(self.bags.cells):
            free_column(self.bags, self.rows, self.bag_ids(), ENDS + replica)
        self.remove_column(ENDS + replica)
