"""State objects that outlive their task, shared by the Python workers of one machine.

Spark gives a lane's next task to any idle worker.  A copy that only the worker which made it
could use would be lost at every second trigger of two lanes.  So the arrays of a copy lie in
memory that other workers can map (`memfd`), and a small note, a file named by the nonce of the
save, has its address: whoever holds the nonce of the committed state removes the note and
continues with the same memory.  Only arrays that a step has allocated are copied.

* A note is taken by renaming it, so by one process only; also the worker that wrote it must
  take it.  From then on the memory may change, and no other process has access to it.
* A step that fails leaves no note: its half-changed copy is never seen.
* A nonce is used once: a note fits the save that Spark committed, or none.
* The memory goes with the last process that has it; what stays behind is a small file.

Where a machine has no `memfd` or no private folder for notes, each worker keeps its own copies.
`ANABRANCH_WARM=0` in the driver's environment switches all copies off: every step then reads
its state from Spark's store.
Notes are pickles, read only from a folder that no other user can write to.
"""

import contextlib
import logging
import mmap
import os
import pickle
import stat
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from anabranch.spark.session import host

log = logging.getLogger(__name__)

VARIABLE: Final = "ANABRANCH_WARM"

WARM_COPIES: Final = 8
"""The number of lane states that one worker caches; a copy is as large as the state."""

_LARGE: Final = 1 << 14
"""Arrays below this many bytes travel in the note itself."""

_OLD_SECONDS: Final = 86_400

Key = tuple[str, int, int]
"""A run, a stage and a lane."""


class _Segment:
    """A piece of memory that other processes can map; it is there while one of them has it."""

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        self.inode = os.fstat(number).st_ino
        self.view = memoryview(mmap.mmap(number, size))
        self.address = _address(self.view)

    @classmethod
    def new(cls, data: memoryview) -> "_Segment":
        number = os.memfd_create("anabranch", os.MFD_CLOEXEC)
        os.ftruncate(number, data.nbytes)
        made = cls(number, data.nbytes)
        made.view[:] = data
        return made

    @classmethod
    def of(cls, pid: int, number: int, inode: int, size: int) -> "_Segment":
        """The memory of another process; OSError if that has it no more."""
        mine = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
        facts = os.fstat(mine)
        # A number that was given back may name any other file by now.
        if (facts.st_ino, facts.st_size) != (inode, size):
            os.close(mine)
            message = f"process {pid} has another file under {number}"
            raise OSError(message)
        return cls(mine, size)

    def has(self, address: int) -> bool:
        return self.address <= address < self.address + self.size

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.number)


@dataclass(frozen=True)
class _Place:
    """Where an array lies: in which segment of which process."""

    pid: int
    number: int
    inode: int
    size: int
    offset: int
    length: int
    readonly: bool


@dataclass
class _Copy:
    nonce: str
    lane: Any
    is_shared: bool
    segments: list[_Segment] = field(default_factory=list)


class WarmCopies:
    """Copies of lanes, each with the nonce of its save; `notes` is None: none are shared."""

    def __init__(
        self, room: int = WARM_COPIES, notes: Path | None = None, *, large: int = _LARGE
    ) -> None:
        self._room = room
        self._notes = notes
        self._large = large
        self._copies: OrderedDict[Key, _Copy] = OrderedDict()
        self.hits = self.misses = self.borrowed = 0

    def take(self, key: Key, nonce: str) -> Any:
        """The copy of this very save, or None; either way the lane has no copy afterwards."""
        own = self._copies.pop(key, None)
        note = self._claim(key, nonce)
        if own is not None and own.nonce == nonce and (note is not None or not own.is_shared):
            self.hits += 1
            self._copies[key] = _Copy("", None, is_shared=False, segments=own.segments)
            return own.lane
        lane = None if note is None else self._borrow(key, note)
        if lane is None:
            self.misses += 1
            return None
        self.hits += 1
        self.borrowed += 1
        return lane

    def put(self, key: Key, nonce: str, lane: Any) -> None:
        """Cache the state that was just saved; evict the least recently used copy."""
        before = self._copies.pop(key, None)
        segments = before.segments if before is not None else []
        self._copies[key] = self._shared(key, nonce, lane, segments)
        self._evict_taken()
        while len(self._copies) > self._room:
            self._copies.popitem(last=False)

    def _evict_taken(self) -> None:
        """Free the memory of copies that another worker has taken over."""
        for key, copy in list(self._copies.items()):
            if copy.is_shared and not (self._folder(key) / copy.nonce).exists():
                del self._copies[key]

    def _shared(self, key: Key, nonce: str, lane: Any, segments: Sequence[_Segment]) -> _Copy:
        if self._notes is None:
            return _Copy(nonce, lane, is_shared=False)
        try:
            data, places, used = _lay_out(lane, segments, self._large)
            folder = self._folder(key)
            folder.mkdir(mode=0o700, exist_ok=True)
            stale = list(folder.iterdir())
            temporary = folder / f".{os.getpid()}"
            temporary.write_bytes(pickle.dumps((data, places)))
            temporary.rename(folder / nonce)
            for old in stale:
                old.unlink(missing_ok=True)
            # From now on the arrays are those in the segments: the next put copies no others.
            return _Copy(nonce, _read(data, places, used), is_shared=True, segments=used)
        except (OSError, pickle.PickleError) as problem:
            log.warning("a warm copy is not shared: %s", problem)
            return _Copy(nonce, lane, is_shared=False)

    def _claim(self, key: Key, nonce: str) -> bytes | None:
        if self._notes is None or not nonce:
            return None
        mine = self._folder(key) / f".taken-{os.getpid()}"
        try:
            (self._folder(key) / nonce).rename(mine)
            data = mine.read_bytes()
            mine.unlink()
        except OSError:
            return None
        return data

    def _borrow(self, key: Key, note: bytes) -> Any:
        try:
            data, places = pickle.loads(note)
            opened: dict[tuple[int, int], _Segment] = {}
            for place in places:
                where = place.pid, place.number
                if where not in opened:
                    opened[where] = _Segment.of(*where, place.inode, place.size)
            used = [opened[place.pid, place.number] for place in places]
            lane = _read(data, places, used)
        except OSError as problem:  # its process has ended, or may not be looked into
            log.debug("a warm copy is gone: %s", problem)
            return None
        segments = list(opened.values())
        self._copies[key] = _Copy("", None, is_shared=False, segments=segments)
        return lane

    def _folder(self, key: Key) -> Path:
        assert self._notes is not None
        return self._notes / "-".join(map(str, key))


def _lay_out(
    lane: Any, segments: Sequence[_Segment], large: int
) -> tuple[bytes, list[_Place], list[_Segment]]:
    """The object without its large arrays, and where these lie; new ones are copied there."""
    places: list[_Place] = []
    used: list[_Segment] = []

    def lay(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < large:
            return True  # in the pickle
        address = _address(raw)
        found = next((one for one in segments if one.has(address)), None) or _Segment.new(raw)
        offset = address - found.address if found.has(address) else 0
        whose = os.getpid(), found.number, found.inode, found.size
        places.append(_Place(*whose, offset, raw.nbytes, raw.readonly))
        used.append(found)
        return False

    data = pickle.dumps(lane, protocol=5, buffer_callback=lay)
    return data, places, used


def _read(data: bytes, places: Sequence[_Place], used: Sequence[_Segment]) -> Any:
    views = [
        segment.view[place.offset : place.offset + place.length]
        for place, segment in zip(places, used, strict=True)
    ]
    # Kernels are compiled for arrays that may be written to, and again for those that may not.
    buffers = [
        view.toreadonly() if place.readonly else view
        for place, view in zip(places, views, strict=True)
    ]
    return pickle.loads(data, buffers=buffers)


def _address(view: memoryview) -> int:
    where: int = np.frombuffer(view, np.uint8).__array_interface__["data"][0]
    return where


def is_switched_on(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether workers may keep copies."""
    return host.is_switched_on(VARIABLE, "no copies of states in workers", environ)


def private_folder() -> Path | None:
    """A folder for notes that only this user can write to; None if there can be none."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):
        return None
    root = Path(tempfile.gettempdir()) / f"anabranch-warm-{os.getuid()}"
    try:
        root.mkdir(mode=0o700, exist_ok=True)
        facts = root.lstat()
        mode = stat.S_IMODE(facts.st_mode)
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or mode & 0o077:
            return None
        _tidy(root)
    except OSError:
        return None
    return root


def _tidy(root: Path) -> None:
    """Remove notes of runs that ended long ago."""
    before = time.time() - _OLD_SECONDS
    for folder in root.iterdir():
        if folder.stat().st_mtime < before:
            for note in folder.iterdir():
                note.unlink(missing_ok=True)
            folder.rmdir()
