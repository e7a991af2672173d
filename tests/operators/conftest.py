"""Without the compiler (NUMBA_DISABLE_JIT=1, for coverage) words wrap as well."""

from collections.abc import Iterator

import numpy as np
import pytest
from numba import config

pytest.register_assert_rewrite("stepped")


@pytest.fixture(autouse=True)
def _words_wrap() -> Iterator[None]:
    with np.errstate(over="ignore" if config.DISABLE_JIT else "warn"):
        yield
