r"""Generated tables as JSON lines, built in columns: one object per row, nulls left out.

Times are integers, or ISO-8601 with a zone (`2026-01-01T00:00:20.000000Z`).  Strings are
written as they are: the generator's letters need no escaping, and this is for it alone.

>>> bytes(json_lines(pa.table({"kind": ["stable"], "start": [7], "end": pa.nulls(1)})))
b'{"kind":"stable","start":7}\n'
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from anabranch.batch.buffers import one_array

ROWS = 8_192


def json_lines(table: pa.Table) -> bytes:
    """The rows of a table, one line each."""
    parts = [_lines(table.slice(at, ROWS)) for at in range(0, table.num_rows, ROWS)]
    return b"".join(memoryview(part) for part in parts)


def _lines(table: pa.Table) -> pa.Buffer:
    members = [_member(name, one_array(table.column(name))) for name in table.column_names]
    body = pc.binary_join_element_wise(*members, ",", null_handling="skip")
    lines = pc.binary_join_element_wise("{", body, "}\n", "")
    # The lines of one array lie one after the other in its last buffer.
    return lines.buffers()[2].slice(0, pc.sum(pc.binary_length(lines)).as_py())


def _member(name: str, column: pa.Array) -> pa.Array:
    """`"name":value` per row; null where the value is."""
    if pt.is_null(column.type):
        return pa.nulls(len(column), pa.string())
    if pt.is_string(column.type):
        return pc.binary_join_element_wise(f'"{name}":"', column, '"', "")
    if pt.is_timestamp(column.type):
        # Without a zone, the cast needs no time zone database; the zone is written by us.
        text = pc.cast(column.view(pa.timestamp("us")), pa.string())
        text = pc.replace_substring(text, " ", "T", max_replacements=1)
        return pc.binary_join_element_wise(f'"{name}":"', text, 'Z"', "")
    return pc.binary_join_element_wise(f'"{name}":', pc.cast(column, pa.string()), "")
