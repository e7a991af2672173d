"""The state of a merge in parts, so that a save writes only what changed since the last one.

    control      always: the replicas with the header, the list of blocks, an empty payload
    nodes/K      the rows with the numbers of block K, without their payloads
    payload/K    the payloads of that block; written only when a row got a number in it
    names/K      the names with the numbers of block K; never changed when full

A block without rows has no parts.  A part may hold more than is true (payloads of rows that
left, names that were forgotten): the control decides; see `operators.state.blocks`.

Of a row its end on the output is written as `lasts` after its start, and the end of the
attachment with serial 7 as `later_7` after that: events of a stream last equally long, more
often than not, and replicas agree, so that these take hardly any room when they are
compressed.  Differences wrap around, there and back.  The hash of a payload would take more
room than all of these; it is computed again.  A bag has its ends in the column `bag`: serial
(or -1 for the output), end and count of each.  A policy that holds inserts back adds what is
held.

What a save costs: control (about 100 bytes per block of 1,024 events) and the changed blocks.

For another number of lanes (`split`, `unite`) what a lane remembers of events goes to the lane
of each event, by identity.  What all lanes know (members, frontiers, the policy's view) stays
in every lane; of the last `seq` and the highest start of a replica, of which each lane knows
its own, the greatest counts: a replica has sent all before.  What lanes count by themselves
(conflicts) goes on in one of them.  The order in which events came to the output, and inserts
to be held back, is kept within each former lane; between two of them it never mattered.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import to_arrow
from anabranch.batch.columns import Column
from anabranch.batch.hashing import hash_columns, hash_rows
from anabranch.batch.index import HIGH, LOW, NOBODY, START
from anabranch.batch.schema import ElementSchema
from anabranch.batch.store import read_table
from anabranch.errors import UsageError
from anabranch.model.properties import MergeCase
from anabranch.operators.contract import Route
from anabranch.operators.merge.bags import Nodes, ends_of, fill_bags
from anabranch.operators.merge.govern import END, NUMBER, PER_REPLICA, View
from anabranch.operators.merge.layout import BAG, CONFLICT, ENDS, OUT, RANK, WITHDRAWN
from anabranch.operators.merge.members import Members, require_agreement
from anabranch.operators.merge.policy import Policy
from anabranch.operators.merge.state import MergeState
from anabranch.operators.route import lanes_of_names
from anabranch.operators.state.blocks import Blocks, InBlocks, Saved, read_blocks
from anabranch.operators.state.codec import StateKind, column_of, header_of, to_table
from anabranch.operators.state.events import ABSENT, FLAGS, LIVE
from anabranch.operators.state.final_names import END as FINAL_END
from anabranch.operators.state.final_names import FinalNames
from anabranch.operators.state.parts import Control, open_control, restore_names, save
from anabranch.operators.state.reshape import Reshape, reshaped

KIND: Final = StateKind("anabranch merge", version=3)

OUTPUT: Final = -1
"""Instead of a serial: the output."""
BAG_FIELD: Final = pa.field("bag", pa.list_(pa.int64()))
"""The column of tables in which some rows are bags."""


def write_parts(state: MergeState, since: int | None) -> Saved:
    """The parts that changed after the mark `since`, or all; and those that are gone."""
    nodes = state.nodes

    def tables(ids: Ints) -> tuple[pa.Table, ...]:
        return (node_table(state, ids),)

    held = InBlocks(nodes.blocks(), nodes.ids_in, tables, nodes.payload)
    return save(control_table(state), held, state.schema.payload, since, state.final_names)


def read_parts(parts: Mapping[str, bytes], schema: ElementSchema) -> MergeState:
    """The state that was saved last."""
    control = open_control(parts, KIND, schema)
    state = new_state(schema, control)
    blocks = read_blocks(parts, control.blocks, KIND)
    fill_rows(state, [(nodes, payload) for nodes, _, payload in blocks], control.empty)
    state.nodes.date(control.blocks)
    restore_names(state.final_names, parts, control, KIND)
    return state.restored()


def control_table(state: MergeState) -> pa.Table:
    """The replicas, with the header of the state."""
    header = KIND.header(
        time=state.schema.time.value,
        case=state.case.name,
        policy=json.dumps(state.lasting_policy.to_dict()),
        frontier=state.frontier,
        conflicts=state.conflicts,
        forgotten=state.forgotten,
        next_rank=state.next_rank,
        settled=state.final_names.first,
        mark=state.mark,
        next_number=state.next_number,
        view=json.dumps(state.view),
    )
    more = {"highest": state.highest} if state.is_governed else {}
    return state.members.table(header, **more)


def new_state(schema: ElementSchema, control: Control) -> MergeState:
    """A state without events, as the control describes it."""
    header, plain = control.header, replace(schema, has_seq=False, has_replica=False)
    members = Members.read(control.head, header)
    followed, chosen, sure, voters, frontier = json.loads(header["view"])
    state = MergeState(
        MergeCase[header["case"]],
        plain,
        Policy.from_dict(json.loads(header["policy"])),
        members,
        Nodes(plain.payload, replicas=len(members)),
        FinalNames(int(header["settled"])),
        frontier=int(header["frontier"]),
        conflicts=int(header["conflicts"]),
        forgotten=int(header["forgotten"]),
        next_rank=int(header["next_rank"]),
        mark=int(header["mark"]),
        next_number=int(header["next_number"]),
        view=View(followed, chosen, sure, tuple(voters), frontier),
    )
    if state.is_governed:
        state.highest = column_of(control.head, "highest").copy()
        state.held = np.empty((0, PER_REPLICA * len(members)), np.int64)
    return state


def node_table(state: MergeState, ids: Ints) -> pa.Table:
    """These rows, without the columns that follow from their payloads."""
    rows = state.nodes.rows[ids]
    is_bag = rows[:, FLAGS] & BAG != 0
    rows[np.ix_(is_bag, [OUT, *range(ENDS, rows.shape[1])])] = ABSENT
    start, out = rows[:, START], rows[:, OUT]
    columns: dict[str, NDArray[Any]] = {
        "node": ids,
        "start": start,
        "rank": np.where(out == ABSENT, ABSENT, rows[:, RANK]),
        "lasts": out - start,
        "in_conflict": (rows[:, FLAGS] & CONFLICT != 0).astype(np.int8),
    }
    serials = state.members.serial.tolist()
    for i, serial in enumerate(serials):
        columns[f"later_{serial}"] = rows[:, ENDS + i] - out
    if state.is_governed:
        columns["withdrawn"] = (rows[:, FLAGS] & WITHDRAWN != 0).astype(np.int8)
        for i, serial in enumerate(serials):
            held = state.held[ids, PER_REPLICA * i : PER_REPLICA * (i + 1)]
            columns[f"held_{serial}"] = held[:, NUMBER]
            columns[f"held_end_{serial}"] = held[:, END]
    table = to_table(columns)
    return table.append_column(BAG_FIELD, _bags(state, ids, is_bag)) if is_bag.any() else table


def _bags(state: MergeState, ids: Ints, is_bag: NDArray[np.bool_]) -> pa.Array:
    """Of each row that is a bag (serial, end, count) of each of its ends, in one list."""
    rows, serials = state.nodes.rows, np.append(OUTPUT, state.members.serial)
    columns = np.append(OUT, np.arange(ENDS, rows.shape[1]))
    found = ends_of(state.nodes.bags, rows, ids[is_bag], columns)
    sizes = np.zeros(len(ids), np.int64)
    sizes[is_bag] = 3 * np.bincount(found[:, 0], minlength=int(is_bag.sum()))
    values = np.stack((serials[found[:, 1]], found[:, 2], found[:, 3]), axis=1).ravel()
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def fill_rows(
    state: MergeState, blocks: Sequence[tuple[pa.Table, pa.Table]], empty: pa.Table
) -> None:
    """Fill a state that has no events with tables of nodes and their payloads."""
    none = node_table(state, np.empty(0, np.int64))
    tables, payloads, all_rows = [none], [empty], [_rows_of(state, none, [])]
    for nodes, payload in blocks:
        columns = read_table(payload) if payload.num_columns else []
        tables.append(nodes)
        payloads.append(payload)
        all_rows.append(_rows_of(state, nodes, columns))
    ids = np.concatenate([column_of(table, "node") for table in tables])
    held = read_table(pa.concat_tables(payloads)) if len(empty.schema) else []
    state.nodes.restore(ids, np.concatenate(all_rows), held, 0)
    if state.is_governed:
        _read_held(state, tables)
    for table in tables:
        if BAG_FIELD.name in table.column_names:
            _read_bags(state, table)


def _rows_of(state: MergeState, nodes: pa.Table, payload: Sequence[Column]) -> Ints:
    """The rows of a table of nodes; who is not attached any more is left out."""
    members = state.members
    rows = np.zeros((nodes.num_rows, ENDS + len(members)), np.int64)
    rows[:, START], rows[:, RANK] = column_of(nodes, "start"), column_of(nodes, "rank")
    names = hash_columns(payload, len(rows)).view(np.int64)
    rows[:, LOW], rows[:, HIGH] = names[:, 0], names[:, 1]
    out = rows[:, START] + column_of(nodes, "lasts")
    rows[:, OUT], rows[:, FLAGS] = out, LIVE
    rows[column_of(nodes, "in_conflict") != 0, FLAGS] |= CONFLICT
    if "withdrawn" in nodes.column_names:
        rows[column_of(nodes, "withdrawn") != 0, FLAGS] |= WITHDRAWN
    for i, serial in enumerate(members.serial.tolist()):
        name = f"later_{serial}"
        # Who was attached after this was written has mentioned nothing here.
        is_there = name in nodes.column_names
        rows[:, ENDS + i] = out + column_of(nodes, name) if is_there else ABSENT
    return rows


def _read_held(state: MergeState, tables: Sequence[pa.Table]) -> None:
    """Fill what is held back, of the replicas that are still attached."""
    serials = state.members.serial.tolist()
    state.held = np.full((len(state.nodes.rows), PER_REPLICA * len(serials)), NOBODY, np.int64)
    for table in tables:
        ids = column_of(table, "node")
        for i, serial in enumerate(serials):
            if f"held_{serial}" in table.column_names:
                at = PER_REPLICA * i
                state.held[ids, at + NUMBER] = column_of(table, f"held_{serial}")
                state.held[ids, at + END] = column_of(table, f"held_end_{serial}")
    state.pending = int((state.held[:, NUMBER::PER_REPLICA] != NOBODY).sum())


def _read_bags(state: MergeState, table: pa.Table) -> None:
    """Turn rows into the bags that `_bags` has written, without who is not attached."""
    nodes, ids = state.nodes, column_of(table, "node")
    lists = table.column(BAG_FIELD.name).combine_chunks()
    sizes = np.diff(lists.offsets.to_numpy()) // 3
    values = lists.flatten().to_numpy().reshape(-1, 3)
    serials = np.append(OUTPUT, state.members.serial)
    columns = np.append(OUT, np.arange(ENDS, nodes.rows.shape[1]))
    is_bag = sizes > 0
    place = np.repeat(np.arange(int(is_bag.sum())), sizes[is_bag])
    known = np.isin(values[:, 0], serials)
    order = np.argsort(serials)
    column = order[np.searchsorted(serials[order], values[known, 0])]
    ends = np.stack((place[known], column, values[known, 1], values[known, 2]), axis=1)
    nodes.make_room_in_bags(int(ends[:, 3].sum()) + len(ends), int(is_bag.sum()))
    fill_bags(nodes.bags, nodes.rows, ids[is_bag], columns, ends)


class Share(NamedTuple):
    """Some of what a state remembers: these events, and these final names."""

    state: MergeState
    ids: Ints
    names: Ints


def split(state: MergeState, lanes: int, reshape: Reshape | None = None) -> list[MergeState]:
    """What a state remembers, by the lane that it belongs to from now on."""
    ids, names = state.nodes.living(), state.final_names.all()
    rows, named = state.nodes.rows[ids], names
    low = rows[:, LOW]
    if reshape is not None:
        low = reshape.hashes(state.nodes.payload(ids), len(ids))[:, 0]
        named = reshape.names(names)
        names = names[: len(named)]
    of_events = lanes_of_names(rows[:, START], low, lanes, Route.IDENTITY)
    of_names = lanes_of_names(named[:, START], named[:, LOW], lanes, Route.IDENTITY)
    made = [
        _made([Share(state, ids[of_events == lane], names[of_names == lane])])
        for lane in range(lanes)
    ]
    for other in made[1:]:
        other.conflicts = 0
    return made


def unite(states: Sequence[MergeState], reshape: Reshape | None = None) -> MergeState:
    """The shares of one lane as one state."""
    require_agreement([(one.members, one.frontier) for one in states])
    shares = [Share(one, one.nodes.living(), one.final_names.all()) for one in states]
    return _made(shares, reshape)


def _made(shares: Sequence[Share], reshape: Reshape | None = None) -> MergeState:
    states = [one.state for one in shares]
    first = states[0]
    schema = first.schema
    if reshape is not None:
        schema = reshaped(schema, reshape)
    head, empty = control_table(first), schema.payload.empty_table()
    made = new_state(schema, Control(head, header_of(head), Blocks.none(), empty))
    made.policy, made.reports_final = first.policy, first.reports_final
    made.final_names = FinalNames()
    made.conflicts = sum(one.conflicts for one in states)
    made.members.last_seq = np.max([one.members.last_seq for one in states], axis=0)
    if made.is_governed:
        made.highest = np.max([one.highest for one in states], axis=0)
    if len({one.view for one in states}) > 1:
        made.view = View()  # the policy selects its replicas again in the next step
    _fill(made, shares, empty, reshape)
    names = np.concatenate([one.names for one in shares])
    if reshape is not None:
        names = reshape.names(names)
    made.final_names.remember(names[:, : LOW + 1], names[:, FINAL_END], made.mark)
    return made.restored()


def _fill(
    made: MergeState, shares: Sequence[Share], empty: pa.Table, reshape: Reshape | None
) -> None:
    """The events of all shares, renumbered."""
    tables = [node_table(one.state, one.ids) for one in shares]
    payloads = [one.state.nodes.payload(one.ids) for one in shares]
    if reshape is not None:
        sizes = [len(one.ids) for one in shares]
        payloads = list(map(reshape.payload, payloads, sizes))
    if reshape is not None and reshape.dropped:
        tables, payloads = _without_twins(made, tables, payloads, reshape)
    sizes = [table.num_rows for table in tables]
    nodes = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    tables = [_with(one, "node", ids) for one, ids in zip(tables, nodes, strict=True)]
    tables, made.next_rank = _renumbered(tables, ["rank"], ABSENT)
    held = [name for name in tables[0].column_names if _is_held(name)]
    tables, made.next_number = _renumbered(tables, held, NOBODY)
    fill_rows(made, list(zip(tables, payloads, strict=True)), empty)


def _without_twins(
    made: MergeState, tables: list[pa.Table], payloads: list[pa.Table], reshape: Reshape
) -> tuple[list[pa.Table], list[pa.Table]]:
    """The same in one table each; events that have become equal are one bag under R4."""
    nodes = pa.concat_tables(tables, promote_options="default")
    payload = pa.concat_tables(payloads)
    words = hash_rows(payload, nodes.num_rows).view(np.int64)
    keys = np.column_stack([column_of(nodes, "start"), words])
    _, group, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    if (counts == 1).all():
        return [nodes], [payload]
    if made.keyed:
        raise equal_without(reshape)
    twins = np.flatnonzero(counts[group] > 1)
    bags: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    serials = made.members.serial.tolist()
    for at, row in zip(twins.tolist(), nodes.take(pa.array(twins)).to_pylist(), strict=True):
        head = first.setdefault(int(group[at]), at)
        bags.setdefault(head, []).extend(_listed(row, serials))
    nodes = _as_bags(nodes, bags, group)
    kept = pa.array(np.setdiff1d(np.arange(nodes.num_rows), np.setdiff1d(twins, list(bags))))
    return [nodes.take(kept)], [payload.take(kept)]


def _listed(row: dict[str, Any], serials: Sequence[int]) -> list[int]:
    """The ends of a row, as the column `bag` has them: serial, end and count of each."""
    if row.get(BAG_FIELD.name):
        return list(row[BAG_FIELD.name])
    start, out = row["start"], _wrapped(row["start"] + row["lasts"])
    found = [] if out == ABSENT else [OUTPUT, out, 1]
    for serial in serials:
        end = _wrapped(out + row[f"later_{serial}"])
        if end != ABSENT:
            found += [serial, end, int(end > start)]
    return found


def _wrapped(number: int) -> int:
    """As 64 bits have it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _as_bags(nodes: pa.Table, bags: Mapping[int, list[int]], group: Ints) -> pa.Table:
    """The table with these bags; one is in conflict if an event of its group is."""
    rows = np.array(list(bags), np.int64)
    conflicts = np.zeros(len(group), np.int64)
    np.maximum.at(conflicts, group, column_of(nodes, "in_conflict"))
    values: dict[str, Any] = {
        "rank": ABSENT,
        "lasts": ABSENT - column_of(nodes, "start")[rows],
        "in_conflict": conflicts[group[rows]],
        **{name: 0 for name in nodes.column_names if name.startswith("later_")},
    }
    for name, value in values.items():
        whole = column_of(nodes, name).copy()
        whole[rows] = value
        nodes = _with(nodes, name, whole)
    lists: list[Any] = [None] * nodes.num_rows
    if BAG_FIELD.name in nodes.column_names:
        lists = nodes.column(BAG_FIELD.name).to_pylist()
        nodes = nodes.drop_columns([BAG_FIELD.name])
    for at, ends in bags.items():
        lists[at] = ends
    return nodes.append_column(BAG_FIELD, pa.array(lists, BAG_FIELD.type))


def equal_without(reshape: Reshape) -> UsageError:
    """Events that differ in nothing but what is dropped, where identities are unique."""
    names = ", ".join(f"'{name}'" for name in reshape.dropped)
    return UsageError(
        f"merge: without the column {names} events that are remembered become equal, and this "
        "case needs unique ones; keep the column, wait until these events are final, or merge "
        "as R4 in new folders"
    )


def _is_held(name: str) -> bool:
    return name.startswith("held_") and not name.startswith("held_end_")


def _renumbered(
    tables: Sequence[pa.Table], columns: Sequence[str], nothing: int
) -> tuple[list[pa.Table], int]:
    """Numbers in these columns without gaps, in their order; and how many there are."""
    cells = [(at, name) for at in range(len(tables)) for name in columns]
    if not cells:
        return list(tables), 0
    values = [column_of(tables[at], name).copy() for at, name in cells]
    whole = np.concatenate(values)
    given = np.flatnonzero(whole != nothing)
    whole[given[np.argsort(whole[given], kind="stable")]] = np.arange(len(given))
    made = list(tables)
    for (at, name), mine in zip(
        cells, np.split(whole, np.cumsum([len(v) for v in values])[:-1]), strict=True
    ):
        made[at] = _with(made[at], name, mine)
    return made, len(given)


def _with(table: pa.Table, name: str, values: Ints) -> pa.Table:
    field = table.schema.field(name)
    return table.set_column(table.column_names.index(name), name, to_arrow(values, field.type))
