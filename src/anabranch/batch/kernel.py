"""How loops over rows are compiled: a `kernel` is called by Python, a `part` by kernels.

Compiled at the first call and cached on disk.  A cached kernel is used as long as its module
and the modules of ours that this one imports, directly or not, have the content that it was
compiled from: Numba itself looks only at the kernel's own file, and would go on with parts that
have changed since.  `NUMBA_CACHE_DIR` puts the cache into a folder of its own, where content
alone names an entry, so that another checkout of the same sources uses it as well.  One process
compiles a function while others wait and then read the cache: the workers of a first query need
the same kernels at the same time.

A kernel reads and writes arrays that are handed in and makes none: reference counting is
switched off, since counting at every call of a part cost several times the work itself.  Hand
read-only inputs through `frozen`, so that a view of an Arrow buffer and an array of our own are
one type and need one compilation.

`KERNEL.py_func` is what was written, for tests that measure coverage.
"""

import contextlib
import fcntl
import re
import time
from collections.abc import Callable
from functools import cache, partial
from hashlib import blake2b
from pathlib import Path
from typing import IO, Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

# `_nrt` is Numba's own name for counting references.
_OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "_nrt": False}

_ROOT: Final = Path(__file__).parents[1]
"""The folder of `anabranch`."""

# Only imports at the margin: one within a function or for type checkers alone gives a kernel
# neither parts nor constants.
_IMPORTS: Final = re.compile(
    r"^(?:from +([\w.]+) +import +(?:\(([^)]*)\)|(.*))|import +(.*))$", re.MULTILINE
)

_ATTEMPTS: Final = 3000
_PAUSE: Final = 0.02
"""Seconds between attempts: a minute in all, and a large kernel takes about ten seconds."""

_COMMENT: Final = re.compile("#.*")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """A loop over rows, called from Python."""
    return cast("_Function", _kept(numba.njit(**_OPTIONS)(function), function))


def part(function: _Function) -> _Function:
    """A step of such a loop, put in where it is called."""
    compiled = numba.njit(forceinline=True, **_OPTIONS)(function)
    return cast("_Function", _kept(compiled, function))


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A view of the array that cannot be written to."""
    view = array.view()
    view.setflags(write=False)
    return view


def frozen_rows(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Row numbers in the form that kernels take."""
    return frozen(np.ascontiguousarray(rows, np.int64))


def _kept(compiled: Any, function: Callable[..., Any]) -> Any:
    """Makes the cache of a function depend on the sources that it may be compiled from."""
    kept = getattr(compiled, "_cache", None)
    file = getattr(kept, "_cache_file", None)
    if kept is None or file is None:
        return compiled  # the compiler is switched off, or nothing can be cached here
    digest = _digest(Path(function.__code__.co_filename), function.__module__)
    folder: str = vars(numba.config)["CACHE_DIR"]
    if folder:
        # Numba names a folder by the path of the sources: no other checkout would find it.
        path = str(Path(folder) / f"anabranch-{digest}")
        kept._cache_path = kept._impl.locator._cache_path = path
        file = kept._cache_file = type(file)(path, kept._impl.filename_base, digest)
    file._source_stamp = digest
    file._load_index = partial(_read_index, file._load_index)
    compiled.compile = partial(_compile_once, compiled.compile, Path(file._index_path))
    return compiled


def _compile_once(compile_it: Callable[[Any], Any], index: Path, types: Any) -> Any:
    """Reads the cache or compiles, while no other process does so for the same function."""
    with contextlib.ExitStack() as stack:
        try:
            index.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(index.with_suffix(".lock").open("ab"))
            _wait_for(lock)
        except OSError:
            pass  # a folder that cannot be written to, or a file system without locks
        return compile_it(types)


def _wait_for(lock: IO[bytes]) -> None:
    """Lock the file; without success go on, since compiling twice only takes longer."""
    for _ in range(_ATTEMPTS):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return


def _read_index(read: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """The entries of an index; none if it names a class that the sources do not have any more.

    In the folder of the sources an index outlives them: after an update it is read before its
    stamp is compared.
    """
    try:
        return read()
    except (AttributeError, ImportError):
        return {}


@cache
def _digest(file: Path, module: str) -> str:
    """One for the content of a module and of all modules of ours that it imports."""
    # A module that belongs to no package finds others beside it.
    root = file.parents[0 if module == "__main__" else module.count(".")]
    found, waiting = {file}, [file]
    while waiting:
        imported = _imported(waiting.pop(), root) - found
        waiting += imported
        found |= imported
    # What is cached names its module, and imports it when it is loaded.
    content = [module.encode(), *sorted(map(_content, found))]
    return blake2b(b"".join(content), digest_size=16).hexdigest()


@cache
def _content(file: Path) -> bytes:
    return blake2b(file.read_bytes(), digest_size=16).digest()


@cache
def _imported(file: Path, root: Path) -> frozenset[Path]:
    """The files of the modules that a file imports, as far as they are ours."""
    names: set[str] = set()
    code = _COMMENT.sub("", file.read_text(encoding="utf-8"))
    for origin, many, few, modules in _IMPORTS.findall(code):
        listed = {
            word.split()[0] for word in (many or few or modules).split(",") if word.strip()
        }
        # What is imported from a package may be a module of it.
        names |= {origin, *(f"{origin}.{name}" for name in listed)} if origin else listed
    return frozenset(path for name in names for path in _files(root, name))


@cache
def _files(root: Path, name: str) -> tuple[Path, ...]:
    """The file of a module, if it lies below the root or is of this package."""
    top, *inner = name.split(".")
    base = _ROOT if top == _ROOT.name else root / top
    place = base.joinpath(*inner)
    ways = (place.with_suffix(".py"), place / "__init__.py")
    return tuple(path for path in ways if path.is_file())
