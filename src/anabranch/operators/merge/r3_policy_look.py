"""How the compiled merge R3 asks its policy: whom it asks, and what that means for an event.

As `r3_view` and `MergeR3._look`, which say what is right.  The view is kept in `numbers` and
VOTES.  While it stays the same only an event that a replica speaks of is looked at; when it
changes, all that are held back are, or all if ends are followed.

Papers: LMerge V-A, locations 1 and 2.
"""

from typing import Any, Final

from anabranch.batch.batch import NEVER_UNITS
from anabranch.batch.kernel import kernel, part
from anabranch.operators.merge.r3_nodes import CONFLICT, ENDS, FLAGS, OUT
from anabranch.operators.merge.r3_policy_due import peek_due
from anabranch.operators.merge.r3_policy_said import follow, is_held, show
from anabranch.operators.merge.r3_policy_table import (
    ADJUSTS,
    ALL,
    ALWAYS,
    ATTACHED,
    CHOSEN,
    FIRST,
    FOLLOW,
    FOLLOW_LEADER,
    FOLLOWED,
    FREE,
    FRONTIER,
    HALF_FROZEN,
    HEAD,
    HIGHEST,
    HIGHEST_START,
    INSERTS,
    MOST_FREE,
    NAMED,
    NEXT,
    OUTPUT,
    QUORUM,
    SHRINK_ONLY,
    SILENT,
    SURE,
    VIEW_FRONTIER,
    VISITS,
    VOTES,
    WAITING,
    WITHDRAWN,
    is_joined,
)
from anabranch.operators.merge.slots import NOBODY, START

# What has changed in a view: nothing, only how far the chosen one is, or whom to ask.
_THE_SAME: Final = 0
_FURTHER: Final = 1
_ANOTHER: Final = 2


@part
def best_of(table: Any, column: Any, before: Any) -> Any:
    """The joined replica with the greatest number; of equals the one before, else the first."""
    best = NOBODY
    for replica in range(table.control.shape[0]):
        if is_joined(table, replica) and (
            best == NOBODY or table.control[replica, column] > table.control[best, column]
        ):
            best = replica
    if NOBODY in (best, before) or not is_joined(table, before):
        return best
    return before if table.control[before, column] >= table.control[best, column] else best


@part
def whom_to_follow(table: Any) -> Any:
    """Whose ends the output takes on."""
    if table.choice[ADJUSTS] == FOLLOW_LEADER:
        return best_of(table, FRONTIER, table.numbers[FOLLOWED])
    named = table.choice[NAMED]
    if table.choice[ADJUSTS] == FOLLOW and named != NOBODY and is_joined(table, named):
        return named
    return NOBODY


@part
def whom_to_choose(table: Any) -> Any:
    """Who brings events."""
    inserts, before = table.choice[INSERTS], table.numbers[CHOSEN]
    if inserts in (FIRST, QUORUM):
        return NOBODY
    if inserts == HIGHEST_START:
        return best_of(table, HIGHEST, before)
    if inserts == MOST_FREE:
        return best_of(table, FREE, before)
    return best_of(table, FRONTIER, before)


@part
def renew_voters(table: Any) -> Any:
    """Let the joined replicas vote; whether they are others than before."""
    if table.choice[INSERTS] != QUORUM:
        return False
    changed = False
    for replica in range(table.control.shape[0]):
        votes = 1 if is_joined(table, replica) else 0
        if table.control[replica, VOTES] != votes:
            table.control[replica, VOTES] = votes
            changed = True
    return changed


@part
def renew(table: Any) -> Any:
    """Look whom the policy asks now; what has changed."""
    numbers = table.numbers
    followed, chosen = whom_to_follow(table), whom_to_choose(table)
    frontier = NEVER_UNITS if followed == NOBODY else numbers[OUTPUT]
    sure = NEVER_UNITS
    if chosen != NOBODY and table.choice[INSERTS] == HALF_FROZEN:
        sure = table.control[chosen, FRONTIER]
    changed = (
        numbers[FOLLOWED] != followed
        or numbers[CHOSEN] != chosen
        or numbers[VIEW_FRONTIER] != frontier
    )
    moved = numbers[SURE] != sure
    numbers[FOLLOWED], numbers[CHOSEN] = followed, chosen
    numbers[SURE], numbers[VIEW_FRONTIER] = sure, frontier
    if renew_voters(table) or changed:
        return _ANOTHER
    return _FURTHER if moved else _THE_SAME


@part
def has(table: Any, node: Any, replica: Any) -> Any:
    """Whether this replica has the event."""
    return table.rows[node, ENDS + replica] > table.rows[node, START]


@part
def first_having(table: Any, node: Any) -> Any:
    """The first replica that has the event."""
    for replica in range(table.control.shape[0]):
        if has(table, node, replica):
            return replica
    return NOBODY


@part
def elected(table: Any, node: Any, speaker: Any) -> Any:
    """Who brings an event for which enough replicas vote; NOBODY if too few do."""
    votes, voters, first = 0, 0, NOBODY
    for replica in range(table.control.shape[0]):
        if table.control[replica, VOTES]:
            voters += 1
            if has(table, node, replica):
                votes += 1
                if first == NOBODY:
                    first = replica
    if votes < table.needed[voters]:
        return NOBODY
    return speaker if speaker != NOBODY and table.control[speaker, VOTES] else first


@part
def allowed(table: Any, node: Any, speaker: Any) -> Any:
    """Who may bring an event that is not on the output; NOBODY while it must wait."""
    inserts, chosen = table.choice[INSERTS], table.numbers[CHOSEN]
    if inserts == FIRST:
        return first_having(table, node) if speaker == NOBODY else speaker
    if inserts == QUORUM:
        return elected(table, node, speaker)
    if inserts == HALF_FROZEN and table.rows[node, START] >= table.numbers[SURE]:
        return NOBODY
    return chosen if chosen != NOBODY and has(table, node, chosen) else NOBODY


@part
def bring(table: Any, node: Any, speaker: Any) -> None:
    """Bring an event to the output, if the policy lets somebody."""
    start, followed = table.rows[node, START], table.numbers[FOLLOWED]
    if followed != NOBODY and table.rows[node, ENDS + followed] == start:
        return
    if speaker != NOBODY and not has(table, node, speaker):
        speaker = NOBODY
    if table.rows[node, FLAGS] & WITHDRAWN and speaker == NOBODY:
        return
    one = allowed(table, node, speaker)
    if one == NOBODY:
        return
    # An event that cannot be removed again must not be shown too short for shrink_only: only
    # the one in which it is half frozen knows that its end will not be longer.
    lasting = table.choice[SHRINK_ONLY] and table.choice[INSERTS] == HALF_FROZEN
    giver = one
    if followed != NOBODY and not lasting and has(table, node, followed):
        giver = followed
    credit = speaker if speaker != NOBODY and is_held(table, node, speaker) else one
    show(table, node, table.rows[node, ENDS + giver], credit)


@part
def look_at(table: Any, node: Any, speaker: Any, old_end: Any, end: Any) -> None:
    """Let the policy see one event; an adjust of it has two different ends, else they are 0."""
    followed = table.numbers[FOLLOWED]
    if table.rows[node, OUT] == NEVER_UNITS:
        bring(table, node, speaker)
    elif followed != NOBODY:
        said = table.rows[node, ENDS + followed]
        if said != NEVER_UNITS:
            follow(table, node, said, followed, end > old_end)
    elif (
        table.choice[ADJUSTS] == ALWAYS
        and old_end != end
        and min(old_end, end) >= table.numbers[OUTPUT]
    ):
        follow(table, node, end, speaker, end > old_end)


@kernel
def look(table: Any, node: Any, speaker: Any, old_end: Any, end: Any) -> None:
    """Let the policy see what a replica said of an event; if its view changed, all events."""
    news = renew(table)
    if news == _FURTHER and table.choice[ADJUSTS] < FOLLOW_LEADER:
        count = peek_due(table, table.numbers[SURE])
        for k in range(count):
            look_anew(table, table.due[k], node)
    elif news != _THE_SAME:
        row = WAITING if table.choice[ADJUSTS] < FOLLOW_LEADER else ALL
        other = table.numbers[HEAD + row]
        while other != NOBODY:
            # It may come to the output, and wait no longer.
            behind = table.book[other, NEXT + row]
            look_anew(table, other, node)
            other = behind
    if node != NOBODY:
        look_at(table, node, speaker, old_end, end)


@part
def look_anew(table: Any, node: Any, spoken_of: Any) -> None:
    """Let the policy see an event of which nobody has spoken just now."""
    table.numbers[VISITS] += 1
    if node != spoken_of:
        look_at(table, node, NOBODY, 0, 0)


@part
def count_free(table: Any, node: Any, replica: Any, more: Any) -> None:
    """Count an event for a replica that has it, once more or less, if it is free."""
    if table.rows[node, START] >= table.numbers[OUTPUT] and has(table, node, replica):
        table.control[replica, FREE] += more


@part
def count_silent(table: Any, node: Any, replica: Any, more: Any) -> None:
    """Count an event for a replica without it, if it is half frozen and nobody denied it."""
    if (
        table.rows[node, START] < table.numbers[OUTPUT]
        and not table.rows[node, FLAGS] & CONFLICT
        and not has(table, node, replica)
    ):
        table.control[replica, SILENT] += more


@part
def attached(table: Any, replica: Any) -> Any:
    """Whether this replica may speak."""
    return replica != NOBODY and table.control[replica, ATTACHED] != 0


@part
def is_mute(table: Any, node: Any) -> Any:
    """Whether no replica speaks of this event."""
    for replica in range(table.control.shape[0]):
        if table.rows[node, ENDS + replica] != NEVER_UNITS:
            return False
    return True
