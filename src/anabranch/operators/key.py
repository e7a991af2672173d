"""A key: the columns that name one event within one input; frozen data, without kernels.

>>> Key(("id",), with_start=True).names
('id', 'start')
"""

from dataclasses import dataclass

from anabranch.operators.contract import Reason


@dataclass(frozen=True)
class Key:
    """The columns that name one event within one input, perhaps together with its start.

    `drops`: a second event of a key is absorbed; else it is a violation.
    """

    columns: tuple[str, ...]
    with_start: bool = False
    drops: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The columns as a run records them."""
        return (*self.columns, *(["start"] if self.with_start else []))

    @property
    def reason(self) -> Reason:
        """Why a second event of a key is not taken."""
        return Reason.DUPLICATE if self.drops else Reason.SECOND_OF_KEY
