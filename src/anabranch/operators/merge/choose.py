"""Which merge case to use, why, and what would allow a cheaper one.

`choose` takes the cheapest case that is right for what every replica promises.  Promises are
declared by sources, enforced by operators such as cleanse, or inferred through a plan
(`Operator.properties`); a replica that declares nothing promises nothing.

* Where replicas may have gaps the case is R3 or R4: the others remember one start, so that
  what another copy brings behind it is late (errata L6, D4).
* Where identities need not be unique the case is R4, which costs what R3 does while they happen
  to be.
* Asking for a case is a declaration on behalf of replicas that declare nothing.  It does not
  overrule one that declares what it promises.

`WRONG` lists the effects of false declarations: which ones the merge detects, by which reason,
and which ones it cannot detect.

Papers: LMerge IV-G, V-C; errata X3, L6, D4, D20.

>>> choice = choose({"east": StreamProperties(keyed=True), "west": None})
>>> choice.case, choice.reason
(MergeCase.R4, "replica 'west' declares nothing, so identities may repeat")
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from anabranch.errors import UsageError
from anabranch.model.properties import (
    REQUIRED,
    MergeCase,
    StreamProperties,
    missing_for,
    shared,
)
from anabranch.operators.contract import Reason

NO_GAPS: Final = "no gaps"
"""What R0, R1 and R2 need beside properties: replicas that leave nothing out."""

ORDERED: Final = (MergeCase.R0, MergeCase.R1, MergeCase.R2)
"""The cases that remember one start."""

REMEMBERS: Final[Mapping[MergeCase, str]] = {
    MergeCase.R0: "the last event",
    MergeCase.R1: "the events of one start, counted per replica",
    MergeCase.R2: "the events of one start",
    MergeCase.R3: "an entry per event that may still change",
    MergeCase.R4: "an entry per identity that may still change, with all its ends",
}
"""What each case keeps in memory."""

Declared = Mapping[str, StreamProperties | None]
"""What each replica promises, by name; None: it declares nothing."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The case, the reason, and what each cheaper case still needs.

    `was_asked`: the user named the case.
    """

    case: MergeCase
    reason: str
    cheaper: tuple[tuple[MergeCase, tuple[str, ...]], ...] = ()
    was_asked: bool = False
    gaps_possible: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain values that JSON has."""
        return {
            "case": self.case.value,
            "reason": self.reason,
            "gaps_possible": self.gaps_possible,
            "cheaper": {case.value: list(missing) for case, missing in self.cheaper},
        }


@dataclass(frozen=True, slots=True)
class Detection:
    """What becomes of a declaration that is not true; `reasons` is empty if nobody notices."""

    case: MergeCase
    declared: str
    reasons: tuple[Reason, ...]
    seen: str
    missed: str = ""


def _of_order(case: MergeCase, declared: str, *more: Reason) -> tuple[Detection, Detection]:
    order = "an insert of a replica that starts before an earlier one of it"
    if more:
        order += ", or when it does"
    return (
        Detection(case, "insert_only", (Reason.NOT_INSERT_ONLY,), "every adjust"),
        Detection(case, declared, (Reason.OUT_OF_ORDER, *more), order),
    )


def _of_gaps(case: MergeCase) -> Detection:
    missed = (
        "a gap looks like a replica that is ahead: what another brings behind the current "
        "start is late, whether the output has it or not"
    )
    return Detection(case, NO_GAPS, (), "nothing", missed)


WRONG: Final[tuple[Detection, ...]] = (
    *_of_order(MergeCase.R0, "strictly_increasing", Reason.SAME_START),
    _of_gaps(MergeCase.R0),
    *_of_order(MergeCase.R1, "ordered"),
    Detection(
        MergeCase.R1,
        "ties_in_same_order",
        (),
        "nothing",
        "does no harm: events of one start are counted, not their positions compared",
    ),
    _of_gaps(MergeCase.R1),
    *_of_order(MergeCase.R2, "ordered"),
    Detection(
        MergeCase.R2,
        "keyed",
        (Reason.SECOND_INSERT,),
        "a second insert of an event by one replica, at the output's current start",
        "behind the current start it is late, as a copy would be",
    ),
    _of_gaps(MergeCase.R2),
    Detection(
        MergeCase.R3,
        "keyed",
        (Reason.SECOND_INSERT,),
        "a second insert of an event by one replica, while the event may still change",
        "where the output is final already, it is absorbed as a copy",
    ),
    Detection(
        MergeCase.R3,
        NO_GAPS,
        (Reason.LATE, Reason.MISSED),
        "each element of an event that the deciding replica left out is late, by identity; "
        "a merge with gaps keeps it",
    ),
)
"""Per case and declaration: what is detected, and where it is not.  R4 needs none."""


def choose(
    replicas: Declared, *, gaps_possible: bool = False, asked: MergeCase | None = None
) -> Choice:
    """The case for these replicas; `gaps_possible`: one may lack what others have."""
    common = shared(known or StreamProperties() for known in replicas.values())
    needs = {case: _needs(common, case, gaps_possible=gaps_possible) for case in MergeCase}
    if asked is None:
        case = next(case for case in MergeCase if not needs[case])
        reason = _reason(replicas, case)
    else:
        _require(replicas, asked, gaps_possible=gaps_possible)
        case, reason = asked, _asked(replicas, asked)
    cheaper = [*MergeCase][: [*MergeCase].index(case)]
    needed = tuple((one, needs[one]) for one in cheaper)
    return Choice(case, reason, needed, asked is not None, gaps_possible)


def detections(case: MergeCase) -> tuple[Detection, ...]:
    """The lines of `WRONG` for one case."""
    return tuple(one for one in WRONG if one.case is case)


def explain_choice(choice: Choice) -> str:
    """The choice in words: which case, why, what a cheaper one needs, what is detected.

    >>> known = StreamProperties(insert_only=True, strictly_increasing=True)
    >>> print(explain_choice(choose({"east": known})))
    case R0: every replica promises insert_only and strictly_increasing
    remembers the last event
    wrong declarations:
      insert_only: detected (every adjust)
      strictly_increasing: detected (an insert of a replica that starts before an earlier one \
of it, or when it does)
      no gaps: not detected; a gap looks like a replica that is ahead: what another brings \
behind the current start is late, whether the output has it or not
    """
    lines = [
        f"case {choice.case.name}: {choice.reason}",
        f"remembers {REMEMBERS[choice.case]}",
    ]
    if choice.cheaper:
        lines.append("a cheaper case needs, of every replica:")
        lines += [_cheaper_line(case, missing) for case, missing in choice.cheaper]
    wrong = [_wrong_line(one) for one in detections(choice.case) if _concerns(one, choice)]
    return "\n".join([*lines, *(["wrong declarations:", *wrong] if wrong else [])])


def _needs(
    common: StreamProperties, case: MergeCase, *, gaps_possible: bool
) -> tuple[str, ...]:
    gap = (NO_GAPS,) if gaps_possible and case in ORDERED else ()
    return (*missing_for(common, case), *gap)


def _reason(replicas: Declared, case: MergeCase) -> str:
    if not replicas:
        return "there is no replica yet, so nothing is promised"
    if case is not MergeCase.R4:
        return f"every replica promises {listed(REQUIRED[case])}"
    silent = [name for name, known in replicas.items() if known is None]
    if silent:
        return f"{_declaring(silent)} nothing, so identities may repeat"
    unkeyed = [name for name, known in replicas.items() if known and not known.keyed]
    verb = "does" if len(unkeyed) == 1 else "do"
    return f"{_replicas(unkeyed)} {verb} not declare keyed, so identities may repeat"


def _asked(replicas: Declared, case: MergeCase) -> str:
    silent = [name for name, known in replicas.items() if known is None]
    if not silent or not REQUIRED[case]:
        return "it was asked for, and what the replicas promise permits it"
    needed = listed(REQUIRED[case])
    return (
        f"it was asked for; {_declaring(silent)} nothing, so {needed} is assumed, not verified"
    )


def _declaring(names: list[str]) -> str:
    return f"{_replicas(names)} {'declares' if len(names) == 1 else 'declare'}"


def _replicas(names: list[str]) -> str:
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"replica {quoted}" if len(names) == 1 else f"replicas {quoted}"


def _require(replicas: Declared, asked: MergeCase, *, gaps_possible: bool) -> None:
    """Refuse a case that some replica's own declaration does not permit, or that gaps break."""
    if gaps_possible and asked in ORDERED:
        message = (
            f"merge: case {asked.name} was asked for, but replicas may have gaps; it remembers "
            "one start, so what another copy brings behind it would be late; ask for R3 or R4, "
            "leave the choice to auto, or merge without gaps"
        )
        raise UsageError(message)
    for name, known in replicas.items():
        missing = () if known is None else missing_for(known, asked)
        if missing:
            message = (
                f"merge: case {asked.name} was asked for and needs {listed(REQUIRED[asked])}; "
                f"replica '{name}' does not declare {listed(missing)}; if it is true, add it "
                "to the replica's properties, else leave the choice to auto"
            )
            raise UsageError(message)


def listed(names: Sequence[str]) -> str:
    """The names as a part of a sentence."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _cheaper_line(case: MergeCase, missing: tuple[str, ...]) -> str:
    needs = listed(missing) if missing else "nothing more; another case was asked for"
    return f"  {case.name} (remembers {REMEMBERS[case]}): {needs}"


def _concerns(one: Detection, choice: Choice) -> bool:
    return one.declared != NO_GAPS or not choice.gaps_possible


def _wrong_line(one: Detection) -> str:
    if not one.reasons:
        return f"  {one.declared}: not detected; {one.missed}"
    missed = f"; not everywhere: {one.missed}" if one.missed else ""
    return f"  {one.declared}: detected ({one.seen}){missed}"
