"""The inserts of a step that are at the current start of their moment: payloads decide."""

from dataclasses import dataclass

import numpy as np

from anabranch.batch.batch import Codes, Ints, Mask
from anabranch.operators.merge.ordered_scan import OPENS


@dataclass(frozen=True, eq=False)
class Candidates:
    """One row per insert, in order; `what` is OPENS, JOINS or FINAL of `ordered_scan`.

    `place` is where the payload is, among the payloads of the step.
    """

    what: Codes
    start: Ints
    end: Ints
    replica: Ints
    place: Ints

    def __len__(self) -> int:
        return len(self.what)

    @property
    def opens(self) -> Mask:
        """Whether it is the first of its start, and so on the output without a question."""
        mask: Mask = self.what == OPENS
        return mask

    @property
    def run(self) -> Ints:
        """The number of the start of each; 0 is the start that was current before the step."""
        return np.cumsum(self.opens)

    def pick(self, rows: Mask) -> "Candidates":
        """Some of them."""
        return Candidates(
            self.what[rows],
            self.start[rows],
            self.end[rows],
            self.replica[rows],
            self.place[rows],
        )
