"""What the states of finalize, normalise and cleanse have in common: how they are saved.

A state has live events, single numbers (its frontier and its mark, and what else it names in
`NUMBERS`), and a format.  It is written whole (`unary_codec`) or in parts (`unary_parts`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Self

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.schema import ElementSchema
from anabranch.operators.state_parts import Saved
from anabranch.operators.unary_codec import StateFormat
from anabranch.operators.unary_live import LiveEvents
from anabranch.operators.unary_parts import read_parts, write_parts


class UnaryState:
    """What an operator of one input remembers for one lane."""

    FORMAT: ClassVar[StateFormat]
    BY_START: ClassVar[bool]
    NUMBERS: ClassVar[tuple[str, ...]] = ("frontier", "mark")

    def __init__(self, schema: ElementSchema) -> None:
        self.schema = replace(schema, has_seq=False, has_replica=False)
        self.frontier = int(NEVER_UNITS)
        self.mark = 0
        width = len(self.FORMAT.columns)
        self.live = LiveEvents(self.schema.payload, by_start=self.BY_START, width=width)

    def to_bytes(self) -> bytes:
        """The whole state, versioned."""
        return self.FORMAT.write(self.live, numbers=self._numbers(), schema=self.schema)

    @classmethod
    def from_bytes(cls, data: bytes, schema: ElementSchema) -> Self:
        """The state that was written; StateError if it is another kind, version or payload."""
        state = cls(schema)
        return state._go_on(cls.FORMAT.read(data, state.schema, state.live))

    def parts(self, *, since: int | None = None) -> Saved:
        """The state in parts: all of them, or those that changed after a mark."""
        numbers = self._numbers()
        return write_parts(self.FORMAT, self.live, since, numbers=numbers, schema=self.schema)

    @classmethod
    def from_parts(cls, parts: Mapping[str, bytes], schema: ElementSchema) -> Self:
        """The state that was saved last; StateError if a part is missing or not of it."""
        state = cls(schema)
        return state._go_on(read_parts(cls.FORMAT, parts, state.schema, state.live))

    def _numbers(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.NUMBERS}

    def _go_on(self, numbers: Mapping[str, int]) -> Self:
        for name in self.NUMBERS:
            setattr(self, name, numbers[name])
        return self
