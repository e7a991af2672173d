"""A function as a sink: called with the rows of a trigger and its id."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FunctionSink:
    """Calls a function with a DataFrame and the trigger's id, again with both if repeated.

    Whoever keys what it writes by the id writes exactly once.
    """

    function: Callable[[Any, int], None]
    folder: None = None

    def open(self, run: str) -> None:
        """Nothing to prepare."""

    def write(self, trigger: int, rows: Any, files: Mapping[str, int]) -> None:  # noqa: ARG002
        """Hand over the rows."""
        self.function(rows, trigger)

    def commit(self, trigger: int) -> None:
        """The function has made its rows visible itself."""

    def committed(self, trigger: int) -> None:
        """Nothing is kept for a repetition."""
