"""`anabranch explain` as a person runs it: the case, the reasons, and what the files show."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from anabranch.batch.codec import encode, from_elements
from anabranch.batch.schema import ElementSchema, TimeType
from anabranch.cli.explain import command
from anabranch.errors import FileError, UsageError
from anabranch.model.notation import parse

SCHEMA = ElementSchema(TimeType.BIGINT, pa.schema({"a": pa.string()}))
R2 = {"insert_only": True, "ordered": True, "keyed": True}
STREAM = "insert x 1..3; insert y 1..4; insert z 2..3; stable 2"


def write(inbox, name, text=STREAM, note=None):
    folder = Path(inbox) / name
    folder.mkdir(parents=True)
    table = encode(from_elements(parse(text), SCHEMA))
    pq.write_table(table, folder / "part-0.parquet")
    if note is not None:
        (folder / "_replica.json").write_text(json.dumps({"properties": note}))


def run(*arguments):
    found = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return found.exit_code, found.output


def test_the_case_with_its_reason_and_what_a_cheaper_one_needs(tmp_path):
    write(tmp_path, "east", note=R2)
    write(tmp_path, "west", note=R2)
    code, text = run(tmp_path)
    assert code == 0
    assert "  east declares insert_only, ordered, keyed\n" in text
    assert "case R2: every replica promises insert_only, ordered and keyed" in text
    assert "  R0 (remembers the last event): strictly_increasing" in text
    assert "`anabranch merge` merges it as R2, in lanes by start" in text


def test_undeclared_replicas_are_merged_as_r4(tmp_path):
    write(tmp_path, "east", note=R2)
    write(tmp_path, "west")
    code, text = run(tmp_path)
    assert code == 0
    assert "  west declares nothing\n" in text
    assert "case R4: replica 'west' declares nothing, so identities may repeat" in text
    assert "merges it as R4" in text


def test_observe_finds_declarations_that_hold(tmp_path):
    write(tmp_path, "east", note=R2)
    write(tmp_path, "west")
    code, text = run(tmp_path, "--observe")
    assert code == 0
    assert "    holds in all 4 elements so far\n" in text
    assert "so far also insert_only, ordered, ties_in_same_order, keyed: declare" in text
    assert "all that held so far, if it were promised, permits R1" in text


def test_observe_names_the_first_place_where_a_declaration_breaks(tmp_path):
    write(tmp_path, "east", note=R2)
    write(tmp_path, "west", f"{STREAM}; insert w 1..3; insert z 2..9", note=R2)
    code, text = run(tmp_path, "--observe")
    assert code == 1
    place = "west/part-0.parquet, row 5: starts at 1, after an insert that starts at 2"
    assert f"    NOT ordered: {place}\n" in text
    assert "    NOT keyed: west/part-0.parquet, row 6: a second event with this start" in text
    assert "NOT ties_in_same_order" not in text, "it was not declared"
    code, text = run(tmp_path, "--observe", "--json")
    found = json.loads(text)
    assert code == 1
    assert found["replicas"]["east"]["broken"] == []
    assert found["replicas"]["west"]["broken"] == ["ordered", "keyed"]
    assert found["replicas"]["west"]["observed"]["insert_only"] is True


def test_json_has_the_same_facts(tmp_path):
    write(tmp_path, "east", note=R2)
    code, text = run(tmp_path, "--json", "--gaps")
    found = json.loads(text)
    assert code == 0
    assert found["choice"]["case"] == "r3"
    assert found["choice"]["cheaper"]["r1"] == ["ties_in_same_order", "no gaps"]
    assert found["merge"]["accepts"] is True
    assert found["refused"] is None
    assert "observed" not in found["replicas"]["east"]


def test_rows_that_are_no_elements_are_counted(tmp_path):
    (tmp_path / "east").mkdir()
    rows = [{"kind": "insert", "start": 1, "end": 2, "a": "x"}, {"kind": "insert", "end": 2}]
    lines = "\n".join(json.dumps(row) for row in rows)
    (tmp_path / "east" / "part-0.jsonl").write_text(lines)
    code, text = run(tmp_path, "--observe")
    assert (code, "1 rows are not elements" in text) == (1, True)
    assert text.startswith(f"{tmp_path}: 1 replica\n")


def test_a_case_that_is_asked_for(tmp_path):
    write(tmp_path, "east", note=R2)
    code, text = run(tmp_path, "--case", "r3")
    assert (code, "case R3: it was asked for" in text) == (0, True)
    with pytest.raises(UsageError, match="'east' does not declare strictly_increasing"):
        run(tmp_path, "--case", "r0")
    assert "merges it as R4, in lanes by start and payload" in run(tmp_path, "--case", "r4")[1]


def test_a_detached_replica_is_left_out(tmp_path):
    write(tmp_path, "east", note=R2)
    write(tmp_path, "west")
    (tmp_path / "west" / "_detached").touch()
    code, text = run(tmp_path, "--observe")
    assert code == 0
    assert "  west is detached, and left out\n" in text
    assert "case R2: every replica promises" in text
    assert "merges it as R2, in lanes by start; " in text
    assert "; without west" in text


def test_only_an_inbox_is_explained(tmp_path):
    write(tmp_path, "east")
    with pytest.raises(FileError, match="is a stream, expected an inbox"):
        run(tmp_path / "east")


def test_undeclared_replicas_start_as_r3(tmp_path):
    write(tmp_path, "east")
    assert "merges it as R4, in lanes by start and payload" in run(tmp_path)[1]
