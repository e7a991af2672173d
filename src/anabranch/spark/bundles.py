"""Many small parts as one value of the state store: a *bundle*.

A call to Spark's store has a price of its own, and one save changes a hundred small parts.  So
the small parts that a save writes lie together in one value; large ones lie alone, under their
own names.

    bundle/7      parts that were written together: names and lengths as JSON, then the parts
    index         JSON: of each bundle the parts in it that live
    merge/NAME    a large part

A part that is written again, or deleted, is dead where it lay.  A bundle without a living part
is removed.  When much more is dead than lives, the living parts of the deadest bundle are
written anew beside what a save writes, so what is stored stays within a few times of what
lives.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from anabranch.errors import StateError
from anabranch.spark.ahead import ahead

INDEX: Final = "index"
BUNDLE: Final = "bundle/"

_LARGE: Final = 1 << 18
"""A part of so many bytes lies alone."""

_FULL: Final = 1 << 21
"""A bundle of so many bytes takes no more parts: while Spark takes one, the next is made."""

_DEAD: Final = 2
_SLACK: Final = 1 << 20
"""So many dead bytes may lie beside each living one, and so many besides."""

_PRESSED: Final = b"zstd"
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
    living: dict[str, int]

    @property
    def dead(self) -> int:
        return self.total - sum(self.living.values())


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
        index = json.loads(loosen(stored[INDEX])) if INDEX in stored else {}
        for number, names in index.items():
            value = stored.get(BUNDLE + number, b"")
            parts = dict(_untied(value)) if value else {}
            for name in names:
                if name not in parts:
                    raise _incomplete(name, int(number))
                found[name] = parts[name]
            living = {name: len(parts[name]) for name in names}
            total = sum(map(len, parts.values()))
            made._hold(int(number), _Bundle(total, len(value), living))
        for name, value in stored.items():
            if name != INDEX and not name.startswith(BUNDLE):
                made.alone[name] = len(value)
                found[name] = loosen(value)
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
            self._bury(name)
            if self.alone.pop(name, None) is not None:
                parts.removeKey((name,))
        small: dict[str, bytes] = {}
        large: dict[str, bytes] = {}
        for name, data in written.items():
            self._bury(name)
            if len(data) < _LARGE:
                small[name] = data
                if self.alone.pop(name, None) is not None:
                    parts.removeKey((name,))
            else:
                large[name] = data
        small |= self._rescue(parts, sum(map(len, small.values())))
        # While Spark takes a value, the next one is pressed.
        alone = ahead((name, press(data)) for name, data in large.items())
        put = sum(self._put_alone(parts, *one) for one in alone)
        tied = ahead((some, _tied(some)) for some in _heaps(small))
        put += sum(self._put_bundle(parts, *one) for one in tied)
        for number in [n for n, one in self._bundles.items() if not one.living]:
            del self._bundles[number]
            parts.removeKey((f"{BUNDLE}{number}",))
        index = {number: list(one.living) for number, one in self._bundles.items()}
        parts.updateValue((INDEX,), (press(json.dumps(index).encode()),))
        return put

    def _hold(self, number: int, bundle: _Bundle) -> None:
        self._bundles[number] = bundle
        self._where |= dict.fromkeys(bundle.living, number)
        self._next = max(self._next, number + 1)

    def _bury(self, name: str) -> None:
        number = self._where.pop(name, None)
        if number is not None:
            del self._bundles[number].living[name]

    def _put_alone(self, parts: Parts, name: str, pressed: bytes) -> int:
        parts.updateValue((name,), (pressed,))
        self.alone[name] = len(pressed)
        return len(pressed)

    def _put_bundle(self, parts: Parts, some: Mapping[str, bytes], value: bytes) -> int:
        parts.updateValue((f"{BUNDLE}{self._next}",), (value,))
        living = {name: len(data) for name, data in some.items()}
        self._hold(self._next, _Bundle(sum(living.values()), len(value), living))
        return len(value)

    def _rescue(self, parts: Parts, coming: int) -> dict[str, bytes]:
        """The living parts of bundles that are given up, since too much of all is dead."""
        found: dict[str, bytes] = {}
        total = coming + sum(one.total for one in self._bundles.values())
        dead = sum(one.dead for one in self._bundles.values())
        while dead > _DEAD * (total - dead) + _SLACK:
            number = max(self._bundles, key=lambda one: self._bundles[one].dead)
            bundle = self._bundles[number]
            total, dead = total - bundle.dead, dead - bundle.dead
            for name, data in _living(parts, number, bundle):
                found[name] = data
                self._bury(name)
            bundle.total = 0
        return found


def _living(parts: Parts, number: int, bundle: _Bundle) -> list[tuple[str, bytes]]:
    """What lives in a bundle, read from the store."""
    if not bundle.living:
        return []
    kept = parts.getValue((f"{BUNDLE}{number}",))
    lying = dict(_untied(bytes(kept[0]))) if kept is not None else {}
    for name in bundle.living:
        if name not in lying:
            raise _incomplete(name, number)
    return [(name, lying[name]) for name in bundle.living]


def _heaps(small: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
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


def _tied(some: Mapping[str, bytes]) -> bytes:
    head = json.dumps([[name, len(data)] for name, data in some.items()]).encode()
    return press(b"".join([len(head).to_bytes(8, "little"), head, *some.values()]))


def _untied(value: bytes) -> Iterator[tuple[str, bytes]]:
    data = loosen(value)
    at = 8 + int.from_bytes(data[:8], "little")
    names: Sequence[tuple[str, int]] = json.loads(data[8:at])
    for name, length in names:
        yield name, data[at : at + length]
        at += length


def press(data: bytes) -> bytes:
    """A value in fewer bytes: each has to cross to Spark and into its log of changes."""
    size = len(data).to_bytes(8, "little")
    pressed: bytes = _CODEC.compress(data, asbytes=True)
    return _PRESSED + size + pressed if len(pressed) < len(data) else data


def loosen(data: bytes) -> bytes:
    """The value as it was."""
    if not data.startswith(_PRESSED):
        return data
    at = len(_PRESSED)
    size = int.from_bytes(data[at : at + 8], "little")
    found: bytes = _CODEC.decompress(data[at + 8 :], decompressed_size=size, asbytes=True)
    return found


def _incomplete(name: str, number: int) -> StateError:
    return StateError(
        f"merge: the index of the state names the part '{name}' of bundle {number}, which is "
        "not there; the checkpoint is incomplete; start with a new checkpoint and output folder"
    )
