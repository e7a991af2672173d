import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import pytest
from numba import config

from anabranch.batch import kernel as module
from anabranch.batch.kernel import _compile_once, _read_index, frozen, frozen_rows, kernel

STEP = "from anabranch.batch.kernel import part\n@part\ndef step(x):\n    return x + {}\n"
PARTS = "from steps import (  # the way to it\n    step,\n)\n"
KERNEL = """\
import numpy as np
from parts import step
from anabranch.batch.kernel import kernel
@kernel
def run(out):
    for i in range(out.size):
        out[i] = step(out[i])
out = np.zeros(1, np.int64)
run(out)
print(out[0], sum(run.stats.cache_hits.values()) if hasattr(run, "stats") else 0)
"""
compiled = pytest.mark.skipif(
    bool(config.DISABLE_JIT), reason="nothing is compiled, nothing is cached"
)


def _write(folder: Path, added: int) -> Path:
    """A kernel that reaches its part through another module, and adds this number."""
    folder.mkdir(exist_ok=True)
    (folder / "runs.py").write_text(KERNEL)
    (folder / "parts.py").write_text(PARTS)
    (folder / "steps.py").write_text(STEP.format(added))
    return folder


def _run(folder: Path, cache: str = "") -> list[int]:
    """What the kernel made of nought, and how often it came out of the cache."""
    command = [sys.executable, "runs.py"]
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return [int(word) for word in done.stdout.split()]


@compiled
def test_a_cached_kernel_is_stale_when_a_module_that_it_imports_changed(tmp_path: Path) -> None:
    _write(tmp_path, 1)
    assert _run(tmp_path) == [1, 0]
    (tmp_path / "other.py").write_text("imported = False\n")
    assert _run(tmp_path) == [1, 1]
    # Of another length: Python's own cache sees changes within a second only by that.
    _write(tmp_path, 20)
    assert _run(tmp_path) == [20, 0]


@compiled
def test_a_cache_folder_is_shared_by_equal_sources_wherever_they_are(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    assert _run(_write(tmp_path / "first", 1), cache) == [1, 0]
    assert _run(_write(tmp_path / "second", 1), cache) == [1, 1]
    assert _run(_write(tmp_path / "other", 2), cache) == [2, 0]
    # What others compile from other sources displaces nothing.
    assert _run(tmp_path / "first", cache) == [1, 1]


def test_one_compiles_while_others_wait(tmp_path: Path) -> None:
    index, begun, may_end = tmp_path / "cache" / "run.nbi", Event(), Event()
    seen: list[str] = []

    def compile_slowly(types: str) -> None:
        begun.set()
        assert may_end.wait(10)
        seen.append(types)

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(_compile_once, compile_slowly, index, "first")
        assert begun.wait(10)
        second = pool.submit(_compile_once, seen.append, index, "second")
        with pytest.raises(TimeoutError):
            second.result(timeout=0.2)
        may_end.set()
        first.result(10)
        second.result(10)
    assert seen == ["first", "second"]


def test_without_a_lock_each_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    seen: list[str] = []
    _compile_once(seen.append, tmp_path / "file" / "run.nbi", "no folder")
    monkeypatch.setattr(module, "_ATTEMPTS", 2)
    held = partial(_compile_once, seen.append, tmp_path / "run.nbi")
    _compile_once(held, tmp_path / "run.nbi", "held by another for long")
    assert seen == ["no folder", "held by another for long"]


def test_kernels_are_kept_where_that_is_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    class Bare:
        """A compiled function of which nothing is kept."""

    monkeypatch.setattr(module.numba, "njit", lambda **_: lambda _: Bare())
    assert isinstance(kernel(lambda: None), Bare)


def test_frozen_arrays_are_one_type_and_cannot_be_written_to() -> None:
    array = np.arange(3)
    view = frozen(array)
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    array[0] = 7
    assert view[0] == 7
    rows = frozen_rows(np.arange(6, dtype=np.int8)[::2])
    assert rows.dtype == np.int64
    assert rows.flags.c_contiguous
    assert not rows.flags.writeable


@pytest.mark.parametrize("error", [AttributeError, ImportError])
def test_an_index_that_names_what_the_sources_lost_counts_as_empty(error):
    def stale():
        raise error

    assert _read_index(stale) == {}
    assert _read_index(lambda: {"signature": "data"}) == {"signature": "data"}
