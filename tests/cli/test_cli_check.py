"""`anabranch check` as a person runs it: what it prints, and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from anabranch.cli.check import command
from anabranch.errors import AnabranchError, FileError, ViolationError

ROWS = [
    {"kind": "insert", "start": 1, "end": 9, "old_end": None, "a": "x"},
    {"kind": "insert", "start": 2, "end": None, "old_end": None, "a": "[red]y[/]"},
    {"kind": "stable", "start": 3, "end": None, "old_end": None, "a": None},
]
SCHEMA = pa.schema(
    [
        ("kind", pa.string()),
        ("start", pa.int64()),
        ("end", pa.int64()),
        ("old_end", pa.int64()),
        ("a", pa.string()),
    ]
)


def write(folder: Path, rows: list[dict]) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "part-0.parquet")
    return folder


def run(*arguments: object) -> tuple[int, str]:
    found = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good", ROWS)


def test_kept_promises_are_a_yes(good):
    code, text = run(good)
    assert code == 0
    assert "Yes: every promise is kept." in text


def test_the_same_history_is_a_yes(good):
    code, text = run(good, good)
    assert (code, "the histories are the same" in text) == (0, True)
    code, text = run(good, good, "--until-frontier")
    assert (code, "below 3 the histories are the same" in text) == (0, True)


def test_without_a_stable_nothing_can_be_compared_below_it(tmp_path, good):
    code, text = run(write(tmp_path / "open", ROWS[:2]), good, "--until-frontier")
    assert (code, "nothing was compared" in text) == (0, True)


def test_broken_promises_are_shown_with_their_place(tmp_path):
    rows = [
        *ROWS,
        {**ROWS[0], "start": 2, "end": 4},
        {**ROWS[0], "kind": "adjust", "old_end": 5},
    ]
    code, text = run(write(tmp_path / "bad", rows))
    assert code == 1
    assert "2 broken promises:" in text
    assert "part-0.parquet, row 4: insert a='x' 2..4: it changes time" in text
    assert "part-0.parquet, row 5: adjust a='x' 1..5->9: it adjusts an event that" in text
    assert "No: A breaks promises." in text


def test_a_difference_is_a_table_and_its_payload_is_no_markup(tmp_path, good):
    changed = [{**ROWS[0], "end": 7}, ROWS[2]]
    code, text = run(good, write(tmp_path / "changed", changed))
    assert code == 1
    assert "A and B differ: 1 only in A, 0 only in B, 1 with different ends" in text
    assert "a='[red]y[/]'" in text
    assert "forever" in text
    assert "No: the histories differ." in text


def test_what_is_over_the_limit_is_counted(tmp_path, good):
    rows = [{**ROWS[0], "start": start, "a": "long" * 50} for start in range(1, 9)]
    code, text = run(write(tmp_path / "other", rows), good, "--limit", "3")
    assert (code, text.count("│ only in ")) == (1, 3)
    assert "8 only in A, 2 only in B" in text
    assert "... and 7 more" in text


def test_rows_that_are_no_elements_are_shown(tmp_path):
    bad = write(tmp_path / "bad", [*ROWS, {**ROWS[0], "kind": "upsert"}])
    code, text = run(bad)
    assert code == 1
    assert "1 rows are not elements:" in text
    assert "row 4: kind is 'upsert'" in text
    assert "No: A has rows that are not elements." in text
    with pytest.raises(ViolationError, match="row 4"):
        run(bad, "--strict")


def test_replicas_are_named(tmp_path, good):
    write(tmp_path / "inbox" / "east", ROWS)
    write(tmp_path / "inbox" / "west", [*ROWS[:1], ROWS[2], *ROWS[:1]])
    code, text = run(tmp_path / "inbox", good)
    assert code == 1
    assert "1 broken promises by west:" in text
    assert "A, west, and B differ" in text
    assert "No: A breaks promises; the histories differ (west)." in text


def test_json_is_one_object_and_nothing_else(good):
    code, text = run(good, good, "--json")
    found = json.loads(text)
    assert (code, found["ok"], found["a"]["streams"][0]["frontier"]) == (0, True, 3)
    assert found["comparisons"][0]["equal"] is True


def test_bad_input_has_exit_code_2(tmp_path):
    with pytest.raises(FileError) as caught:
        run(tmp_path / "nowhere")
    assert caught.value.exit_code == 2
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(AnabranchError) as other:
        run(tmp_path / "half")
    assert (other.value.exit_code, "a.parquet" in str(other.value)) == (2, True)


def test_the_program_turns_errors_into_words_and_codes(tmp_path, good):
    def program(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "anabranch", "check", *map(str, arguments)]
        return subprocess.run(line, capture_output=True, text=True, check=False)

    missing = program(tmp_path / "nowhere")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "no such file or folder" in missing.stderr
    fine = program(good)
    assert (fine.returncode, fine.stderr) == (0, "")
