"""Duplicates inside one copy: their text in `explain`, and a warning with their count.

Plain rows without a key are events, each of them: a row that comes twice in one copy is two
events of the output.  That is right for some streams and an accident in most, so it is counted
per replica (`duplicates` in progress records), explained, and logged with the call that removes
them.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from anabranch.operators.key import Key
    from anabranch.spark.progress import Totals

log = logging.getLogger(__name__)

CALL: Final = "ab.events(..., key=[COLUMNS], duplicates='drop')"
"""What removes duplicates of plain rows."""


def explain_duplicates(key: "Key | None", *, plain: bool) -> list[str]:
    """What is done with a second row of one event; `plain`: rows are events, not elements."""
    if key is None:
        kept = f"duplicates inside one copy: kept and counted; {CALL} removes them"
        return [kept] if plain else []
    fate = "dropped and counted" if key.drops else "a violation"
    return [
        f"key: {', '.join(key.names)}; a second event of a key in one copy is {fate}",
        "remembers each key until all replicas' stables have passed the end of its event",
    ]


@dataclass
class DuplicateWarner:
    """Logs how many duplicates are kept: the first ones, and each time they have doubled.

    It is on for plain rows without a key: in the element format a repeated row is an event.
    """

    is_on: bool
    logged: int = 0

    def warn(self, totals: "Totals") -> None:
        """Log the counts, if they are news."""
        count = totals.duplicates
        if self.is_on and count and count >= 2 * self.logged:
            self.logged = count
            log.warning("%s", kept_text(totals.duplicates_by_replica))


def kept_text(counts: "dict[str, int]") -> str:
    """The warning that plain rows came twice in one copy, and were kept."""
    listed = ", ".join(f"{count:,} in '{name}'" for name, count in sorted(counts.items()))
    return (
        f"{sum(counts.values()):,} rows repeat an event that their copy has already "
        f"({listed}), and are kept as events of their own; if they are duplicates, {CALL} "
        "removes them"
    )
