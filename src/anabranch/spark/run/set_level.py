"""Another level of consistency for a query while it runs: an entry in the control log.

It takes effect in all lanes in one trigger, and means the same when the trigger is repeated.
Steps keep what they hold and remember, and no frontier goes back.
"""

from dataclasses import replace

from anabranch.errors import UsageError
from anabranch.offered import Offered
from anabranch.operators.waiting.level import Level, Release
from anabranch.plan.consistency import in_words, paced
from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.query.levels import Name, level_given
from anabranch.spark.query.planned import Planned
from anabranch.spark.run.prepare import Prepared


class SetsLevel(Offered):
    """A running query whose level can be set."""

    _prepared: Prepared

    def _writable(self) -> ControlLog:
        """The control log, if it can be written."""
        raise NotImplementedError

    def set_consistency(
        self,
        name: "Name | None" = None,
        *,
        wait: str | int | None = None,
        wait_wall: str | None = None,
        remember: str | int | None = None,
    ) -> None:
        """Wait and remember by another level from the next trigger on, as `Query.consistency`.

        What was emitted stays, and is corrected; what is held is released by the new level.
        Results of aggregates keep the way to emit that the query was started with.
        """
        planned, log = self._prepared.merged, self._writable()
        if not isinstance(planned, Planned) or planned.level is None:
            message = (
                "set_consistency: this query was started without a level, and has no step that "
                "waits or forgets; start it with a level, such as consistency('middle')"
            )
            raise UsageError(message)
        level = level_given(planned.last, name, wait, wait_wall, remember)
        _require_same_plan(planned, planned.level, level)
        replace(planned, level=level).require_stables()
        log.set_level(str(level))


def _require_same_plan(planned: Planned, known: Level, level: Level) -> None:
    """Reject a level for which the steps would have to be others."""
    time = planned.schema.time
    if known.release is not level.release:
        final = known if known.release is Release.FINAL else level
        message = (
            f"set_consistency: '{in_words(final, time)}' releases final events only, which is "
            "another state; start a new run with it"
        )
        raise UsageError(message)
    is_timed = any(one.needs_time for one in paced(planned.last))
    if level.wait_wall is not None and not is_timed:
        message = (
            "set_consistency: wait_wall= needs the time of each trigger, and this query was "
            "started without; start it with consistency(wait_wall=...)"
        )
        raise UsageError(message)
