"""Without the compiler (NUMBA_DISABLE_JIT=1, for coverage) words wrap as well."""

from collections.abc import Iterator

import numpy as np
import pytest
from numba import config

pytest.register_assert_rewrite("stepped")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A picture that every check shows on other engines is left to the deep runs on Spark."""
    for item in items:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        if params.get("engine") == "spark" and "case" in params:
            shown = getattr(item.module, "SHOWN", None) if hasattr(item, "module") else None
            if shown is not None and params["case"].name not in shown:
                item.add_marker(pytest.mark.deep)


@pytest.fixture(autouse=True)
def _words_wrap() -> Iterator[None]:
    with np.errstate(over="ignore" if config.DISABLE_JIT else "warn"):
        yield
