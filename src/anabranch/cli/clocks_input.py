"""A recorded stream as columns: times, arrivals and sources from a CSV, Parquet or JSON file.

Times are whole numbers, or timestamps (ISO-8601 text without a zone is UTC), which become
microseconds.  A value that is no time is rejected with its row; no row is skipped.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anabranch.errors import FileError, InputError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


@dataclass(frozen=True, eq=False)
class Recording:
    """Columns of a file; `clock` and `arrival_clock`: these are timestamps, in microseconds."""

    times: Any
    arrivals: Any | None
    sources: Sequence[str]
    clock: bool
    arrival_clock: bool = False


def read_recording(
    path: Path, *, time: str, arrival: str | None, source: str | None, delimiter: str = ","
) -> Recording:
    """The columns that are asked for, in the order of the file."""
    table = _read(path, delimiter)
    wanted = {"--time": time, "--arrival": arrival, "--source": source}
    for option, name in wanted.items():
        if name is not None:
            _require(path, table.schema.names, name, option)
    if not table.num_rows:
        message = f"{path}: there are no rows; nothing to estimate"
        raise InputError(message)
    times, clock = _times(table.column(time), f"{path}: --time {time}")
    arrivals, arrival_clock = None, False
    if arrival is not None:
        where = f"{path}: --arrival {arrival}"
        arrivals, arrival_clock = _times(table.column(arrival), where)
    sources = ["all"] * table.num_rows
    if source is not None:
        names = table.column(source).to_pylist()
        sources = ["(no source)" if name is None else str(name) for name in names]
    return Recording(times, arrivals, sources, clock, arrival_clock)


def _read(path: Path, delimiter: str) -> "pa.Table":
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.json
    import pyarrow.parquet

    if not path.is_file():
        what = "is a folder; expected one file" if path.is_dir() else "there is no such file"
        message = f"{path}: {what}"
        raise FileError(message)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        message = f"{path}: expected a name that ends with one of {', '.join(_FORMATS)}"
        raise FileError(message)
    try:
        if kind == "parquet":
            return pa.parquet.read_table(path)
        if kind == "json":
            return pa.json.read_json(path)
        separator = "\t" if path.suffix.lower() == ".tsv" else delimiter
        options = pa.csv.ParseOptions(delimiter=separator)
        return pa.csv.read_csv(path, parse_options=options)
    except (pa.ArrowException, OSError) as error:
        message = f"{path}: cannot be read as {kind}: {error}"
        raise InputError(message) from error


def _require(path: Path, names: Sequence[str], name: str, option: str) -> None:
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {option} {near[0]}?" if near else ""
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        hint = "; name the separator with --delimiter"
    message = f"{path}: no column {name!r} ({option}); there are {', '.join(names)}{hint}"
    raise SchemaError(message)


def _times(column: "pa.ChunkedArray", where: str) -> tuple[Any, bool]:
    """The times as int64, and whether they are timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    if column.null_count:
        row = pc.index(pc.is_null(column), value=True).as_py() + 1
        message = (
            f"{where}: row {row} has no time ({column.null_count} rows); remove or fill them"
        )
        raise InputError(message)
    kind = column.type
    if pt.is_integer(kind):
        return _numbers(column), False
    if pt.is_timestamp(kind):
        plain = pc.cast(column, pa.timestamp("us", tz=kind.tz), safe=False)
        return _numbers(pc.cast(plain, pa.int64())), True
    if pt.is_string(kind) or pt.is_large_string(kind):
        return _texts(column.to_pylist(), where)
    message = f"{where} is {kind}; expected whole numbers or timestamps; cast the column"
    raise SchemaError(message)


def _numbers(column: "pa.ChunkedArray") -> Any:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    return np.array(pc.cast(column, pa.int64()).to_pylist(), np.int64)


def _texts(texts: Sequence[str], where: str) -> tuple[Any, bool]:
    """Times that are written as text, each by itself: zones may differ."""
    import numpy as np

    from anabranch.cli.windows_input import read_time

    found = [read_time(text, f"{where}: row {row}:") for row, text in enumerate(texts, start=1)]
    kinds = [clock for _, clock in found]
    if any(kinds) and not all(kinds):
        row = kinds.index(not kinds[0]) + 1
        message = f"{where}: row {row} is {texts[row - 1]!r}, rows above are of the other kind"
        raise InputError(message)
    return np.array([units for units, _ in found], np.int64), all(kinds)
