"""kill -9 of a merge whose consumed files are archived while it runs: nothing is lost.

`anabranch clean --inbox` works again and again beside the merge and after each kill; in between
the last entry of Spark's commit log is taken away, so that a committed trigger runs again.
"""

import shutil
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from faulty import MakeScene, Scene

from anabranch.cli import clean

pytestmark = [pytest.mark.spark, pytest.mark.deep]

KILLS = 5


class Cleaner:
    """Archives what is consumed, by the command, until it is stopped."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.archive = scene.place.root / "archive"
        self._ended = threading.Event()
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def clean(self) -> None:
        place = self.scene.place
        folders = ["--inbox", place.inbox, "--checkpoint", place.checkpoint]
        words = [*folders, "--archive", self.archive, "--yes"]
        ran = CliRunner().invoke(clean.command, list(map(str, words)))
        if ran.exit_code and "needs --checkpoint" not in ran.output:  # there is a run
            self.failures.append(f"{ran.output} {ran.exception!r}")

    def _run(self) -> None:
        while not self._ended.wait(1):
            self.clean()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()
        assert self.failures == []


def set_aside(scene: Scene) -> None:
    """Copies of all files, for the count of rows at the end."""
    copies = scene.place.root / "copies"
    found: list[Path] = []
    for folder in (scene.place.inbox, scene.place.root / "held"):
        for file in folder.glob("*/part-*"):
            target = copies / file.parent.name / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            found.append(Path(shutil.copy2(file, target)))
    scene.files = found


@pytest.mark.parametrize("number", [1, 2])
def test_archived_while_it_is_killed(scene: MakeScene, number: int) -> None:
    here = scene(number)
    set_aside(here)
    cleaner = Cleaner(here)
    for _ in range(KILLS):
        here.run_and_kill(files=2)
        if here.rng.random() < 0.5:
            here.lose_entry("commits")
    cleaner.stop()
    cleaner.clean()
    report = here.finish()
    gone = sorted(file.name for file in cleaner.archive.glob("*/part-*"))
    print(f"archived {len(gone)} of {len(here.files)} files")
    assert gone
    assert report["rows"] > 0
