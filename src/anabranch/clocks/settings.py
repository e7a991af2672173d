r"""Bounds as TOML: reading and writing.

    time = "timestamp"            # or "bigint": what the rows' times are; default: the stream's
    meaning = "observed"          # or "clock"
    timeout = "2 minutes"

    [alike]                       # any number of sources; or [sources.NAME] for each
    disorder = "10 minutes"       # or own = [{ wait = "0 seconds", distance = "10 minutes" }]
    others = [{ wait = "5 seconds", distance = "1 hour" }]
    latency = "3 seconds"
    fifo = true

    [[skew]]                      # between named sources
    from = "east"
    to = "west"
    pairs = [{ wait = "1 second", distance = "1 minute" }, { rows = 3, distance = "0 seconds" }]

Bounds that are learned have one table instead, with the fields of `Learning`:

    [learned]
    target_loss = 0.0001
    window = 10000                # rows; or window_wall = "10 minutes"
    most = "1 hour"

Waits, latencies, timeouts and delays are spans of the wall clock; distances and disorders are
of the rows' time: text for timestamps, whole numbers for bigint.  Whatever is not understood is
rejected by its place; `to_toml` writes what `from_toml` reads.

Papers: Heartbeats 2 (parameters), 3.1.

>>> bounds = from_toml('time = "bigint"\n[alike]\ndisorder = 10\n')
>>> from_toml(to_toml(bounds, TimeType.BIGINT)) == bounds
True
"""

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from anabranch.batch.schema import TimeType
from anabranch.batch.times import show_span, to_units
from anabranch.clocks.bounds import Alike, AnyBounds, Bounds
from anabranch.clocks.learn import Learning
from anabranch.clocks.pairs import Pair, Pairs
from anabranch.errors import InputError, UsageError

_TOP: Final = ("time", "meaning", "timeout", "delay", "alike", "sources", "skew", "learned")
_ALIKE: Final = ("disorder", "own", "others", "latency", "fifo")
_SOURCE: Final = ("disorder", "own", "latency", "fifo")
_SKEW: Final = ("from", "to", "pairs")
_LEARNED: Final = {
    "window": int,
    "window_wall": "span",
    "alpha": float,
    "adapts": bool,
    "target_loss": float,
    "waits": "spans",
    "across": bool,
    "least": "distance",
    "most": "distance",
    "warm_up": int,
    "smallest_window": int,
    "greatest_window": int,
    "exceeded_share": float,
    "lowerings": int,
}
"""The fields of `Learning`, and what each holds; window = false: the greatest ever."""

Described: TypeAlias = AnyBounds | Learning
"""What a text can describe."""


def from_toml(text: str, *, where: str = "bounds", time: TimeType | None = None) -> Described:
    """The bounds that a text describes; `where` (a file) goes into errors.

    `time` are the times that they are for, if that is known: a text for others is rejected, and
    one without `time` is read for these.  Without it such a text is for timestamps.
    """
    found = _parsed(text, where)
    try:
        return _read(found, _time_of(found, where, time), where)
    except UsageError as error:
        message = str(error) if str(error).startswith(where) else f"{where}: {error}"
        raise InputError(message) from error


def time_of(text: str, *, where: str = "bounds") -> TimeType:
    """The times that a text of bounds is for."""
    try:
        return _time_of(_parsed(text, where), where, None)
    except UsageError as error:
        raise InputError(str(error)) from error


def _parsed(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"{where}: not TOML: {error}"
        raise InputError(message) from error


def _time_of(found: Mapping[str, Any], where: str, wanted: TimeType | None) -> TimeType:
    names = [one.value for one in TimeType]
    usual = (wanted or TimeType.TIMESTAMP).value
    if found.get("time", usual) not in names:
        message = f"{where}: time is {found['time']!r}; expected one of {names}"
        raise UsageError(message)
    time = TimeType(found.get("time", usual))
    if wanted not in (None, time):
        message = (
            f"{where}: time is '{time.value}', and the times of the stream are '{usual}'; "
            f'write time = "{usual}", and distances in its units'
        )
        raise UsageError(message)
    return time


def _read(found: Mapping[str, Any], time: TimeType, where: str) -> Described:
    _require(found, _TOP, where)
    if "learned" in found:
        return _learned(found, time, where)
    shared: dict[str, Any] = {
        name: _span(found[name], f"{where}: {name}")
        for name in ("timeout", "delay")
        if name in found
    }
    if time is TimeType.BIGINT and "delay" in shared:
        message = f"{where}: delay needs timestamps: it compares a row's time with the clock"
        raise UsageError(message)
    shared["meaning"] = found.get("meaning", "observed")
    if ("alike" in found) == ("sources" in found):
        message = (
            f"{where}: give [alike], [sources.NAME] for each source, or [learned]; one of them"
        )
        raise UsageError(message)
    if "alike" in found:
        return _alike(found, time, shared, where)
    return _named(found, time, shared, where)


def _alike(
    found: Mapping[str, Any], time: TimeType, shared: dict[str, Any], where: str
) -> Alike:
    if "skew" in found:
        message = f"{where}: [[skew]] is for named sources; sources alike have 'others'"
        raise UsageError(message)
    alike, place = found["alike"], f"{where}: [alike]"
    _require(alike, _ALIKE, place)
    return Alike(
        own=_own(alike, time, place),
        others=_pairs(alike.get("others", ()), time, f"{place} others"),
        latency=_span(alike.get("latency", 0), f"{place} latency"),
        fifo=_flag(alike.get("fifo", "disorder" in alike), place),
        **shared,
    )


def _learned(found: Mapping[str, Any], time: TimeType, where: str) -> Learning:
    """Bounds that are learned: no others can be given beside them."""
    others = sorted(set(found) - {"learned", "time"})
    if others:
        message = (
            f"{where}: {', '.join(others)} beside [learned]; bounds that are learned have "
        )
        raise UsageError(message + "no others: remove one of them")
    table, place = found["learned"], f"{where}: [learned]"
    _require(table, tuple(_LEARNED), place)
    fields = {name: _field(value, name, time, place) for name, value in table.items()}
    return Learning(**fields)


def _field(value: Any, name: str, time: TimeType, place: str) -> Any:
    kind, what = _LEARNED[name], f"{place} {name}"
    if kind == "span":
        return _span(value, what)
    if kind == "distance":
        return _distance(value, time, what)
    if kind == "spans" and isinstance(value, list):
        return tuple(_span(one, what) for one in value)
    if name == "window" and value is False:
        return None
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(kind, type) or type(value) is not kind:
        words = {int: "a whole number", float: "a number", bool: "true or false"}
        expected = words[kind] if isinstance(kind, type) else "a list of spans"
        message = f"{what} is {value!r}; expected {expected}"
        raise UsageError(message)
    return value


def _named(
    found: Mapping[str, Any], time: TimeType, shared: dict[str, Any], where: str
) -> Bounds:
    pairs: dict[tuple[str, str], Pairs] = {}
    latency, fifo = {}, {}
    if not isinstance(found["sources"], Mapping):
        message = f"{where}: sources is {found['sources']!r}; expected a table for each source"
        raise UsageError(message)
    for name, source in found["sources"].items():
        place = f"{where}: [sources.{name}]"
        _require(source, _SOURCE, place)
        pairs[name, name] = _own(source, time, place)
        latency[name] = _span(source.get("latency", 0), f"{place} latency")
        fifo[name] = _flag(source.get("fifo", "disorder" in source), place)
    for number, skew in enumerate(found.get("skew", ()), start=1):
        place = f"{where}: [[skew]] number {number}"
        _require(skew, _SKEW, place)
        both = skew.get("from"), skew.get("to")
        if not all(one in latency for one in both):
            message = f"{place} is from {both[0]!r} to {both[1]!r}; sources are {list(latency)}"
            raise UsageError(message)
        pairs[both] = (*pairs.get(both, ()), *_pairs(skew.get("pairs", ()), time, place))
    return Bounds.of(pairs, latency=latency, fifo=fifo, **shared)


def _own(table: Mapping[str, Any], time: TimeType, place: str) -> Pairs:
    own = _pairs(table.get("own", ()), time, f"{place} own")
    if "disorder" in table:
        own = (Pair(0, _distance(table["disorder"], time, f"{place} disorder") + 1), *own)
    return tuple(sorted(set(own)))


def _pairs(found: Sequence[Mapping[str, Any]], time: TimeType, place: str) -> Pairs:
    pairs = []
    for one in found:
        if not isinstance(one, Mapping) or ("rows" in one) == ("wait" in one):
            message = f"{place}: {one!r}; expected wait or rows, and distance"
            raise UsageError(message)
        _require(one, ("wait", "rows", "distance"), place)
        distance = _distance(one.get("distance", 0), time, f"{place} distance")
        wait = one["rows"] if "rows" in one else _span(one["wait"], f"{place} wait")
        pairs.append(Pair(wait, distance, rows="rows" in one))
    return tuple(sorted(set(pairs)))


def _span(value: Any, place: str) -> int:
    """A span of the wall clock; 0 needs no unit."""
    if value == 0 and not isinstance(value, bool):
        return 0
    return to_units(
        value if isinstance(value, str) else repr(value), TimeType.TIMESTAMP, option=place
    )


def _distance(value: Any, time: TimeType, place: str) -> int:
    if time is TimeType.TIMESTAMP:
        return _span(value, place)
    return to_units(str(value), time, option=place)


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        message = f"{place}: fifo is {value!r}; expected true or false"
        raise UsageError(message)
    return value


def _require(table: Any, known: Sequence[str], place: str) -> None:
    if not isinstance(table, Mapping):
        message = f"{place} is {table!r}; expected a table with {', '.join(known)}"
        raise UsageError(message)
    other = sorted(set(table) - set(known))
    if other:
        message = f"{place} has {', '.join(other)}; expected only {', '.join(known)}"
        raise UsageError(message)


def to_toml(bounds: Described, time: TimeType = TimeType.TIMESTAMP) -> str:
    """The text that `from_toml` reads as these bounds."""
    if isinstance(bounds, Learning):
        return "\n".join([f'time = "{time.value}"', "", *_learned_lines(bounds, time)]) + "\n"
    lines = [f'time = "{time.value}"', f'meaning = "{bounds.meaning}"']
    for name in ("timeout", "delay"):
        units = getattr(bounds, name)
        if units is not None:
            lines.append(f'{name} = "{show_span(units)}"')
    if isinstance(bounds, Alike):
        sets = {"own": bounds.own, "others": bounds.others}
        lines += ["", "[alike]", *_source_lines(sets, bounds.latency, time, fifo=bounds.fifo)]
        return "\n".join(lines) + "\n"
    for at, name in enumerate(bounds.sources):
        own = {"own": bounds.pairs[at][at]}
        lines += ["", f"[sources.{json.dumps(name)}]"]
        lines += _source_lines(own, bounds.latency[at], time, fifo=bounds.fifo[at])
    for i, one in enumerate(bounds.sources):
        for j, to in enumerate(bounds.sources):
            if i != j and bounds.pairs[i][j]:
                lines += ["", "[[skew]]", f"from = {json.dumps(one)}", f"to = {json.dumps(to)}"]
                lines.append(f"pairs = {_pairs_text(bounds.pairs[i][j], time)}")
    return "\n".join(lines) + "\n"


def _learned_lines(spec: Learning, time: TimeType) -> Iterable[str]:
    """The fields that are not as by default."""
    yield "[learned]"
    usual = Learning()
    for name, kind in _LEARNED.items():
        value = getattr(spec, name)
        if value == getattr(usual, name):
            continue
        text = json.dumps(value)
        if value is None:
            text = "false"
        elif kind == "spans":
            text = json.dumps([show_span(one) for one in value])
        elif kind == "span" or (kind == "distance" and time is TimeType.TIMESTAMP):
            text = json.dumps(show_span(value))
        yield f"{name} = {text}"


def _source_lines(
    sets: Mapping[str, Pairs], latency: int, time: TimeType, *, fifo: bool
) -> Iterable[str]:
    for name, pairs in sets.items():
        if pairs:
            yield f"{name} = {_pairs_text(pairs, time)}"
    yield f'latency = "{show_span(latency)}"'
    yield f"fifo = {str(fifo).lower()}"


def _pairs_text(pairs: Pairs, time: TimeType) -> str:
    texts = []
    for pair in pairs:
        wait = f"rows = {pair.wait}" if pair.rows else f'wait = "{show_span(pair.wait)}"'
        stamps = time is TimeType.TIMESTAMP
        distance = f'"{show_span(pair.distance)}"' if stamps else str(pair.distance)
        texts.append(f"{{ {wait}, distance = {distance} }}")
    return f"[{', '.join(texts)}]"
