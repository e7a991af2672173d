"""Settings that a run changes in place: the policy of a merge, with `gaps`, `wait`, `remember`.

A change is an entry of the control log, so it takes effect in all lanes in the same trigger:
one that has begun ends with the settings that it began with, and one that is repeated decides
as before.  The log is written first, then the record of the run: a process that is killed
between the two has made the change, and the next start completes the record from the log.

`violations` is no such setting: nothing that is remembered depends on it, and a trigger that
failed because of it must be repeated with another.  It takes effect at a start.
"""

from dataclasses import dataclass, replace

from anabranch.errors import StateError, UsageError
from anabranch.operators.merge.policy import DEFAULT, Policy
from anabranch.spark.checkpoint.control_log import ControlLog
from anabranch.spark.checkpoint.run_record import Run


@dataclass(frozen=True)
class Changed:
    """A policy that replaces another one, from a trigger on."""

    was: str
    now: str
    trigger: int

    def __str__(self) -> str:
        return f"policy changes from {self.was} to {self.now} at trigger {self.trigger}"


def lasting(policy: str) -> str:
    """A policy without `violations`, as the control log has it."""
    return str(replace(Policy.parse(policy), violations=DEFAULT.violations))


def with_changes(run: Run, log: ControlLog) -> Run:
    """The run with all changes of its log: its record may lack the last."""
    if not log.settings:
        return run
    violations = Policy.parse(run.policy).violations
    last = replace(Policy.parse(log.settings[-1][1]), violations=violations)
    return replace(run, policy=str(last), settings=(run.settings[0], *log.settings))


def require_changeable(found: Run, wanted: Run, place: str) -> None:
    """Reject another policy where there is no control log that could change it."""
    was, now = lasting(found.policy), lasting(wanted.policy)
    if was != now:
        message = (
            f"{place}: this run has the policy {was}, now it is asked to go on with {now}; a "
            "change of the policy needs a control log, which only a checkpoint on a local path "
            "has; keep the policy, or start a new run with another checkpoint"
        )
        raise StateError(message)


def change(run: Run, log: ControlLog, taken: int, *, begun: int, committed: int) -> Run:
    """Write the run's policy into the log, if another one counts; the run with its settings.

    `taken` is the last entry that a committed trigger took; each trigger takes one file.
    """
    now = lasting(run.policy)
    if run.settings[-1][1] == now:
        return run
    log.refresh()
    trigger = max(begun + 1, committed + 1 + log.waiting(taken))
    log.change(now, trigger)
    return replace(run, settings=(*run.settings, (trigger, now)))


def last_change(before: Run, after: Run) -> Changed | None:
    """What the last change was, if there was one."""
    if before.settings == after.settings:
        return None
    trigger, now = after.settings[-1]
    return Changed(before.settings[-1][1], now, trigger)


def with_violations(given: str | Policy, kept: Policy) -> Policy:
    """A policy with the `violations` of the run: that of a query that runs cannot change."""
    policy = Policy.parse(given) if isinstance(given, str) else given
    if policy.violations not in (kept.violations, DEFAULT.violations):
        message = (
            f"change: violations={policy.violations} takes effect only at a start; stop the "
            "query, and start it again with that policy"
        )
        raise UsageError(message)
    return replace(policy, violations=kept.violations)
