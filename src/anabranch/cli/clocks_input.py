"""A recorded stream as columns: times, arrivals and sources from a CSV, Parquet or JSON file.

Times are whole numbers, or timestamps (ISO-8601 text without a zone is UTC), which become
microseconds.  A value that is no time is rejected with its row; no row is skipped.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from anabranch.errors import FileError, InputError, SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from anabranch.batch.batch import Ints

_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}


_ROWS = 1 << 17
"""The number of rows of a chunk of Parquet."""
_BLOCK = 8 << 20
"""The number of bytes of a chunk of text."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Columns of a file, as numbers: `source` are places in `names`.

    `clock` and `arrival_clock`: these are timestamps, in microseconds.
    """

    times: "Ints"
    arrivals: "Ints | None"
    names: Sequence[str]
    source: "Ints"
    clock: bool
    arrival_clock: bool = False


def read_recording(
    path: Path, *, time: str, arrival: str | None, source: str | None, delimiter: str = ","
) -> Recording:
    """The columns that are asked for, in the order of the file.

    The file is read in chunks, and these columns of it alone: 24 bytes for each row are kept.
    """
    import numpy as np

    options = {"--time": time, "--arrival": arrival, "--source": source}
    wanted = {option: name for option, name in options.items() if name is not None}
    times, arrivals, codes = _Times(path, "--time", time), None, _Codes()
    if arrival is not None:
        arrivals = _Times(path, "--arrival", arrival)
    rows = 0
    for chunk in _chunks(path, wanted, delimiter):
        times.add(chunk.column(time), rows)
        if arrivals is not None:
            arrivals.add(chunk.column(str(arrival)), rows)
        if source is not None:
            codes.add(chunk.column(source))
        rows += chunk.num_rows
    if not rows:
        message = f"{path}: there are no rows; nothing to estimate"
        raise InputError(message)
    known = (None, False) if arrivals is None else (arrivals.whole(), arrivals.clock is True)
    names, places = (
        codes.whole() if source is not None else (("all",), np.zeros(rows, np.int64))
    )
    clock = times.clock is True
    return Recording(times.whole(), known[0], names, places, clock, known[1])


def _chunks(path: Path, wanted: Mapping[str, str], delimiter: str) -> "Iterator[pa.Table]":
    """The columns of a file by their options, chunk by chunk."""
    import pyarrow as pa

    if not path.is_file():
        what = "is a folder; expected one file" if path.is_dir() else "there is no such file"
        message = f"{path}: {what}"
        raise FileError(message)
    kind = _FORMATS.get(path.suffix.lower())
    if kind is None:
        message = f"{path}: expected a name that ends with one of {', '.join(_FORMATS)}"
        raise FileError(message)
    read = {"parquet": _parquet, "json": _json, "csv": _csv}[kind]
    separator = "\t" if path.suffix.lower() == ".tsv" else delimiter
    try:
        for batch in read(path, wanted, separator):
            yield pa.Table.from_batches([batch])
    except (pa.ArrowException, OSError) as error:
        message = f"{path}: cannot be read as {kind}: {error}"
        raise InputError(message) from error


def _columns(path: Path, names: Sequence[str], wanted: Mapping[str, str]) -> list[str]:
    for option, name in wanted.items():
        _require(path, names, name, option)
    return list(dict.fromkeys(wanted.values()))


def _parquet(
    path: Path, wanted: Mapping[str, str], _separator: str
) -> "Iterator[pa.RecordBatch]":
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        columns = _columns(path, file.schema_arrow.names, wanted)
        yield from file.iter_batches(batch_size=_ROWS, columns=columns)


def _csv(path: Path, wanted: Mapping[str, str], separator: str) -> "Iterator[pa.RecordBatch]":
    """All as text: what a first chunk looks like is no rule for the others."""
    import pyarrow as pa
    import pyarrow.csv as pc

    parse = pc.ParseOptions(delimiter=separator)
    with pc.open_csv(path, parse_options=parse) as first:
        columns = _columns(path, first.schema.names, wanted)
    texts = pc.ConvertOptions(
        include_columns=columns,
        column_types=dict.fromkeys(columns, pa.string()),
        strings_can_be_null=True,
    )
    block = pc.ReadOptions(block_size=_BLOCK)
    yield from pc.open_csv(path, block, parse_options=parse, convert_options=texts)


def _json(path: Path, wanted: Mapping[str, str], _separator: str) -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa
    import pyarrow.json as pj
    import pyarrow.types as pt

    block = pj.ReadOptions(block_size=_BLOCK)
    with pj.open_json(path, read_options=block) as first:
        found = first.schema
    columns = _columns(path, found.names, wanted)
    # Arrow takes some texts for times of another unit: they are read as they are written.
    types = [
        (
            name,
            pa.string() if pt.is_timestamp(found.field(name).type) else found.field(name).type,
        )
        for name in columns
    ]
    options = pj.ParseOptions(
        explicit_schema=pa.schema(types), unexpected_field_behavior="ignore"
    )
    yield from pj.open_json(path, read_options=block, parse_options=options)


def _require(path: Path, names: Sequence[str], name: str, option: str) -> None:
    if name in names:
        return
    near = get_close_matches(name, names, n=1)
    hint = f"; did you mean {option} {near[0]}?" if near else ""
    if len(names) == 1 and any(mark in names[0] for mark in ";|\t"):
        hint = "; name the separator with --delimiter"
    message = f"{path}: no column {name!r} ({option}); there are {', '.join(names)}{hint}"
    raise SchemaError(message)


@dataclass
class _Codes:
    """The sources of chunks as places in one list of names."""

    places: dict[str, int] = field(default_factory=dict)
    parts: "list[Ints]" = field(default_factory=list)

    def add(self, column: "pa.ChunkedArray") -> None:
        """The sources of a chunk; rows without one have a name of their own."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        named = pc.fill_null(pc.cast(column, pa.string()), "(no source)").combine_chunks()
        found = named.dictionary_encode()
        mine = [
            self.places.setdefault(n, len(self.places)) for n in found.dictionary.to_pylist()
        ]
        self.parts.append(np.array(mine, np.int64)[np.asarray(found.indices)])

    def whole(self) -> "tuple[Sequence[str], Ints]":
        """The names, and the place of each row."""
        import numpy as np

        return tuple(self.places), np.concatenate(self.parts)


@dataclass
class _Times:
    """One column of times; `clock`: they are timestamps, None before the first row."""

    path: Path
    option: str
    name: str
    clock: bool | None = None
    parts: "list[Ints]" = field(default_factory=list)

    @property
    def where(self) -> str:
        """The column, for errors."""
        return f"{self.path}: {self.option} {self.name}"

    def whole(self) -> "Ints":
        """All of them."""
        import numpy as np

        return np.concatenate(self.parts)

    def add(self, column: "pa.ChunkedArray", rows: int) -> None:
        """The times of a chunk that begins after `rows` rows."""
        import pyarrow.compute as pc

        if not len(column):
            return
        if column.null_count:
            row = rows + pc.index(pc.is_null(column), value=True).as_py() + 1
            message = f"{self.where}: row {row} has no time; remove such rows, or fill them"
            raise InputError(message)
        found, clock = _times(column, self.where, rows)
        if self.clock not in (None, clock):
            message = (
                f"{self.where}: row {rows + 1} is {column[0].as_py()!r}, rows above are of the "
                "other kind"
            )
            raise InputError(message)
        self.clock = clock
        self.parts.append(found)


def _times(column: "pa.ChunkedArray", where: str, rows: int) -> "tuple[Ints, bool]":
    """The times as int64, and whether they are timestamps."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as pt

    kind = column.type
    if pt.is_integer(kind):
        return _numbers(column), False
    if pt.is_timestamp(kind):
        plain = pc.cast(column, pa.timestamp("us", tz=kind.tz), safe=False)
        return _numbers(pc.cast(plain, pa.int64())), True
    if pt.is_string(kind) or pt.is_large_string(kind):
        for to, clock in ((pa.int64(), False), (pa.timestamp("us", tz="UTC"), True)):
            with suppress(pa.ArrowInvalid):
                return _numbers(pc.cast(pc.cast(column, to), pa.int64())), clock
        return _texts(column.to_pylist(), where, rows)
    message = f"{where} is {kind}; expected whole numbers or timestamps; cast the column"
    raise SchemaError(message)


def _numbers(column: "pa.ChunkedArray") -> "Ints":
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from anabranch.batch.buffers import numbers

    return np.array(numbers(pc.cast(column, pa.int64()), np.dtype(np.int64)))


def _texts(texts: Sequence[str], where: str, rows: int) -> "tuple[Ints, bool]":
    """Times that are written as text, each by itself: zones may differ."""
    import numpy as np

    from anabranch.cli.windows.input import read_time

    found = [
        read_time(text, f"{where}: row {row}:") for row, text in enumerate(texts, rows + 1)
    ]
    kinds = [clock for _, clock in found]
    if any(kinds) and not all(kinds):
        at = kinds.index(not kinds[0])
        message = (
            f"{where}: row {rows + at + 1} is {texts[at]!r}, rows above are of the other kind"
        )
        raise InputError(message)
    return np.array([units for units, _ in found], np.int64), all(kinds)
