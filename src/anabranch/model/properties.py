"""Declared properties of a stream, and the merge case that they permit.

A property is a promise about *every* prefix of every replica.  The more is promised, the
cheaper the merge: R0 remembers one time, R1 a counter per replica, R2 the events of one start,
R3 an entry per live identity, R4 a list per live identity.  Nothing promised means R4.

Papers: LMerge III-C (R0 to R4) and IV-G.

>>> properties = StreamProperties(insert_only=True, ordered=True)
>>> cheapest(properties), missing_for(properties, MergeCase.R2)
(MergeCase.R4, ('keyed',))
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from itertools import pairwise
from typing import Final

from anabranch.errors import SchemaError
from anabranch.model.element import Adjust, Element, Event, Insert
from anabranch.model.history import replays
from anabranch.model.time import Time


class MergeCase(Enum):
    """The merge algorithms, cheapest first."""

    R0 = "r0"
    R1 = "r1"
    R2 = "r2"
    R3 = "r3"
    R4 = "r4"

    def __repr__(self) -> str:
        return f"MergeCase.{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamProperties:
    """Promises about a stream; what one implies is set with it.

    * `insert_only`: no adjusts.
    * `ordered`: the starts of inserts never decrease.
    * `strictly_increasing`: they always increase; implies `ordered`, and the next two.
    * `ties_in_same_order`: among inserts with the same start, the k-th is the same event in
      every replica that has a k-th.  A replica that leaves one out in the middle breaks this:
      merge case R1 compares positions (erratum L6).
    * `keyed`: in every prefix an identity (start, payload) names at most one event.
    """

    insert_only: bool = False
    ordered: bool = False
    strictly_increasing: bool = False
    ties_in_same_order: bool = False
    keyed: bool = False

    def __post_init__(self) -> None:
        if self.strictly_increasing:
            for name in ("ordered", "ties_in_same_order", "keyed"):
                object.__setattr__(self, name, True)

    def to_dict(self) -> dict[str, bool]:
        """For `_replica.json`."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, object], *, where: str) -> "StreamProperties":
        """Read what `to_dict` wrote; `where` (a file, a step) goes into the error.

        >>> StreamProperties.from_dict({"keyed": True}, where="_replica.json").keyed
        True
        """
        for name, value in data.items():
            if name not in PROPERTIES or not isinstance(value, bool):
                message = (
                    f"{where}: property {name!r} is {value!r}; properties are "
                    f"{', '.join(PROPERTIES)}, each true or false; correct or remove it"
                )
                raise SchemaError(message)
        return cls(**{name: bool(value) for name, value in data.items()})


PROPERTIES: Final = tuple(field.name for field in fields(StreamProperties))
"""The names of all properties."""

REQUIRED: Final[Mapping[MergeCase, tuple[str, ...]]] = {
    MergeCase.R0: ("insert_only", "strictly_increasing"),
    MergeCase.R1: ("insert_only", "ordered", "ties_in_same_order"),
    MergeCase.R2: ("insert_only", "ordered", "keyed"),
    MergeCase.R3: ("keyed",),
    MergeCase.R4: (),
}
"""What each case needs of its inputs."""


def missing_for(properties: StreamProperties, case: MergeCase) -> tuple[str, ...]:
    """The properties that would have to hold too before this case may be used."""
    return tuple(name for name in REQUIRED[case] if not getattr(properties, name))


def permits(properties: StreamProperties, case: MergeCase) -> bool:
    """Whether this case is right for such streams."""
    return not missing_for(properties, case)


def cheapest(properties: StreamProperties) -> MergeCase:
    """The first case that is right for such streams."""
    return next(case for case in MergeCase if permits(properties, case))


def shared(several: Iterable[StreamProperties]) -> StreamProperties:
    """What holds for each of these; nothing, if there are none.

    >>> ordered, keyed = StreamProperties(ordered=True), StreamProperties(keyed=True)
    >>> shared([ordered, keyed]) == StreamProperties()
    True
    """
    known = list(several)
    holds = {name: all(getattr(one, name) for one in known) for name in PROPERTIES}
    return StreamProperties(**holds) if known else StreamProperties()


def positions_agree(properties: StreamProperties) -> bool:
    """Whether the n-th insert is the same in all replicas, whatever starts are grouped as one.

    `ties_in_same_order` is about all replicas together, so where starts that differed become
    equal it needs `insert_only` too: an event that one replica inserts and removes again would
    shift the positions of all that follow it there.
    """
    return properties.ordered and properties.ties_in_same_order and properties.insert_only


def observe(streams: Sequence[Sequence[Element]]) -> StreamProperties:
    """What these prefixes of replicas have in common.

    A measurement, not a promise: the next element may break it.  One stream alone shows nothing
    about `ties_in_same_order` across replicas, and is taken to agree with itself.
    """
    starts = [[e.start for e in stream if isinstance(e, Insert)] for stream in streams]
    ordered = all(a <= b for one in starts for a, b in pairwise(one))
    return StreamProperties(
        insert_only=not any(isinstance(e, Adjust) for stream in streams for e in stream),
        ordered=ordered,
        strictly_increasing=all(a < b for one in starts for a, b in pairwise(one)),
        ties_in_same_order=ordered and _ties_agree(streams),
        keyed=all(prefix.history.is_keyed for stream in streams for prefix in replays(stream)),
    )


def _ties_agree(streams: Sequence[Sequence[Element]]) -> bool:
    longest: dict[Time, list[Event]] = {}
    for stream in streams:
        for start, group in _groups(stream).items():
            known = longest.get(start, [])
            common = min(len(known), len(group))
            if known[:common] != group[:common]:
                return False
            longest[start] = max(known, group, key=len)
    return True


def _groups(stream: Sequence[Element]) -> dict[Time, list[Event]]:
    groups: dict[Time, list[Event]] = {}
    for element in stream:
        if isinstance(element, Insert):
            groups.setdefault(element.start, []).append(element.event)
    return groups
