"""`anabranch windows`: the paper's numbers, exit codes, JSON, pictures, timestamps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from anabranch.cli.main import cli
from anabranch.windows import ENGINES

ROOT = Path(__file__).parents[2]
EXAMPLE_2 = ROOT / "examples" / "windows_example2.csv"
QUERY = ["--input", str(EXAMPLE_2), "--value", "price", "--size", "5", "--slide", "1"]
QUERY += ["--agg", "avg", "--stable", "37"]
THREE = ["--engine", "stream", "--engine", "coral8", "--engine", "streambase"]
TRADES = """ts,price
2026-01-31T09:00:10Z,10.5
2026-01-31T09:01:30Z,11
2026-01-31T10:04:00+01:00,12.25
2026-01-31T09:07:00,13
"""


def windows(*words: str) -> Result:
    return CliRunner().invoke(cli, ["windows", *words], catch_exceptions=False)


@pytest.fixture
def trades(tmp_path: Path) -> str:
    path = tmp_path / "trades.csv"
    path.write_text(TRADES)
    return str(path)


def test_secret_example_2_the_three_outputs_of_the_paper() -> None:
    ran = windows("compare", *QUERY, *THREE)
    assert ran.output.splitlines()[:5] == [
        "stream:     (10), (15), (20), (30)",
        "coral8:     (10), (15), (20), (30)",
        "streambase: (10), (15), (15), (15), (15), (20), (30)",
        "stream and streambase differ from result 3 on (20, 15), by report",
        "No: 2 different answers: stream, coral8 | streambase.",
    ]
    assert ran.exit_code == 1, "the answer is no"
    assert ran.output.count("◆15") == 6


def test_the_guide_shows_what_the_command_prints() -> None:
    page = (ROOT / "docs" / "guide" / "windows-commands.md").read_text()
    printed = windows("compare", *QUERY, *THREE, "--no-timeline").output
    assert f"```text\n{printed}```" in page


def test_engines_that_agree_are_a_yes() -> None:
    ran = windows("compare", *QUERY, "--engine", "stream", "--engine", "coral8")
    assert ran.exit_code == 0
    assert "Yes: all 2 return the same." in ran.output


def test_compare_as_json() -> None:
    ran = windows("compare", *QUERY, *THREE, "--json")
    answer = json.loads(ran.output)
    assert ran.exit_code == 1
    assert answer["equal"] is False
    assert answer["classes"] == [["stream", "coral8"], ["streambase"]]
    values = [[one["value"] for one in p["results"]] for p in answer["predictions"]]
    assert values == [[10, 15, 20, 30], [10, 15, 20, 30], [10, 15, 15, 15, 15, 20, 30]]
    assert answer["times"] == "integer"


@pytest.mark.parametrize("name", ENGINES)
def test_predict_on_every_engine(name: str) -> None:
    from anabranch.windows import Stable, predict

    tuples = [(30, 10), (31, 20), (36, 30), Stable(37)]
    ran = windows("predict", *QUERY, "--engine", name, "--json")
    assert ran.exit_code == 0
    (found,) = json.loads(ran.output)["predictions"]
    assert (
        tuple(one["value"] for one in found["results"])
        == predict(name, 5, 1, tuples, "avg").values
    )


def test_the_timeline_can_be_left_out_and_large_ones_are() -> None:
    assert "◆" not in windows("predict", *QUERY, "--engine", "coral8", "--no-timeline").output
    assert "◆" in windows("predict", *QUERY, "--engine", "coral8").output


def test_a_large_timeline_is_drawn_only_if_asked(tmp_path: Path) -> None:
    path = tmp_path / "many.csv"
    path.write_text("time\n" + "\n".join(map(str, range(100))))
    words = ["predict", "--input", str(path), "--size", "2", "--engine", "flink"]
    ran = windows(*words, "--limit", "3")
    assert ran.output == "flink: (2), (2), (2) ... and 46 more (--limit shows more)\n"
    assert "more windows not drawn" in windows(*words, "--timeline").output


def test_explain_shows_why_stream_is_silent() -> None:
    ran = windows("explain", *QUERY, "--engine", "stream")
    assert ran.exit_code == 0
    assert "32: silent" in ran.output
    assert "content change no" in ran.output
    answer = json.loads(windows("explain", *QUERY, "--engine", "stream", "--json").output)
    assert len(answer["explanations"]) == 1


def test_timestamps_with_durations(trades: str) -> None:
    query = ["--input", trades, "--time", "ts", "--value", "price", "--agg", "max"]
    query += ["--size", "4 minutes", "--engine", "spark-append,delay=1 minute"]
    answer = json.loads(windows("predict", *query, "--json").output)
    assert answer["times"] == "timestamp"
    (found,) = answer["predictions"]
    assert (found["engine"], found["size"]) == ("spark-append, delay=1 minute", "4 minutes")
    (result,) = found["results"]
    assert (result["value"], result["start"]) == (11, "2026-01-31T09:00:00Z")
    shown = windows("predict", *query, "--stable", "2026-01-31T09:20:00Z").output
    assert "max over windows of size 4 minutes, slide 4 minutes" in shown
    assert "stable 09:20" in shown


def test_explain_of_timestamps_speaks_of_times_not_of_microseconds(trades: str) -> None:
    ran = windows("explain", "--input", trades, "--time", "ts", "--size", "4 minutes",
                  "--engine", "flink")  # fmt: skip
    assert ran.output.startswith("flink, size 4 minutes, slide 4 minutes, count: (2)\n")
    assert "[2026-01-31T09:00:00Z, 2026-01-31T09:04:00Z)" in ran.output
    assert "176985" not in ran.output


def test_batches_and_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "batches.csv"
    path.write_text("t,v,b,a\n3,10,1,1\n5,20,2,4\n5,30,2,5\n5,40,3,9\n5,50,3,10\n7,60,4,11\n")
    query = ["--input", str(path), "--time", "t", "--value", "v", "--agg", "sum"]
    query += ["--size", "4", "--slide", "1", "--engine", "coral8", "--json"]
    one = json.loads(windows("predict", *query).output)
    two = json.loads(windows("predict", *query, "--batch", "b").output)
    assert one["predictions"] != two["predictions"]
    answer = windows("predict", *query, "--by", "arrival", "--arrived", "a").output
    assert json.loads(answer)["predictions"][0]["by"] == "arrival"
    answer = windows("predict", *query, "--by", "rows").output
    assert [r["content"] for r in json.loads(answer)["predictions"][0]["results"]]


def test_two_settings_of_one_engine_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "late.csv"
    path.write_text("time,v\n1,1\n5,2\n2,4\n9,8\n")
    ran = windows("compare", "--input", str(path), "--value", "v", "--size", "4", "--agg",
                  "sum", "--engine", "flink", "--engine", "flink, lateness=3")  # fmt: skip
    assert ran.exit_code == 1
    assert ran.output.startswith(
        "flink:             (1), (2)\nflink, lateness=3: (1), (5), (2)"
    )


def test_the_committed_picture_is_what_the_command_draws(tmp_path: Path) -> None:
    target = tmp_path / "new.svg"
    windows("compare", *QUERY, *THREE, "--picture", str(target))
    committed = ROOT / "docs" / "guide" / "windows_example2.svg"
    assert target.read_text() == committed.read_text()


def test_both_pictures_and_json_at_once(tmp_path: Path) -> None:
    svg, png = tmp_path / "a.svg", tmp_path / "a.PNG"
    ran = windows("predict", *QUERY, "--engine", "coral8", "--json",
                  "--picture", str(svg), "--picture", str(png))  # fmt: skip
    assert json.loads(ran.output)["predictions"]
    assert svg.read_text().startswith("<svg")
    assert png.read_bytes().startswith(b"\x89PNG")


def test_engines_are_listed_with_their_sources() -> None:
    assert all(f"{name}: " in windows("engines").output for name in ENGINES)
    answer = json.loads(windows("engines", "flink", "--json").output)
    assert [one["name"] for one in answer["engines"]] == ["flink"]
    assert answer["engines"][0]["sources"]
    assert "EventTimeTrigger" in windows("engines", "flink").output


@pytest.mark.parametrize(
    "name", ["predict", "compare", "explain", "infer", "translate", "choose", "engines"]
)
def test_every_command_has_an_example_in_its_help(name: str) -> None:
    shown = windows(name, "--help").output
    assert f"anabranch windows {name}" in shown
    assert "--json" in shown


def test_a_pipe_without_unicode_gets_ascii() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "anabranch", "windows", "predict", *QUERY, "--engine", "coral8"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert b"[=" in ran.stdout
    assert b"*15" in ran.stdout
    assert b"\x1b" not in ran.stdout
