"""Which output and which checkpoint go together: all other pairs are refused, with advice."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anabranch.errors import StateError
from anabranch.spark.checkpoint.run_record import FILE, Run, find, new_id
from anabranch.spark.checkpoint.run_record import write as write_run
from anabranch.spark.write.records import record_file


def run() -> Run:
    fixed: dict[str, Any] = {"lanes": 2, "case": "r3", "time": "bigint", "has_output": True}
    return Run(run=new_id(), columns=(), founders=("a",), inboxes=("/in",), **fixed)


def record(run: Run, output: Path, checkpoint: Path) -> None:
    for folder in (output, checkpoint):
        write_run(run, folder)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def begin(checkpoint: Path, number: int, log: str = "offsets") -> None:
    (checkpoint / log).mkdir(parents=True, exist_ok=True)
    (checkpoint / log / str(number)).touch()
    (checkpoint / log / f".{number}.crc").touch()


def commit(checkpoint: Path, number: int) -> None:
    begin(checkpoint, number)
    begin(checkpoint, number, "commits")


def write(output: Path, number: int) -> None:
    (output / "progress").mkdir(parents=True, exist_ok=True)
    record_file(output / "progress", number).touch()


def test_what_was_recorded_is_found(output: Path, checkpoint: Path) -> None:
    mine = run()
    record(mine, output, checkpoint)
    assert find(checkpoint, output) == mine
    write(output, 0)
    commit(checkpoint, 0)
    assert find(checkpoint, output) == mine


@pytest.mark.parametrize("left", ["nothing", "beside output", "output", "beside checkpoint"])
def test_a_first_start_that_died_is_a_new_run(
    output: Path, checkpoint: Path, left: str
) -> None:
    if left != "nothing":
        output.mkdir()
        (output / f".{FILE}.123").write_text('{"ru')
    if left in {"output", "beside checkpoint"}:
        record(run(), output, checkpoint)
        (checkpoint / FILE).unlink()
    if left == "beside checkpoint":
        (checkpoint / f".{FILE}.123").write_text("")
    assert find(checkpoint, output) is None
    again = run()
    record(again, output, checkpoint)
    assert find(checkpoint, output) == again


def test_a_first_start_that_died_does_not_take_over_a_foreign_checkpoint(
    output: Path, checkpoint: Path
) -> None:
    record(run(), output, checkpoint)
    (checkpoint / FILE).unlink()
    commit(checkpoint, 0)
    with pytest.raises(StateError, match="checkpoint folder is not empty"):
        find(checkpoint, output)


def test_a_lost_output_folder_is_refused_with_advice(output: Path, checkpoint: Path) -> None:
    record(run(), output, checkpoint)
    (output / FILE).unlink()
    for gone in (False, True):
        if gone:
            output.rmdir()
        with pytest.raises(StateError, match=r"does not: .*restore.* or name two new ones"):
            find(checkpoint, output)


def test_an_output_of_which_the_last_rows_were_removed_is_refused(
    output: Path, checkpoint: Path
) -> None:
    record(run(), output, checkpoint)
    write(output, 9)
    for number in (9, 10):
        commit(checkpoint, number)
    with pytest.raises(StateError, match=r"has committed trigger 10, but .*0010\.\w+ is not"):
        find(checkpoint, output)


@pytest.mark.parametrize("written", [False, True])
def test_a_trigger_that_was_begun_goes_on_written_or_not(
    output: Path, checkpoint: Path, written: bool
) -> None:
    mine = run()
    record(mine, output, checkpoint)
    write(output, 0)
    commit(checkpoint, 0)
    begin(checkpoint, 1)
    if written:
        write(output, 1)
    assert find(checkpoint, output) == mine


@pytest.mark.parametrize("last", [-1, 3])
def test_a_checkpoint_that_forgot_what_was_written_is_refused(
    output: Path, checkpoint: Path, last: int
) -> None:
    record(run(), output, checkpoint)
    for number in range(last + 1):
        commit(checkpoint, number)
    for number in range(last + 2):
        write(output, number)
    with pytest.raises(StateError, match=f"its last trigger is {last}, but .* restore it"):
        find(checkpoint, output)


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", "", 7])
def test_a_run_id_that_leads_elsewhere_is_refused(
    output: Path, checkpoint: Path, name: object
) -> None:
    record(run(), output, checkpoint)
    for folder in (output, checkpoint):
        note = json.loads((folder / FILE).read_text())
        (folder / FILE).write_text(json.dumps({**note, "run": name}))
    with pytest.raises(StateError, match="not a run file of anabranch"):
        find(checkpoint, output)


def test_two_runs_do_not_mix(output: Path, checkpoint: Path, tmp_path: Path) -> None:
    record(run(), output, tmp_path / "other checkpoint")
    record(run(), tmp_path / "other output", checkpoint)
    with pytest.raises(StateError, match="name two folders of one run"):
        find(checkpoint, output)


def test_a_run_keeps_its_records_where_they_were(output: Path, checkpoint: Path) -> None:
    """They show what was written: with an output folder there, else in the checkpoint."""
    record(run(), output, checkpoint)
    with pytest.raises(StateError, match="was started with an output folder"):
        find(checkpoint)


def test_a_checkpoint_alone_is_found_and_a_foreign_one_rejected(checkpoint: Path) -> None:
    assert find(checkpoint) is None
    mine = replace(run(), has_output=False)
    write_run(mine, checkpoint)
    assert find(checkpoint) == mine
    (checkpoint / FILE).unlink()
    commit(checkpoint, 0)
    with pytest.raises(StateError, match=r"a checkpoint that is not of a run of ours"):
        find(checkpoint)
