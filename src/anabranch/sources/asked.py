"""Whether a workload can be generated as asked; if not, a `UsageError` that names the options.

Nothing is silently changed to fit: two options that contradict each other are both named.
"""

from typing import TYPE_CHECKING

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase

if TYPE_CHECKING:
    from anabranch.sources.generate import Workload

IN_ORDER = (MergeCase.R0, MergeCase.R1, MergeCase.R2)
LONGEST = 2**60


def check_asked(workload: "Workload") -> None:
    """Every number within its range, and no two options against each other."""
    _check_ranges(workload)
    _check_shares(workload)
    _check_case_options(workload)
    _check_case_is_possible(workload)


def _refuse(message: str) -> None:
    raise UsageError(message)


def _check_ranges(workload: "Workload") -> None:
    least = {
        "events": (workload.events, 1),
        "replicas": (workload.replicas, 1),
        "duration": (workload.lifetime, 1),
        "max-gap": (workload.max_gap, 1 if workload.case is MergeCase.R0 else 0),
        "bound": (workload.reach, 1),
        "payload-bytes": (workload.payload_bytes, 0),
        "seed": (workload.seed, 0),
    }
    for name, (value, minimum) in least.items():
        if value < minimum:
            case = f" for case {workload.case.value}" if name == "max-gap" else ""
            _refuse(f"--{name} is {value}; it must be at least {minimum}{case}")
    if workload.payload_bytes > 2**15 - 1:
        _refuse(f"--payload-bytes is {workload.payload_bytes}; it must be at most {2**15 - 1}")
    span = workload.events * workload.max_gap + 2 * workload.lifetime + workload.reach
    if abs(workload.first) + span >= LONGEST:
        _refuse(
            f"{workload.events} events with --max-gap {workload.max_gap} and --duration "
            f"{workload.lifetime} do not fit into 64 bit times; make one of them smaller"
        )


def _check_shares(workload: "Workload") -> None:
    shares = {
        "disorder": workload.disorder,
        "revisions": workload.revisions,
        "duplicates": workload.duplicates,
        "gap-rate": workload.gap_rate,
    }
    for name, share in shares.items():
        if share is not None and not 0 <= share <= 1:
            _refuse(f"--{name} is {share}; it is a share, from 0 to 1")
    if not 0 <= workload.stable_freq <= 0.5:
        _refuse(
            f"--stable-freq is {workload.stable_freq}; it must be from 0 to 0.5, since there "
            "is an insert between any two stables"
        )


def _check_case_options(workload: "Workload") -> None:
    case = workload.case
    if case in IN_ORDER:
        for name, share in (("disorder", workload.disorder), ("revisions", workload.revisions)):
            if share:
                _refuse(
                    f"--case {case.value} and --{name} {share} contradict each other: such "
                    f"streams are in order and have only inserts; drop --{name}, or ask for "
                    "--case r3"
                )
    if workload.duplicates is not None and case is not MergeCase.R4:
        _refuse(
            f"--case {case.value} and --duplicates {workload.duplicates} contradict each "
            "other: only r4 repeats an identity; drop --duplicates, or ask for --case r4"
        )
    if workload.gap_rate and case is MergeCase.R1:
        _refuse(
            f"--case r1 and --gap-rate {workload.gap_rate} contradict each other: R1 compares "
            "positions among equal starts, and a gap shifts them; ask for --case r2"
        )
    if workload.gap_rate and workload.replicas == 1:
        _refuse(
            f"--gap-rate {workload.gap_rate} and --replicas 1 contradict each other: the first "
            "replica is complete; ask for more replicas"
        )


def _check_case_is_possible(workload: "Workload") -> None:
    case, events = workload.case, workload.events
    need = {MergeCase.R1: 2, MergeCase.R2: 2, MergeCase.R4: 2}.get(case, 1)
    why = (
        "two events with one identity" if case is MergeCase.R4 else "two events with one start"
    )
    if events < need:
        _refuse(
            f"--events {events} cannot show --case {case.value}: it takes {why}; ask for more"
        )
    if case is MergeCase.R2 and workload.replicas < 2:
        _refuse(
            "--replicas 1 cannot show --case r2: it takes two replicas that order equal starts "
            "differently; ask for more, or for --case r1"
        )
    if case not in IN_ORDER and workload.revision_share == 0:
        _check_disorder_is_possible(workload)
    if workload.disorder_share > 0 and workload.reach <= workload.max_gap > 0:
        _refuse(
            f"--bound {workload.reach} and --max-gap {workload.max_gap} leave no room for "
            f"--disorder {workload.disorder_share}: nothing can be overtaken; raise --bound "
            "above --max-gap"
        )


def _check_disorder_is_possible(workload: "Workload") -> None:
    """Without revisions, only disorder tells R3 and R4 from a cheaper case."""
    case = workload.case.value
    if workload.disorder_share == 0:
        _refuse(
            f"--case {case} with --disorder 0 and --revisions 0 would be a cheaper case; "
            "raise one of them, or ask for --case r2"
        )
    need = 3 if workload.case is MergeCase.R4 else 2
    if workload.events < need or workload.max_gap == 0:
        _refuse(
            f"--events {workload.events} with --max-gap {workload.max_gap} cannot be in "
            f"disorder, which --case {case} needs without --revisions; it takes {need} events "
            "and a gap"
        )
