import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import config

from anabranch.batch import kernel as module
from anabranch.batch.kernel import frozen, frozen_rows, kernel

PARTS = "from anabranch.batch.kernel import part\n@part\ndef step(x):\n    return x + {}\n"
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


def _run(folder: Path) -> list[int]:
    command = [sys.executable, "runs.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled, nothing is kept")
def test_a_kept_kernel_is_made_anew_when_a_part_of_it_changed(tmp_path: Path) -> None:
    (tmp_path / "runs.py").write_text(KERNEL)
    (tmp_path / "parts.py").write_text(PARTS.format(1))
    assert _run(tmp_path) == [1, 0]
    assert _run(tmp_path) == [1, 1]
    # Of another length: Python's own cache sees changes within a second only by that.
    (tmp_path / "parts.py").write_text(PARTS.format(20))
    assert _run(tmp_path) == [20, 0]


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
