"""How loops over rows are compiled: a `kernel` is called by Python, a `part` by kernels.

Compiled at the first call and kept on disk, until a file beside the kernel or in this folder
changes: Numba itself looks only at the kernel's own file, and would go on with parts that are
no longer so.

A kernel reads and writes arrays that are handed in and makes none: reference counting is
switched off, since counting at every call of a part cost several times the work itself.  Hand
read-only inputs through `frozen`, so that a view of an Arrow buffer and an array of our own are
one type and need one compilation.

`KERNEL.py_func` is what was written, for tests that measure coverage.
"""

from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

# `_nrt` is Numba's own name for counting references.
_OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "_nrt": False}

_HERE: Final = Path(__file__).parent

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
    """Makes what is kept on disk depend on the sources that a kernel may be made of."""
    kept = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if kept is not None:  # else the compiler is switched off, or nothing can be kept here
        folder = Path(function.__code__.co_filename).parent
        kept._source_stamp = (kept._source_stamp, _digest(folder), _digest(_HERE))
    return compiled


@cache
def _digest(folder: Path) -> str:
    digest = blake2b(digest_size=16)
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
