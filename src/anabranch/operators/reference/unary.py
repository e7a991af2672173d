"""The promises of a stream that an element may break, for the references of one input."""

from collections.abc import Mapping

from anabranch.model.element import Adjust, Event, Insert
from anabranch.model.frozen import may_adjust, may_insert
from anabranch.model.history import Reason
from anabranch.model.time import Time


def refuse(
    element: Insert | Adjust, live: Mapping[Event, int], *, frontier: Time
) -> Reason | None:
    """The promise that an element breaks, as `model.history.replay` has it.

    `live` needs to hold only what is not frozen: an adjust of anything else is behind.
    """
    if element.end < element.start:
        return Reason.BACKWARDS
    if element.changes_nothing:
        return None
    if isinstance(element, Insert):
        return None if may_insert(element.start, frontier=frontier) else Reason.BEHIND_STABLE
    if not may_adjust(element.old_end, element.end, frontier=frontier):
        return Reason.BEHIND_STABLE
    there = not element.old_event.is_empty and live.get(element.old_event, 0) > 0
    return None if there else Reason.NO_SUCH_EVENT
