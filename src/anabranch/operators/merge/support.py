"""Which merge case has which choices of a policy: asked when a merge is built, never later.

* R3 has all of them: the two places of LMerge V-A at which a merge may wait or hurry (when an
  event comes, when an end changes) are those of Algorithm R3, with one event per identity.
* R4 has `violations`, `shrink_only`, `stable_lag` and `promote`: with several events per
  identity it would first have to be said which of them an adjust shows, or a vote is about.
* R0 to R2 have `violations`, `stable_lag` and `promote`: they emit at once, and what they emit
  never changes.

A stream that declares nothing is merged as R4 (it may have to be), so it has R4's choices.

Papers: LMerge V-A, V-B.

>>> supports(MergeCase.R3, Policy.parse("adjusts=always"))
True
>>> unsupported(MergeCase.R4, Policy.parse("adjusts=always,shrink_only=true"))
('adjusts=always',)
"""

from collections.abc import Mapping
from typing import Final

from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.merge.choose import Choice
from anabranch.operators.merge.policy import DEFAULT, Policy

_ORDERED: Final = frozenset({"violations", "stable_lag", "promote"})

CHOICES: Final[Mapping[MergeCase, frozenset[str]]] = {
    MergeCase.R0: _ORDERED,
    MergeCase.R1: _ORDERED,
    MergeCase.R2: _ORDERED,
    MergeCase.R3: frozenset(DEFAULT.to_dict()),
    MergeCase.R4: _ORDERED | {"shrink_only"},
}
"""What each case lets one choose."""

_WHY: Final[Mapping[MergeCase, str]] = {
    **dict.fromkeys(
        (MergeCase.R0, MergeCase.R1, MergeCase.R2),
        "it emits each event at once and never changes it",
    ),
    MergeCase.R4: "with several events per identity V-A does not say which one is meant",
}


def _listed(names: list[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def unsupported(case: MergeCase, policy: Policy) -> tuple[str, ...]:
    """The choices of this policy that this case has not, as they are written."""
    default = DEFAULT.to_dict()
    return tuple(
        f"{choice}={str(value).lower() if isinstance(value, bool) else value}"
        for choice, value in policy.to_dict().items()
        if value != default[choice] and choice not in CHOICES[case]
    )


def supports(case: MergeCase, policy: Policy) -> bool:
    """Whether this case has all choices of this policy."""
    return not unsupported(case, policy)


def require_support(case: MergeCase, policy: Policy) -> None:
    """Refuse a policy that this case has not, by its choices.

    >>> require_support(MergeCase.R4, Policy.parse("shrink_only=true"))
    """
    missing = unsupported(case, policy)
    if missing:
        message = (
            f"merge: case {case.name} has no {', '.join(missing)}: {_WHY[case]}; these are "
            f"choices of case R3: ask for it (--case r3) if identities are unique in every "
            f"replica, or leave them out ({case.name} has "
            f"{_listed(sorted(CHOICES[case]))})"
        )
        raise UsageError(message)


def require_choice(choice: Choice, policy: Policy) -> None:
    """The same for a case that was chosen: says how to come to one that has the policy."""
    missing = unsupported(choice.case, policy)
    if missing and choice.case is MergeCase.R4 and not choice.was_asked:
        message = (
            f"merge: {', '.join(missing)} needs case R3, but {choice.reason}, and case R4 "
            "does not support it; declare keyed for every replica, or ask for case R3 "
            "(--case r3), if identities are unique in every replica"
        )
        raise UsageError(message)
    require_support(choice.case, policy)
