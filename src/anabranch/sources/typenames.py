"""Column types by Spark's names, as in a schema file for JSON lines.

    {"kind": "string", "start": "timestamp", "price": "decimal(10,2)", "tags": "array<string>"}

>>> parse_type("struct<id: bigint, tags: array<string>>", where="schema.json, column 'x'")
StructType(struct<id: int64, tags: list<element: string>>)
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from anabranch.batch.schema import END, KIND, OLD_END, START
from anabranch.errors import FileError, SchemaError

TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
_MOST_DIGITS: Final = 38


def read_schema_file(path: Path, times: Sequence[str] | None = None) -> pa.Schema:
    """The columns that a schema file names, in its order.

    `start` must be among them; `end` and `old_end` are of its type if they are not.  Without
    `kind` it describes a reference history.  Of plain rows the columns `times` must be there.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        message = f"{path}: cannot be read as a JSON schema file: {error}; {_EXAMPLE}"
        raise FileError(message) from error
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        message = (
            f"{path}: a schema file is one JSON object of column names and types; {_EXAMPLE}"
        )
        raise SchemaError(message)
    for name in (START,) if times is None else times:
        if name not in found:
            message = (
                f"{path}: no column '{name}'; its type, bigint or timestamp, is that of all "
                "times"
            )
            raise SchemaError(message)
    types = {
        name: parse_type(text, where=f"{path}, column '{name}'") for name, text in found.items()
    }
    if times is None:
        types.setdefault(END, types[START])
    if times is None and KIND in types:
        types.setdefault(OLD_END, types[START])
    return pa.schema(list(types.items()))


def parse_type(text: str, *, where: str) -> pa.DataType:
    """The Arrow type of one type name."""
    name = text.strip()
    if name.lower() in TYPES:
        return TYPES[name.lower()]
    digits = _DECIMAL.fullmatch(name.lower())
    if digits:
        return _decimal(int(digits[1]), int(digits[2] or 0), text, where)
    inner = _inside(name, "array")
    if inner is not None:
        return pa.list_(pa.field("element", parse_type(inner, where=where)))
    inner = _inside(name, "struct")
    if inner is not None:
        return pa.struct([_struct_field(part, text, where) for part in _split(inner)])
    raise _unknown(text, where)


def _decimal(precision: int, scale: int, text: str, where: str) -> pa.DataType:
    if not 1 <= precision <= _MOST_DIGITS or scale > precision:
        raise _unknown(text, where)
    return pa.decimal128(precision, scale)


def _struct_field(part: str, text: str, where: str) -> pa.Field:
    name, colon, kind = part.partition(":")
    if not colon or not name.strip():
        raise _unknown(text, where)
    return pa.field(name.strip(), parse_type(kind, where=where))


def _inside(name: str, word: str) -> str | None:
    """What stands between the angle brackets of `word<...>`."""
    match = re.fullmatch(rf"{word}\s*<(.*)>", name, re.IGNORECASE | re.DOTALL)
    return match[1] if match else None


def _split(text: str) -> list[str]:
    """The parts between the commas that stand in no brackets."""
    parts, depth, begin = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            parts.append(text[begin:at])
            begin = at + 1
    return [*parts, text[begin:]]


def _unknown(text: str, where: str) -> SchemaError:
    message = (
        f"{where}: unknown type {text!r}; expected one of {', '.join(TYPES)}, decimal(p,s), "
        "array<type> or struct<name: type, ...>"
    )
    return SchemaError(message)


_EXAMPLE: Final = 'write for example {"kind": "string", "start": "bigint", "name": "string"}'
