"""The options of operators that change lifetimes, as case files write them.

    alter_lifetime    start `kept`, `shifted 3` or `rounded 10`; duration `kept`, `constant 5`,
                      `constant forever`, `lengthened 2` or `capped 4`
    hop               size and slide
    window            size, and perhaps slide, offset, gaps_between

>>> rule_of("alter_lifetime", {"start": "shifted -3", "duration": "capped 4"}).lifetimes(5, 15)
[[2, 6)]
>>> rule_of("window", {"size": 10}).lifetimes(5, 9)
[[0, 10)]
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from anabranch.errors import UsageError
from anabranch.model.lifetimes import (
    AlterLifetime,
    DurationCapped,
    DurationConstant,
    DurationKept,
    DurationLengthened,
    DurationRule,
    GridWindows,
    Hop,
    LifetimeRule,
    StartKept,
    StartRounded,
    StartRule,
    StartShifted,
)
from anabranch.model.time import FOREVER

_STARTS: Final[Mapping[str, Callable[..., StartRule]]] = {
    "kept": StartKept,
    "shifted": StartShifted,
    "rounded": StartRounded,
}
_DURATIONS: Final[Mapping[str, Callable[..., DurationRule]]] = {
    "kept": DurationKept,
    "constant": DurationConstant,
    "lengthened": DurationLengthened,
    "capped": DurationCapped,
}
_NAMES: Final = {
    "alter_lifetime": {"start", "duration"},
    "hop": {"size", "slide"},
    "window": {"size", "slide", "offset", "gaps_between"},
}


def rule_of(operator: str, options: Mapping[str, Any]) -> LifetimeRule:
    """The rule of an operator; `rule` may give it as it is."""
    rule: LifetimeRule | None = options.get("rule")
    if rule is not None:
        return rule
    unknown = sorted(options.keys() - _NAMES[operator])
    if unknown:
        known = ", ".join(sorted(_NAMES[operator]))
        message = f"engine: {operator} has no option {unknown[0]!r}; it has {known}"
        raise UsageError(message)
    if operator == "alter_lifetime":
        start = _parse(str(options.get("start", "kept")), _STARTS)
        return AlterLifetime(start, _parse(str(options.get("duration", "kept")), _DURATIONS))
    if operator == "hop":
        return Hop(options["size"], options["slide"])
    size = options["size"]
    return GridWindows(
        size,
        options.get("slide", size),
        offset=int(options.get("offset", 0)),
        gaps_between=bool(options.get("gaps_between", False)),
    )


def _parse(text: str, rules: Mapping[str, Callable[..., Any]]) -> Any:
    word, *numbers = text.split()
    if word not in rules:
        message = f"engine: {text!r} is no rule; rules are {', '.join(rules)}"
        raise UsageError(message)
    return rules[word](*(FOREVER if one == "forever" else int(one) for one in numbers))
