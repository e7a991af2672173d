"""Who may take part in a step: everything that can be refused is refused before any change."""

from collections.abc import Sequence
from typing import Protocol

from anabranch.batch.schema import ElementSchema
from anabranch.errors import SchemaError, UsageError
from anabranch.operators.contract import Arrival
from anabranch.operators.merge.members import Members


class Merging(Protocol):
    """The state of a merge of any case."""

    schema: ElementSchema
    members: Members

    def attach(self, name: str, *, attachment: int = ..., guarantee: int | None = ...) -> int:
        """The row of this attachment."""


class Described(Protocol):
    """The schema and the replicas of a merge."""

    schema: ElementSchema
    members: Members


def admit(state: Merging, arrivals: Sequence[Arrival]) -> None:
    """Attach the replicas that are new; the state is unchanged if this raises."""
    require_arrivals(state, arrivals)
    for arrival in arrivals:
        state.attach(arrival.input, attachment=arrival.attachment, guarantee=arrival.guarantee)


def require_arrivals(state: Described, arrivals: Sequence[Arrival]) -> None:
    """Refuse arrivals with other columns, two attachments of a replica, or seq in part."""
    attachments: dict[str, int] = {}
    for arrival in arrivals:
        _require_schema(state, arrival)
        state.members.row_of_attachment(arrival.input, arrival.attachment)
        number = attachments.setdefault(arrival.input, arrival.attachment)
        if number != arrival.attachment:
            message = (
                f"merge: replica '{arrival.input}' arrives with the attachments {number} and "
                f"{arrival.attachment} in one step; a step has one attachment of a replica, "
                "give the second one in a step of its own"
            )
            raise UsageError(message)
    if len({arrival.batch.seq is None for arrival in arrivals if len(arrival.batch)}) > 1:
        without = [a.input for a in arrivals if len(a.batch) and a.batch.seq is None]
        message = (
            f"merge: the replicas {without} have no seq and the others of this step have; "
            "give all of them a seq, or none"
        )
        raise SchemaError(message)


def _require_schema(state: Described, arrival: Arrival) -> None:
    theirs, ours = arrival.batch.schema, state.schema
    if theirs.time is not ours.time or theirs.payload != ours.payload:
        message = (
            f"merge: replica '{arrival.input}' has {theirs.time.value} times and the payload "
            f"{_show(theirs.payload)}, the merge has {ours.time.value} times and "
            f"{_show(ours.payload)}; all replicas of a merge have the same columns, cast them"
        )
        raise SchemaError(message)


def _show(payload: object) -> str:
    return "(" + str(payload).replace("\n", ", ") + ")"
