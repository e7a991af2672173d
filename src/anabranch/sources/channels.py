"""The channels of an output: kinds of rows, and the folder of each."""

from typing import Final

ELEMENTS: Final = "elements"
"""The output stream: sorted by `seq` it is a valid physical stream."""
CHANGES: Final = "changes"
"""The output stream as change rows."""
FINAL: Final = "final"
"""Events that nothing can change any more, each once."""
LATE: Final = "late"
"""Elements that came too late."""
VIOLATIONS: Final = "violations"
"""Elements that broke a promise, and rows that are not elements."""
ROWS: Final = "rows"
"""Rows of an operator whose output is not a stream of elements."""
PROGRESS: Final = "progress"
"""One record per lane and trigger."""
