"""Ctrl-C while a merge waits for rows: it ends with its exit code and no traceback."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from merge_place import Place

from anabranch.cli.interrupt import interrupts_noted


@pytest.mark.spark
@pytest.mark.process
@pytest.mark.deep  # test_watch interrupts one as well
def test_an_idle_watch_ends_without_a_traceback(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.generate(events=50)
    words = ["--output", place.output, "--checkpoint", place.checkpoint, "--watch"]
    words += ["--conf", "spark.ui.enabled=true"]
    command = [sys.executable, "-m", "anabranch", "merge", place.inbox, *words]
    environment = {**os.environ, "ANABRANCH_MASTER": "local[2]", "ANABRANCH_LANES": "2"}
    process = subprocess.Popen(
        [str(word) for word in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    before = []
    for line in process.stderr:
        before.append(line)
        if "trigger 1:" in line:
            break
    assert "its UI is http://" in before[0]
    # Let it fall idle: the handler must meet a call of Spark's that waits.
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(3)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does, to all of the group
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, (before, err)
    assert "buckets add up" in out
    assert "Traceback" not in "".join(before) + err
    assert "Error" not in err


def test_the_first_interrupt_is_noted_and_the_second_interrupts() -> None:
    handler = signal.getsignal(signal.SIGINT)
    with interrupts_noted() as noted:
        assert not noted.is_set()
        signal.raise_signal(signal.SIGINT)
        assert noted.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler


def test_a_thread_that_gets_no_signals_may_ask_too() -> None:
    seen = []

    def work() -> None:
        with interrupts_noted() as noted:
            seen.append(noted.is_set())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [False]
