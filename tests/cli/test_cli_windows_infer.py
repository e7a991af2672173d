"""`anabranch windows infer`: asks a real program, says what fits, and fails in words."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.errors import AnabranchError

# Windows on a grid, each reported once when a later tuple shows that it is over.
GRID = """
import json, sys
probe = json.load(sys.stdin)
size, slide, held, shown = probe["size"], probe["slide"], {}, []
for step, one in enumerate(probe["tuples"]):
    last = one["time"] // slide * slide
    for start in range(last, one["time"] - size, -slide):
        held.setdefault(start, []).append(one["value"])
    for start in sorted(held):
        if start + size <= one["time"]:
            shown.append({"value": sum(held.pop(start)), "start": start, "end": start + size,
                          "step": step})
print(json.dumps(shown))
"""


def infer(tmp_path: Path, program: str, *words: str) -> Result:
    path = tmp_path / "my engine.py"
    path.write_text(program)
    line = shlex.join([sys.executable, "-S", "-E", str(path)])
    return CliRunner().invoke(cli, ["windows", "infer", "--command", line, *words])


def test_a_program_is_found_out(tmp_path: Path) -> None:
    ran = infer(tmp_path, GRID, "--no-late", "--probes", "40", "--json")
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.output)
    found = {one["name"]: one["values"] for one in told["parameters"]}
    assert found["report.window_close"] == [True]
    assert found["start.anchor"] == ["grid"]
    assert found["start.offset"] == [0]
    assert "flink" in told["like"]
    assert "kafka-streams" not in told["like"]


def test_a_program_that_no_setting_explains_is_a_no(tmp_path: Path) -> None:
    ran = infer(tmp_path, "print('[1, 2, 3, 4, 5]')", "--probes", "40")
    assert ran.exit_code == 1, ran.output
    assert ran.output.startswith("no setting fits")


@pytest.mark.parametrize(
    ("program", "code", "expected"),
    [
        ("raise SystemExit(5)", 3, "ended with exit code 5"),
        ("print('soon')", 2, "no JSON"),
        ("print('{}')", 2, "expected one JSON list"),
    ],
)
def test_a_program_that_fails_is_named_with_the_probe(
    program: str, code: int, expected: str, tmp_path: Path
) -> None:
    ran = infer(tmp_path, program)
    assert isinstance(ran.exception, AnabranchError)
    assert ran.exception.exit_code == code
    assert str(ran.exception).startswith("probe 1 ")
    assert expected in str(ran.exception)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--command", "no-such-program-here"], "there is no command 'no-such-program-here'"),
        (["--command", "python 'open"], "No closing quotation; close the quotes"),
        (["--command", " "], "--command is empty"),
        (["--command", "python x.py", "--format", "csv"], r"put {size} and {slide}"),
        (["--command", "python x.py", "--agg", "mean"], "unknown aggregate 'mean'"),
    ],
)
def test_a_command_that_cannot_be_meant(words: list[str], expected: str) -> None:
    ran = CliRunner().invoke(cli, ["windows", "infer", *words])
    assert isinstance(ran.exception, AnabranchError)
    assert ran.exception.exit_code == 2
    assert expected in str(ran.exception)


def test_the_example_answers_a_probe_as_streambase_would() -> None:
    example = Path(__file__).parents[2] / "examples" / "window_engine.py"
    tuples = [{"time": t, "value": v, "batch": t} for t, v in [(30, 10), (31, 20), (36, 30)]]
    probe = {"size": 5, "slide": 1, "agg": "avg", "tuples": [*tuples, {"stable": 37}]}
    ran = subprocess.run(
        [sys.executable, str(example), "streambase"],
        input=json.dumps(probe),
        capture_output=True,
        text=True,
        check=True,
    )
    values = [one["value"] for one in json.loads(ran.stdout)]
    assert values == [10, 15, 15, 15, 15, 20, 30]


def test_no_shell_sees_the_command(tmp_path: Path) -> None:
    line = f"{sys.executable} -c pass ; touch {tmp_path}/seen"
    CliRunner().invoke(cli, ["windows", "infer", "--command", line])
    assert not (tmp_path / "seen").exists()
