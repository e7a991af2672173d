"""`anabranch windows infer`: asks a real program, reports what fits, and fails in words."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.errors import AnabranchError
from anabranch.windows import Arrival, engine, predict

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
    answer = json.loads(ran.output)
    found = {one["name"]: one["values"] for one in answer["parameters"]}
    assert found["report.window_close"] == [True]
    assert found["start.anchor"] == ["grid"]
    assert found["start.offset"] == [0]
    assert "flink" in answer["like"]
    assert "kafka-streams" not in answer["like"]
    tried = {one["name"]: one["tried"] for one in answer["parameters"]}
    assert tried["start.offset"] == [0, 1, 2]


def test_a_program_that_no_setting_explains_is_a_no(tmp_path: Path) -> None:
    ran = infer(tmp_path, "print('[1, 2, 3, 4, 5]')", "--probes", "40")
    assert ran.exit_code == 1, ran.output
    assert ran.output.startswith("no setting fits")
    assert "progress.lateness 0, 2, none" in ran.output


def test_runs_that_differ_are_reported(tmp_path: Path) -> None:
    # The second run shows another value than all others.
    program = """
with open(__file__ + ".runs", "a") as runs:
    runs.write("x")
    print([int(runs.tell() == 2)])
"""
    ran = infer(tmp_path, program, "--probes", "2", "--repeats", "1", "--json")
    (answer,) = json.loads(ran.output)["disagreements"]
    assert len(answer["answers"]) > 1
    assert all(one["seen"] != "settled" for one in json.loads(ran.output)["parameters"])


@pytest.mark.parametrize(
    ("program", "code", "expected"),
    [
        ("raise SystemExit(5)", 3, "ended with exit code 5"),
        ("print('soon')", 2, "not JSON"),
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


RECORDED = (
    "--input", "{folder}/tuples.csv", "--value", "price", "--size", "5", "--slide", "2",
    "--results", "{folder}/results.csv",
)  # fmt: skip


def record(folder: Path, tuples: str, results: str) -> None:
    (folder / "tuples.csv").write_text(tuples)
    (folder / "results.csv").write_text(results)


def recorded(folder: Path, *words: str) -> Result:
    answer = [word.format(folder=folder) for word in (*RECORDED, *words)]
    return CliRunner().invoke(cli, ["windows", "infer", *answer])


def test_a_recorded_run_is_explained_without_running_anything(tmp_path: Path) -> None:
    # Spark's update mode: late tuples, two times in one batch.
    tuples = "time,price,batch\n1,1,1\n9,2,1\n3,4,2\n8,8,2\n2,16,3\n30,32,3\n"
    found = predict("spark-update", 5, 2, arrivals(tuples), "sum")
    rows = [(one.value, one.start, one.end, one.step) for one in found.results]
    lines = ["value,start,end,step", *(",".join(map(str, row)) for row in rows)]
    record(tmp_path, tuples, "\n".join(lines))
    ran = recorded(tmp_path, "--batch", "batch")
    assert ran.exit_code == 0, ran.output
    assert "fit, after 1 recording\nlike spark-update\n" in ran.output
    assert "to narrow it down, run and record: size" in ran.output
    answer = json.loads(recorded(tmp_path, "--batch", "batch", "--json").output)
    assert answer["like"] == ["spark-update"]
    assert answer["input"] == str(tmp_path / "tuples.csv")
    assert len(answer["alike"]) == answer["engines"]


def arrivals(text: str) -> list[Arrival]:
    rows = [[int(cell) for cell in line.split(",")] for line in text.splitlines()[1:]]
    return [Arrival(time, value, batch=batch) for time, value, batch in rows]


def test_a_recorded_run_with_timestamps_finds_the_delay_that_is_named(tmp_path: Path) -> None:
    noon = "2026-03-01T12:00:"
    tuples = "".join(f"{noon}{second:02}Z,{n}\n" for n, second in enumerate([1, 8, 15, 25]))
    results = f"value,start,end\n7,{noon}00Z,{noon}02Z\n"
    record(tmp_path, "time,price\n" + tuples, results)
    words = ["--delay", "0 seconds", "--delay", "10 seconds"]
    lengths = ["--size", "2 seconds", "--slide", "2 seconds"]
    ran = recorded(tmp_path, *lengths, *words)
    assert ran.exit_code == 1, ran.output  # no window holds 7
    assert "2026-03-01T12:00:01Z 0 1" in ran.output
    shown = predict(
        engine("flink", delay=10_000_000), 2_000_000, 2_000_000,
        [Arrival(second * 1_000_000, n) for n, second in enumerate([1, 8, 15, 25])], "sum",
    ).values  # fmt: skip
    (tmp_path / "results.csv").write_text("\n".join(["value", *map(str, shown)]))
    ran = recorded(tmp_path, *lengths, *words)
    assert ran.exit_code == 0, ran.output
    answer = "progress.delay: 10 seconds or 0 (narrowed; tried -, 0, 10 seconds)"
    assert answer in ran.output


def test_the_tuples_of_a_file_are_one_more_probe(tmp_path: Path) -> None:
    (tmp_path / "tuples.csv").write_text("time,price\n1,1\n4,2\n20,4\n")
    words = ["--input", str(tmp_path / "tuples.csv"), "--value", "price", "--size", "7"]
    ran = infer(tmp_path, GRID, "--no-late", "--probes", "20", *words, "--json")
    assert ran.exit_code == 0, ran.output
    first = json.loads(ran.output)["asked"][0]
    assert (first["purpose"], first["size"]) == ("recorded", 7)
    assert first["answer"] == [{"value": 3, "start": 0, "end": 7, "step": 2}]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "nothing to infer from; give --command"),
        (["--input", "{folder}/tuples.csv", "--size", "5"], "nothing to infer from"),
        (["--size", "5", "--command", "true"], "--size belongs to --input"),
        (["--results", "{folder}/results.csv"], "--results belongs to --input"),
        ([*RECORDED[:4], *RECORDED[8:]], "--input needs --size"),
        ([*RECORDED, "--slide", "0"], "at least 1 unit"),
        ([*RECORDED, "--results", "{folder}/none.csv"], "there is no such file"),
        ([*RECORDED, "--results", "{folder}/tuples.csv"], "no column 'value'"),
        ([*RECORDED, "--results", "{folder}/times.csv"], "line 2: start is '2026-01-01'"),
        ([*RECORDED, "--results", "{folder}/words.csv"], "the value 'x' is not a number"),
        ([*RECORDED, "--delay", "soon"], "--delay"),
        (
            ["--input", "{folder}/clock.csv", "--value", "price", "--size", "1 second",
             "--command", "true"],
            "small whole numbers",
        ),
    ],
)  # fmt: skip
def test_a_recording_that_cannot_be_meant(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    record(tmp_path, "time,price\n1,1\n", "value\n1\n")
    (tmp_path / "times.csv").write_text("value,start\n1,2026-01-01\n")
    (tmp_path / "words.csv").write_text("value\nx\n")
    (tmp_path / "clock.csv").write_text("time,price\n2026-01-01,1\n")
    answer = [word.format(folder=tmp_path) for word in words]
    ran = CliRunner().invoke(cli, ["windows", "infer", *answer])
    assert isinstance(ran.exception, AnabranchError), ran.output
    assert ran.exception.exit_code == 2
    assert expected in str(ran.exception)


def test_the_recorded_example_is_like_streambase_and_not_like_stream() -> None:
    folder = Path(__file__).parents[2] / "examples"
    words = [
        "--input", str(folder / "windows_example2.csv"), "--value", "price", "--size", "5",
        "--slide", "1", "--agg", "avg", "--stable", "37",
        "--results", str(folder / "windows_example2_results.csv"), "--json",
    ]  # fmt: skip
    ran = CliRunner().invoke(cli, ["windows", "infer", *words])
    answer = json.loads(ran.output)
    assert "streambase" in answer["like"]
    assert not {"stream", "coral8"} & set(answer["like"])
