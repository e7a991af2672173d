"""How loops over rows are compiled: a `kernel` is called by Python, a `part` by kernels.

Compiled at the first call and kept on disk.  A kernel reads and writes arrays that are handed
in and makes none: reference counting is switched off, since counting at every call of a part
cost several times the work itself.  Hand read-only inputs through `frozen`, so that a view of
an Arrow buffer and an array of our own are one type and need one compilation.

`KERNEL.py_func` is what was written, for tests that measure coverage.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

# `_nrt` is Numba's own name for counting references.
_OPTIONS: Final[dict[str, Any]] = {"cache": True, "nogil": True, "_nrt": False}

_Function = TypeVar("_Function", bound=Callable[..., Any])


def kernel(function: _Function) -> _Function:
    """A loop over rows, called from Python."""
    return cast("_Function", numba.njit(**_OPTIONS)(function))


def part(function: _Function) -> _Function:
    """A step of such a loop, put in where it is called."""
    compiled = numba.njit(forceinline=True, **_OPTIONS)(function)
    return cast("_Function", compiled)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A view of the array that cannot be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


def frozen_rows(rows: NDArray[Any]) -> NDArray[np.int64]:
    """Row numbers in the form that kernels take."""
    return frozen(np.ascontiguousarray(rows, np.int64))
