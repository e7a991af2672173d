"""JSON lines as columns: one object per line, a missing key is null, blank lines are skipped.

A file is parsed in blocks of whole lines, so memory stays small.  `infer` finds the columns of
a whole file; `read` reads it with a schema that was found over *all* files, or was given.  A
line that cannot be read (no JSON, another type, a time without a zone) is refused with its
line number and the reason, and the rest goes on: a block in which something fails is halved
until the line is found.

Times and dates are ISO-8601 text, times with a zone; binary is base64; inferred text is text,
whatever it looks like.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
import pyarrow.types as pt

from anabranch.batch.batch import Ints
from anabranch.batch.buffers import take
from anabranch.errors import FileError
from anabranch.sources.jsontypes import common_json, refuse_wide_numbers, settled
from anabranch.sources.unify import unify

BLOCK: Final = 8 << 20
"""Bytes that are parsed at once (a line may be longer)."""

_BLANK: Final = re.compile(rb"(?:\A|\n)[ \t\r]*\n")
_MARK: Final = b"\xef\xbb\xbf"  # some editors put it before the first line
_CHANGED: Final = re.compile(r"Column\(/?(.*?)\) changed from (\w+) to (\w+)")
_FRACTION: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_UNFIT: Final = re.compile(r"Failed to convert JSON to (.*?), couldn't parse:\s*(.*)")


@dataclass(frozen=True)
class RefusedLine:
    """A line that cannot be read; `row` is its number in the file, from 1."""

    row: int
    reason: str
    raw: str


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of one block: row i of the table is line `rows[i]`, from 1."""

    table: pa.Table
    rows: Ints
    refused: tuple[RefusedLine, ...]


@dataclass(frozen=True, eq=False)
class _Block:
    first: int
    data: bytes


def infer(path: Path) -> tuple[pa.Schema, int]:
    """The columns of a file over all of its lines, and how many lines can be read."""
    found: list[tuple[str, pa.Schema]] = []
    rows = refused = 0
    for block in _blocks(path):
        parsed, bad = _parse(block, None)
        refused += len(bad)
        for table, numbers in parsed:
            where = f"{path}, {_span(numbers)}"
            rows += table.num_rows
            schema = pa.schema([(f.name, settled(f.type)) for f in table.schema])
            # One at a time, so that what is kept does not grow with the file.
            first = found or [(where, schema)]
            both = [*first, (where, schema)]
            merged = unify(both, common=common_json, absent_is_null=True)
            found = [(first[0][0], merged)]
        if found:
            refuse_wide_numbers(block.data, found[0][1], where=str(path))
    if refused and not rows:
        message = (
            f"{path}: no line of it is a JSON object; expected JSON lines, one element per "
            "line; move the file away, or give it a name that starts with '_'"
        )
        raise FileError(message)
    return (found[0][1] if found else pa.schema([])), rows


def read(
    path: Path,
    schema: pa.Schema,
    *,
    begin: int = 0,
    stop: int = -1,
    row: int = 1,
    ignored: Collection[str] = (),
) -> Iterator[Lines]:
    """The lines of a file in these columns, block by block; a line with others is refused.

    Only those in a range of bytes, the first of which is this row; -1: to the end.  A line may
    have the columns `ignored`, which are left out.
    """
    physical = pa.schema([(field.name, _as_written(field.type)) for field in schema])
    for block in _blocks(path, begin=begin, stop=stop, row=row):
        parsed, refused = _parse(block, physical, ignored)
        tables = [table for table, _ in parsed]
        table = pa.concat_tables(tables) if tables else physical.empty_table()
        rows = np.concatenate([np.empty(0, np.int64), *(numbers for _, numbers in parsed)])
        yield _convert(Lines(table, rows, tuple(refused)), schema)


def _blocks(path: Path, *, begin: int = 0, stop: int = -1, row: int = 1) -> Iterator[_Block]:
    """Blocks of whole lines, each ended by a newline."""
    line, rest = row, b""
    with path.open("rb") as file:
        file.seek(begin)
        left = stop - begin if stop >= 0 else path.stat().st_size
        while piece := file.read(min(BLOCK, left)):
            left -= len(piece)
            if line == 1 and not rest:
                piece = piece.removeprefix(_MARK)
            head, newline, tail = piece.rpartition(b"\n")
            if not newline:
                rest += piece
                continue
            data = rest + head + newline
            yield _Block(line, data)
            line, rest = line + data.count(b"\n"), tail
    if rest:
        yield _Block(line, rest + b"\n")


def _parse(
    block: _Block, schema: pa.Schema | None, ignored: Collection[str] = ()
) -> tuple[list[tuple[pa.Table, Ints]], list[RefusedLine]]:
    """The tables of a block with their line numbers, and the lines that cannot be read."""
    count = block.data.count(b"\n")
    if not _BLANK.search(block.data):
        table = _try(block.data, schema, count, ignored)
        if isinstance(table, pa.Table):
            return [(table, np.arange(block.first, block.first + count))], []
    lines = block.data.split(b"\n")
    kept = [i for i, line in enumerate(lines) if line.strip()]
    parsed: list[tuple[pa.Table, Ints]] = []
    refused: list[RefusedLine] = []
    pending = [kept] if kept else []
    while pending:
        some = pending.pop()
        data = b"\n".join(lines[i] for i in some) + b"\n"
        found = _try(data, schema, len(some), ignored)
        if isinstance(found, pa.Table):
            parsed.append((found, np.array(some, np.int64) + block.first))
        elif len(some) == 1:
            raw = data[:-1].decode("utf-8", errors="backslashreplace")
            refused.append(RefusedLine(some[0] + block.first, found, raw))
        else:
            middle = len(some) // 2
            pending += [some[middle:], some[:middle]]  # the first half is taken first
    return parsed, refused


def _try(
    data: bytes, schema: pa.Schema | None, count: int, ignored: Collection[str] = ()
) -> pa.Table | str:
    """The table of these lines, or why there is none."""
    infers = schema is None or bool(ignored)
    options = pj.ParseOptions(
        explicit_schema=schema,
        unexpected_field_behavior="infer" if infers else "error",
    )
    try:
        data.decode("utf-8")
        table = pj.read_json(
            pa.BufferReader(data),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(data) + 1),
            parse_options=options,
        )
    except UnicodeDecodeError as error:
        return f"not UTF-8: {error.reason} at byte {error.start + 1} of the line"
    except pa.ArrowException as error:
        return _explained(str(error), data, schema)
    if table.num_rows != count:
        return f"{table.num_rows} JSON objects in the line, expected one"
    return table if schema is None or not ignored else _only(table, schema, ignored, data)


def _only(
    table: pa.Table, schema: pa.Schema, ignored: Collection[str], data: bytes
) -> pa.Table | str:
    """The table without what is ignored; why there is none if more is left than the schema."""
    left = table.drop_columns([n for n in table.column_names if n in ignored])
    if left.schema.equals(schema):
        return left
    return _explained("unexpected field", data, pa.schema([*schema, *map(_any, ignored)]))


def _any(name: str) -> pa.Field:
    return pa.field(name, pa.null())


def _explained(error: str, data: bytes, schema: pa.Schema | None) -> str:
    """Arrow's words, in ours: its row number counts within a part of a block."""
    if "unexpected field" in error and schema is not None:
        return f"{_stranger(data, schema)} is not in the schema ({', '.join(schema.names)})"
    changed = _CHANGED.search(error)
    if changed and changed[1]:
        return f"column '{changed[1]}' is {changed[3]}, expected {changed[2]}"
    if changed:
        return f"the line is a JSON {changed[3]}, expected an object"
    unfit = _UNFIT.search(error)
    if unfit and unfit[1] == str(pa.int64()) and _FRACTION.fullmatch(unfit[2]):
        return (
            f"{_fraction(data, schema)}{unfit[2]} is not a whole number, but the column is "
            "bigint (by --schema, or by the lines of the first start); for fractions start a "
            "new run with --schema and double"
        )
    if unfit:
        return f"{unfit[2]} is no {unfit[1]}"
    text = re.sub(r"\.? in row \d+", "", error).strip()
    return text.replace("JSON parse error: ", "not JSON: ")


def _stranger(data: bytes, schema: pa.Schema) -> str:
    """What Arrow did not expect in a line (the answer for several lines is not used)."""
    try:
        other = sorted(set(json.loads(data)) - set(schema.names))
    except ValueError:
        return "a key"  # there is more in the line that is wrong
    return f"column '{other[0]}'" if other else "a field of a struct"


def _fraction(data: bytes, schema: pa.Schema | None) -> str:
    """Which column of a line has a fraction and should not (of nested ones the outermost)."""
    try:
        row = json.loads(data)
    except ValueError:
        return ""  # several lines: the answer is not used
    known = pa.schema([]) if schema is None else schema
    found = [one.name for one in known if _is_fraction(row.get(one.name), one.type)]
    return f"column '{found[0]}': " if found else ""


def _is_fraction(value: Any, kind: pa.DataType) -> bool:
    if isinstance(value, list) and pt.is_list(kind):
        return any(_is_fraction(one, kind.value_type) for one in value)
    if isinstance(value, dict) and pt.is_struct(kind):
        return any(_is_fraction(value.get(one.name), one.type) for one in kind)
    return isinstance(value, float) and pt.is_int64(kind)


def _span(numbers: Ints) -> str:
    first, last = int(numbers[0]), int(numbers[-1])
    return f"line {first}" if first == last else f"lines {first} to {last}"


def _as_written(kind: pa.DataType) -> pa.DataType:
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_binary(kind):
        return pa.string()
    return kind


def _convert(lines: Lines, schema: pa.Schema) -> Lines:
    """Text into times, dates and bytes; a line with a text that is none is refused."""
    table, reasons = lines.table, dict[int, str]()
    for i, field in enumerate(schema):
        if table.schema.field(i).type == field.type:
            continue
        try:
            column = _whole(table.column(i), field.type)
        except (pa.ArrowException, binascii.Error):
            column, bad = _one_by_one(table.column(i), field)
            reasons = {**bad, **reasons}
        table = table.set_column(i, field, column)
    if not reasons:
        return Lines(table, lines.rows, lines.refused)
    good = np.delete(np.arange(len(lines.rows)), list(reasons))
    bad_rows = take(lines.table, np.array(sorted(reasons), np.int64)).to_pylist()
    refused = [
        RefusedLine(int(lines.rows[at]), reasons[at], str(row))
        for at, row in zip(sorted(reasons), bad_rows, strict=True)
    ]
    everything = sorted([*lines.refused, *refused], key=lambda line: line.row)
    return Lines(take(table, good), lines.rows[good], tuple(everything))


def _whole(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | pa.Array:
    if pt.is_binary(kind):
        texts = column.to_pylist()
        decoded = [None if t is None else base64.b64decode(t, validate=True) for t in texts]
        return pa.array(decoded, kind)
    return pc.cast(column, kind)


def _one_by_one(column: pa.ChunkedArray, field: pa.Field) -> tuple[pa.Array, dict[int, str]]:
    """Each value by itself, null where it fails, and the reasons by row."""
    expected = "base64" if pt.is_binary(field.type) else "a date like 2024-05-31"
    if pt.is_timestamp(field.type):
        zone = ("with a zone", "Z") if field.type.tz else ("without a zone", "")
        expected = f"a time to the microsecond {zone[0]}, like 2024-05-31T12:00:00{zone[1]}"
    values: list[Any] = []
    reasons = {}
    for row, text in enumerate(column.to_pylist()):
        try:
            one = _whole(pa.chunked_array([[text]], pa.string()), field.type)
            values.append(one[0])
        except (pa.ArrowException, binascii.Error):
            values.append(pa.scalar(None, field.type))
            reasons[row] = f"column '{field.name}' is {text!r}, expected {expected}"
    return pa.array(values, field.type), reasons
