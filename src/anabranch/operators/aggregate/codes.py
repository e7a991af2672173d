"""Values of fixed width as int64 codes in the same order, and back: for min and max.

The code of a `max` is inverted, so the wanted value always has the least code.  A null has the
greatest code of all; another value may have it too, so nulls are also marked.

>>> array = pa.array([2.5, None, -1.0])
>>> code, is_null = encode(array, greatest=False)
>>> decode(np.sort(code)[:1], pa.float64(), greatest=False).tolist()
[-1.0]
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from numpy.typing import NDArray

from anabranch.batch.batch import FOREVER_UNITS, Ints, Mask
from anabranch.batch.buffers import numbers, pack_bits, to_arrow, valid
from anabranch.operators.aggregate.bags import canonical

NO_CODE: Final = FOREVER_UNITS
"""The code of null."""

_NOT_SIGN: Final = np.int64(FOREVER_UNITS)


def has_code(kind: pa.DataType) -> bool:
    """Whether values of this type have codes: numbers up to 64 bits, times, booleans."""
    is_number = pt.is_integer(kind) and not pt.is_uint64(kind)
    is_float = pt.is_float32(kind) or pt.is_float64(kind)
    is_time = pt.is_temporal(kind) and not pt.is_interval(kind)
    return bool(is_number or is_float or is_time or pt.is_boolean(kind))


def encode(values: pa.Array, *, greatest: bool) -> tuple[Ints, Mask]:
    """The codes of values, and where they are null."""
    kind, is_null = values.type, ~valid(values)
    if pt.is_boolean(kind):
        code = numbers(values.cast(pa.int8()), np.dtype(np.int8)).astype(np.int64)
    elif pt.is_floating(kind):
        dtype = np.float32 if pt.is_float32(kind) else np.float64
        wide = numbers(canonical(values), np.dtype(dtype)).astype(np.float64)
        bits = wide.view(np.int64)
        code = np.where(bits < 0, bits ^ _NOT_SIGN, bits)
    else:
        code = numbers(values, _dtype(kind)).astype(np.int64)
    if greatest:
        code = ~code
    code[is_null] = NO_CODE
    return code, is_null


def decode(code: Ints, kind: pa.DataType, *, greatest: bool) -> NDArray[Any]:
    """The values of these codes, in the form of their type."""
    if greatest:
        code = ~code
    if pt.is_floating(kind):
        wide = np.where(code < 0, code ^ _NOT_SIGN, code).view(np.float64)
        return wide.astype(np.float32) if pt.is_float32(kind) else wide
    return code.astype(np.bool_) if pt.is_boolean(kind) else code.astype(_dtype(kind))


def to_array(code: Ints, has: Mask, kind: pa.DataType, *, greatest: bool) -> pa.Array:
    """An array of the values of these codes; null where there is none."""
    data = decode(np.where(has, code, 0), kind, greatest=greatest)
    if pt.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(data), [pack_bits(has), pack_bits(data)])
    return to_arrow(data, kind, mask=None if has.all() else has)


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pt.is_integer(kind):
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return found
    return np.dtype(np.int32 if kind.bit_width == 32 else np.int64)
