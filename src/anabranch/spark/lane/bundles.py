"""Many small parts as one value of the state store: a *bundle*.

A call to Spark's store has a price of its own, and one save changes a hundred small parts.  So
the small parts that a save writes go together into one value; large ones are stored alone,
under their own names.

    bundle/7      parts that were written together: names and lengths as JSON, then the parts
    index         JSON: of each bundle the live parts in it
    merge/NAME    a large part

Overwritten and deleted parts become garbage in their old bundle.  A bundle without live parts
is deleted.  When garbage exceeds twice the live bytes, the bundle with most garbage is
compacted: its live parts are written again with what the save writes.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.spark.pack.prefetch import prefetch

INDEX: Final = "index"
BUNDLE: Final = "bundle/"

_LARGE: Final = 1 << 18
"""Bytes from which on a part is stored alone."""

_FULL: Final = 1 << 21
"""Bytes at which a bundle is full: while Spark takes one, the next is compressed."""

_GARBAGE: Final = 2
_SLACK: Final = 1 << 20
"""Garbage bytes that are allowed per live byte, and besides."""

_COMPRESSED: Final = b"zstd"
_CODEC: Final = pa.Codec("zstd", compression_level=1)


class Parts(Protocol):
    """Spark's map state, as far as it is used: names of parts to bytes."""

    def getValue(self, key: tuple[str]) -> tuple[Any, ...] | None:  # noqa: N802
        """The part of this name."""

    def updateValue(self, key: tuple[str], value: tuple[bytes]) -> None:  # noqa: N802
        """Write a part."""

    def removeKey(self, key: tuple[str]) -> None:  # noqa: N802
        """Remove a part; one that is not there is no error."""

    def iterator(self) -> Iterator[tuple[tuple[str], tuple[Any, ...]]]:
        """All parts."""


@dataclass
class _Bundle:
    """What lies in a bundle: all its bytes, those that live, and those that Spark stores."""

    total: int
    stored: int
    live: dict[str, int]

    @property
    def garbage(self) -> int:
        return self.total - sum(self.live.values())


@dataclass
class Bundles:
    """Where each part lies; `alone` has the stored bytes of those that lie by themselves."""

    alone: dict[str, int] = field(default_factory=dict)
    _bundles: dict[int, _Bundle] = field(default_factory=dict)
    _where: dict[str, int] = field(default_factory=dict)
    _next: int = 0

    @classmethod
    def read(cls, stored: Mapping[str, bytes]) -> "tuple[Bundles, dict[str, bytes]]":
        """Where the parts lie, and the parts, of all values of a store but the header."""
        made, found = cls(), {}
        index = json.loads(decompress(stored[INDEX]))
        for number, names in index.items():
            value = stored.get(BUNDLE + number, b"")
            parts = dict(_decode(value)) if value else {}
            for name in names:
                if name not in parts:
                    raise _incomplete(name, int(number))
                found[name] = parts[name]
            live = {name: len(parts[name]) for name in names}
            total = sum(map(len, parts.values()))
            made._hold(int(number), _Bundle(total, len(value), live))
        for name, value in stored.items():
            if name != INDEX and not name.startswith(BUNDLE):
                made.alone[name] = len(value)
                found[name] = decompress(value)
        return made, found

    @property
    def stored(self) -> int:
        """All bytes that are stored."""
        return sum(self.alone.values()) + sum(one.stored for one in self._bundles.values())

    def save(
        self, parts: Parts, written: Mapping[str, bytes], deleted: Iterable[str] = ()
    ) -> int:
        """Write parts and delete others; the bytes that went to the store."""
        for name in deleted:
            self._discard(name)
            if self.alone.pop(name, None) is not None:
                parts.removeKey((name,))
        small: dict[str, bytes] = {}
        large: dict[str, bytes] = {}
        for name, data in written.items():
            self._discard(name)
            if len(data) < _LARGE:
                small[name] = data
                if self.alone.pop(name, None) is not None:
                    parts.removeKey((name,))
            else:
                large[name] = data
        small |= self._compact(parts, sum(map(len, small.values())))
        # While Spark takes a value, the next one is compressed.
        alone = prefetch((name, compress(data)) for name, data in large.items())
        put = sum(self._put_alone(parts, *one) for one in alone)
        groups = list(_grouped(small))
        encoded = ((some, _encode(some)) for some in groups)
        # Nearly always one: a thread of its own would take longer than to compress it.
        ready = prefetch(encoded) if len(groups) > 1 else encoded
        put += sum(self._put_bundle(parts, *one) for one in ready)
        for number in [n for n, one in self._bundles.items() if not one.live]:
            del self._bundles[number]
            parts.removeKey((f"{BUNDLE}{number}",))
        index = {number: list(one.live) for number, one in self._bundles.items()}
        parts.updateValue((INDEX,), (compress(json.dumps(index).encode()),))
        return put

    def _hold(self, number: int, bundle: _Bundle) -> None:
        self._bundles[number] = bundle
        self._where |= dict.fromkeys(bundle.live, number)
        self._next = max(self._next, number + 1)

    def _discard(self, name: str) -> None:
        number = self._where.pop(name, None)
        if number is not None:
            del self._bundles[number].live[name]

    def _put_alone(self, parts: Parts, name: str, compressed: bytes) -> int:
        parts.updateValue((name,), (compressed,))
        self.alone[name] = len(compressed)
        return len(compressed)

    def _put_bundle(self, parts: Parts, some: Mapping[str, bytes], value: bytes) -> int:
        parts.updateValue((f"{BUNDLE}{self._next}",), (value,))
        live = {name: len(data) for name, data in some.items()}
        self._hold(self._next, _Bundle(sum(live.values()), len(value), live))
        return len(value)

    def _compact(self, parts: Parts, coming: int) -> dict[str, bytes]:
        """The live parts of bundles that are given up, since garbage exceeds its limit."""
        found: dict[str, bytes] = {}
        total = coming + sum(one.total for one in self._bundles.values())
        garbage = sum(one.garbage for one in self._bundles.values())
        while garbage > _GARBAGE * (total - garbage) + _SLACK:
            number = max(self._bundles, key=lambda one: self._bundles[one].garbage)
            bundle = self._bundles[number]
            total, garbage = total - bundle.garbage, garbage - bundle.garbage
            for name, data in _live_parts(parts, number, bundle):
                found[name] = data
                self._discard(name)
            bundle.total = 0
        return found


def _live_parts(parts: Parts, number: int, bundle: _Bundle) -> list[tuple[str, bytes]]:
    """What lives in a bundle, read from the store."""
    if not bundle.live:
        return []
    kept = parts.getValue((f"{BUNDLE}{number}",))
    stored_parts = dict(_decode(bytes(kept[0]))) if kept is not None else {}
    for name in bundle.live:
        if name not in stored_parts:
            raise _incomplete(name, number)
    return [(name, stored_parts[name]) for name in bundle.live]


def _grouped(small: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Parts in heaps that are not too large for a bundle."""
    heap: dict[str, bytes] = {}
    size = 0
    for name, data in small.items():
        if size >= _FULL:
            yield heap
            heap, size = {}, 0
        heap[name] = data
        size += len(data)
    if heap:
        yield heap


def _encode(some: Mapping[str, bytes]) -> bytes:
    head = json.dumps([[name, len(data)] for name, data in some.items()]).encode()
    return compress(b"".join([len(head).to_bytes(8, "little"), head, *some.values()]))


def _decode(value: bytes) -> Iterator[tuple[str, bytes]]:
    data = decompress(value)
    at = 8 + int.from_bytes(data[:8], "little")
    names: Sequence[tuple[str, int]] = json.loads(data[8:at])
    for name, length in names:
        yield name, data[at : at + length]
        at += length


def compress(data: bytes) -> bytes:
    """A value in fewer bytes: each has to cross to Spark and into its log of changes."""
    size = len(data).to_bytes(8, "little")
    compressed: bytes = _CODEC.compress(data, asbytes=True)
    return _COMPRESSED + size + compressed if len(compressed) < len(data) else data


def decompress(data: bytes) -> bytes:
    """The value as it was."""
    if not data.startswith(_COMPRESSED):
        return data
    at = len(_COMPRESSED)
    size = int.from_bytes(data[at : at + 8], "little")
    found: bytes = _CODEC.decompress(data[at + 8 :], decompressed_size=size, asbytes=True)
    return found


def _incomplete(name: str, number: int) -> StateError:
    return StateError(
        f"merge: the index of the state names the part '{name}' of bundle {number}, which is "
        "not there; the checkpoint is incomplete; start with a new checkpoint and output folder"
    )
